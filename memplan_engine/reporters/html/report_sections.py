"""The parts of a report that need no script: figures, tables and where it comes from, as HTML.

All text that comes from files goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memplan_engine.analysis.claims import counted, left_out, verdict, workspace_name
from memplan_engine.analysis.peak import Contributor, Peak
from memplan_engine.graph import Role, storage_bytes
from memplan_engine.plan import Plan
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.profile import make_profile
from memplan_engine.reporters.html.report_data import shortened
from memplan_engine.reporters.plan_tables import cut_short, effort, saved
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds
from memplan_engine.verify.validate import Report

MOST_CONTRIBUTORS = 100
MOST_VIOLATIONS = 20


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
    profile = make_profile(plan.problem, plan.offsets)
    over = "meets the lower bound" if plan.optimal else f"{format_percent(plan.gap)} over the lower bound"
    cards = [
        ("Arena", format_bytes(plan.arena_bytes), over),
        ("Lower bound", format_bytes(plan.bound.nbytes), str(plan.bound.kind)),
        ("Peak", format_bytes(profile.peak_bytes), f"live at step {profile.peak_step:,}"),
        ("Holes at peak", format_bytes(profile.holes_at_peak), "free below the topmost buffer"),
        ("Saved by reuse", format_percent(saved(plan)), f"{format_bytes(plan.naive_bytes)} without"),
    ]
    origin = plan.problem.origin
    constants = storage_bytes(origin.graph, Role.CONSTANT) if origin else 0
    if constants:
        cards.append(("Constants", format_bytes(constants), "in a region of their own"))
    if plan.workspace_bytes:
        workspace = f"{workspace_name(plan.problem)} {format_bytes(plan.workspace_bytes)} beside the arena"
        cards.insert(1, ("Total", format_bytes(plan.total_bytes), workspace))
    rows = (
        f"<div><dt>{label}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
        for label, value, note in cards
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
    has_source = any(part.provenance.source or part.provenance.module for part in shown)
    headings = [("buffer", ""), ("size", "number"), ("share", "number"), ("", "")]
    if any(part.provenance.kind != "buffer" for part in shown):
        headings.append(("kind", ""))
    if has_source:
        headings += [("module", ""), ("source", "")]
    rows = [_contributor(part, peak.nbytes, [name for name, _ in headings]) for part in shown]
    rest = peak.contributors[len(shown) :]
    if rest:
        size = sum(part.nbytes for part in rest)
        share = format_percent(size / peak.nbytes)
        cells = f'<td class="number">{format_bytes(size)}</td><td class="number">{share}</td>'
        rows.append(f"<tr><td>and {len(rest):,} more</td>{cells}{'<td></td>' * (len(headings) - 3)}</tr>")
    op = f", {peak.ops[0].name}" if peak.ops else ""
    caption = f"{exact(peak.nbytes)} live at step {peak.step:,}{op}"
    return _section("What the peak is made of", f"<p>{escape(caption)}</p>{_table(headings, rows)}")


def _contributor(part: Contributor, peak: int, headings: Sequence[str]) -> str:
    known, share = part.provenance, part.nbytes / peak
    cells = [
        f'<td class="name">{escape(shortened(part.name))}</td>',
        f'<td class="number">{format_bytes(part.nbytes)}</td>',
        f'<td class="number">{format_percent(share)}</td>',
        f'<td><svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * share:.2f}" height="10"/></svg></td>',
    ]
    if "kind" in headings:
        cells.append(f"<td>{escape(known.kind)}</td>")
    if "source" in headings:
        code = f"<code>{escape(shortened(known.source.code))}</code>" if known.source else ""
        cells.append(f'<td class="name">{escape(shortened(known.module))}</td>')
        cells.append(f'<td class="source">{escape(shortened(str(known.source or "")))}{code}</td>')
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
    values = [format_bytes(plan.arena_bytes), format_percent(plan.gap), format_percent(saved(plan))]
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
    symbols = problem.origin.graph.symbols if problem.origin else ()
    given = ", ".join(f"{name} = {value}" for name, value in plan.parameters if value is not None)
    rows = [
        ("File", notes.file),
        ("Graph", problem.name),
        ("Problem", f"{len(problem):,} buffers, {problem.steps:,} steps"),
        ("Counted", counted(problem)),
        ("Fingerprint", problem.fingerprint),
        ("Symbols", ", ".join(f"{each.name} = {each.hint:,}" for each in symbols if each.hint is not None)),
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
