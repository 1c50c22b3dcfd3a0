"""The parts of a report that need no script: figures, tables and where it comes from, as HTML.

All text that comes from files goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memplan_engine.analysis.claims import counted, left_out, verdict
from memplan_engine.analysis.peak import Contributor, Peak
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.plan import Plan
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.figure_list import figure_cards
from memplan_engine.reporters.html.report_data import shortened
from memplan_engine.reporters.peak_columns import PeakColumn, shown_columns, silent_groups
from memplan_engine.reporters.plan_tables import cut_short, effort, symbol_values
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds
from memplan_engine.verify.validate import Report

MOST_CONTRIBUTORS = 100
MOST_VIOLATIONS = 20
BAR = 3
"""Where in the table of the peak the picture of a share stands: behind the share."""


@dataclass(frozen=True, slots=True)
class ReportNotes:
    """What a report says of itself: the `file` that was read, the `command` that made it, a `date` if there
    is to be one. Without `timings` it says nothing that differs from run to run: no seconds, no nodes."""

    file: str = ""
    command: str = ""
    date: str = ""
    timings: bool = True


def figures(plan: Plan) -> str:
    """The row of figures at the top."""
    rows = (
        f"<div><dt>{label}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
        for (label, value, note), _ in figure_cards(figures_of(plan), "report")
    )
    return f'<dl class="figures">{"".join(rows)}</dl>'


def warnings(plan: Plan, report: Report, notes: ReportNotes) -> str:
    """What is not as it should be: a placement that is not valid, a search cut short, sizes not known."""
    told = []
    if not report.valid:
        count = sum(report.counts.values())
        told.append(f"Not valid: {count:,} violation{'s' * (count != 1)} found by the validator.")
        told += [violation.message for violation in report.violations[:MOST_VIOLATIONS]]
    if plan.cut_short:
        told.append(cut_short(plan) if notes.timings else "cut short: best plan so far")
    unknown = left_out(plan.problem)
    if unknown:
        told.append(f"not planned: {unknown}")
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in told)


def peak_section(peak: Peak) -> str:
    """What the peak is made of, largest first; the row of a buffer is a link to its rectangle."""
    shown = peak.contributors[:MOST_CONTRIBUTORS]
    silent = silent_groups(peak, shown)
    columns = [column for column in shown_columns() if column.group not in silent]
    rows = [_contributor(part, peak.nbytes, columns) for part in shown]
    headings = [(column.heading, column.style * (column.style == "number")) for column in columns]
    headings.insert(BAR, ("", ""))
    rest = peak.contributors[len(shown) :]
    if rest:
        size = sum(part.nbytes for part in rest)
        share = format_percent(size / peak.nbytes)
        cells = f'<td class="number">{format_bytes(size)}</td><td class="number">{share}</td>'
        rows.append(f"<tr><td>and {len(rest):,} more</td>{cells}{'<td></td>' * (len(headings) - 3)}</tr>")
    op = f", {peak.ops[0].name}" if peak.ops else ""
    caption = f"{exact(peak.nbytes)} live at step {peak.step:,}{op}"
    return _section("What the peak is made of", f"<p>{escape(caption)}</p>{_table(headings, rows)}")


def _contributor(part: Contributor, peak: int, columns: Sequence[PeakColumn]) -> str:
    source, cells = part.provenance.source, []
    for column in columns:
        style = f' class="{column.style}"' if column.style else ""
        told = column.says(part, peak)
        told = told if column.style == "number" else escape(shortened(told))
        if column.style == "source" and source:
            told += f"<code>{escape(shortened(source.code))}</code>"
        cells.append(f"<td{style}>{told}</td>")
    bar = f'<rect width="{100 * part.nbytes / peak:.2f}" height="10"/>'
    picture = (
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{bar}</svg>'
    )
    cells.insert(BAR, f"<td>{picture}</td>")
    if part.buffer is None:
        return f"<tr>{''.join(cells)}</tr>"
    return f'<tr class="link" data-buffer="{part.buffer}">{"".join(cells)}</tr>'


def comparison_section(plan: Plan, others: Sequence[Plan], notes: ReportNotes) -> str:
    """The strategies side by side, smallest arena first; nothing without `others`."""
    if not others:
        return ""
    headings = [("strategy", ""), ("arena", "number"), ("over bound", "number"), ("saved", "number")]
    if notes.timings:
        headings.append(("time", "number"))
    headings.append(("", ""))
    plans = sorted([plan, *others], key=lambda each: each.arena_bytes)
    rows = [_compared(each, each is plan, notes) for each in plans]
    bound = f"lower bound {exact(plan.bound.nbytes)}; the plan of this report is marked"
    return _section("Strategies", f"<p>{escape(bound)}</p>{_table(headings, rows)}")


def _compared(plan: Plan, is_chosen: bool, notes: ReportNotes) -> str:
    values = [format_bytes(plan.arena_bytes), format_percent(plan.gap), format_percent(plan.saved)]
    if notes.timings:
        values.append(format_seconds(plan.seconds))
    cells = "".join(f'<td class="number">{value}</td>' for value in values)
    judged = verdict(plan) or ("cut short" if plan.cut_short else "")
    good = ' class="good"' if plan.optimal else ""
    chosen = ' class="chosen"' if is_chosen else ""
    return f"<tr{chosen}><td>{escape(plan.strategy)}</td>{cells}<td{good}>{judged}</td></tr>"


def making_section(plan: Plan, notes: ReportNotes, version: str) -> str:
    """Where the report comes from: enough to make it again."""
    problem = plan.problem
    given = ", ".join(f"{name} = {value}" for name, value in plan.parameters if value is not None)
    rows = [
        ("File", notes.file),
        ("Graph", problem.name),
        ("Problem", f"{len(problem):,} buffers, {problem.steps:,} steps"),
        ("Counted", counted(problem)),
        ("Fingerprint", problem.fingerprint),
        ("Symbols", symbol_values(problem)),
        ("Strategy", plan.strategy + (f" ({given})" if given else "")),
        ("Planned in", effort(plan) if notes.timings else ""),
        ("memplan", version),
        ("Command", notes.command),
        ("Date", notes.date),
    ]
    said = "".join(f"<dt>{label}</dt><dd>{escape(value)}</dd>" for label, value in rows if value)
    return _section("How it was made", f'<dl class="made">{said}</dl>')


def _section(heading: str, body: str) -> str:
    return f"<section><h2>{heading}</h2>{body}</section>"


def _table(headings: Iterable[tuple[str, str]], rows: Iterable[str]) -> str:
    head = "".join(
        f'<th scope="col" class="{kind}">{name}</th>' if kind else f'<th scope="col">{name}</th>'
        for name, kind in headings
    )
    body = "\n".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
