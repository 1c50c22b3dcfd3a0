"""A plan as one HTML file that needs nothing else: chart, profile, tables and where it comes from.

The page may load nothing and run no script but its own, which its Content-Security-Policy names by hash.
Texts of files reach it escaped, or as data that its script shows as text.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

from memplan_engine.analysis.claims import counted, is_proved, left_out, over_bound, verdict
from memplan_engine.analysis.peak import Contributor, Peak, find_peak
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.plotting.bundling import CHART_MODULES, bundle
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.figure_list import PeakColumn, figure_cards, shown_columns, silent_groups
from memplan_engine.reporters.html.report_data import chart_json, shortened
from memplan_engine.reporters.plan_tables import certificate, cut_short, effort
from memplan_engine.system import write_atomically
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds
from memplan_engine.verify.validate import Report, validate_plan

FOLDER = Path(__file__).parent / "page"
SCRIPTS = (
    *CHART_MODULES,
    *(FOLDER / name for name in ("data.js", "draw.js", "pointer.js", "main.js")),
)
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


def write_report(
    plan: Plan, path: Path | str, others: Sequence[Plan] = (), notes: ReportNotes | None = None
) -> None:
    """Write the report of `plan` to `path`, atomically; raises as `to_html` does, and InputError for a place
    that cannot be written."""
    write_atomically(path, to_html(plan, others, notes).encode())


def to_html(plan: Plan, others: Sequence[Plan] = (), notes: ReportNotes | None = None) -> str:
    """The report of `plan`, with `others` of the same problem in a table of strategies beside it.

    The same plans and notes give the same text. All are measured against the best bound that one of them has.

    Raises
    ------
    InputError: plans of different problems.
    """
    notes = notes or ReportNotes()
    plan, *rest = _with_best_bound([plan, *others])
    problem = plan.problem
    report = validate_plan(plan, replay=False)
    parts = [
        peak_section(find_peak(problem)),
        comparison_section(plan, rest, notes),
        making_section(plan, notes, _version()),
    ]
    counts = f"{len(problem):,} buffers, {problem.steps:,} steps"
    arena = format_bytes(plan.arena_bytes)
    sentence = certificate(plan) if len(problem) else "There is nothing to place."
    return _template().substitute(
        policy=_policy(),
        title=escape(f"{problem.name}: {arena}"),
        styles=_styles(),
        heading=escape(problem.name),
        facts=escape(f"{counts}, planned by {plan.strategy}"),
        figures=figures(plan),
        verdict=verdict(plan) if report.valid else "",
        certificate=escape(sentence[:1].upper() + sentence[1:] + "." * (not sentence.endswith("."))),
        warnings=warnings(plan, report, notes),
        spoken=escape(f"{counts} over time and memory; arena {arena}, {over_bound(plan)}"),
        sections="\n".join(filter(None, parts)),
        data=chart_json(plan),
        script=_script(),
    )


def _with_best_bound(plans: Sequence[Plan]) -> list[Plan]:
    fingerprints = {plan.problem.fingerprint for plan in plans}
    if len(fingerprints) > 1:
        raise InputError(plans[0].problem.name, "", "plans of different problems", "plans of one problem")
    best = max((plan.bound for plan in plans), key=lambda bound: bound.nbytes)
    return [plan if plan.bound.nbytes == best.nbytes else replace(plan, bound=best) for plan in plans]


def _policy() -> str:
    """Nothing may be loaded; one script and one style sheet may be there, and nothing else may run."""
    script, styles = _hash(_script()), _hash(_styles())
    allowed = f"script-src '{script}'; style-src '{styles}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _template() -> Template:
    return Template((FOLDER / "page.html").read_text("utf-8"))


@cache
def _styles() -> str:
    return (FOLDER / "page.css").read_text("utf-8")


@cache
def _script() -> str:
    """The files of the page as one script; their names stay their own."""
    return f'(() => {{\n"use strict";\n{bundle(SCRIPTS)}}})();\n'


@cache
def _version() -> str:
    try:
        return version("memplan")
    except PackageNotFoundError:
        return ""


def figures(plan: Plan) -> str:
    """The row of figures at the top."""
    rows = (
        f"<div><dt>{label}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
        for (label, value, note, _exact), _ in figure_cards(figures_of(plan), "report")
    )
    return f'<dl class="figures">{"".join(rows)}</dl>'


def warnings(plan: Plan, report: Report, notes: ReportNotes) -> str:
    """What is not as it should be: a placement that is not valid, a search cut short, sizes not known."""
    sentences = []
    if not report.valid:
        count = sum(report.counts.values())
        sentences.append(f"Not valid: {count:,} violation{'s' * (count != 1)} found by the validator.")
        sentences += [violation.message for violation in report.violations[:MOST_VIOLATIONS]]
    if plan.cut_short:
        sentences.append(cut_short(plan) if notes.timings else "stopped early: best plan so far")
    unknown = left_out(plan.problem)
    if unknown:
        sentences.append(f"not planned: {unknown}")
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in sentences)


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
        text = column.says(part, peak)
        text = text if column.style == "number" else escape(shortened(text))
        if column.style == "source" and source:
            text += f"<code>{escape(shortened(source.code))}</code>"
        cells.append(f"<td{style}>{text}</td>")
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
    plans = sorted([plan, *others], key=lambda entry: entry.arena_bytes)
    rows = [_compared(entry, entry is plan, notes) for entry in plans]
    bound = f"lower bound {exact(plan.bound.nbytes)}; the plan of this report is marked"
    return _section("Strategies", f"<p>{escape(bound)}</p>{_table(headings, rows)}")


def _compared(plan: Plan, is_chosen: bool, notes: ReportNotes) -> str:
    values = [format_bytes(plan.arena_bytes), format_percent(plan.gap), format_percent(plan.saved)]
    if notes.timings:
        values.append(format_seconds(plan.seconds))
    cells = "".join(f'<td class="number">{value}</td>' for value in values)
    judged = verdict(plan) or ("cut short" if plan.cut_short else "")
    good = ' class="good"' if is_proved(plan) else ""
    chosen = ' class="chosen"' if is_chosen else ""
    return f"<tr{chosen}><td>{escape(plan.strategy)}</td>{cells}<td{good}>{judged}</td></tr>"


def making_section(plan: Plan, notes: ReportNotes, version: str) -> str:
    """Where the report comes from: enough to make it again."""
    problem = plan.problem
    parameters = ", ".join(f"{name} = {value}" for name, value in plan.parameters if value is not None)
    rows = [
        ("File", notes.file),
        ("Graph", problem.name),
        ("Problem", f"{len(problem):,} buffers, {problem.steps:,} steps"),
        ("Counted", counted(problem)),
        ("Fingerprint", problem.fingerprint),
        ("Strategy", plan.strategy + (f" ({parameters})" if parameters else "")),
        ("Planned in", effort(plan) if notes.timings else ""),
        ("memplan", version),
        ("Command", notes.command),
        ("Date", notes.date),
    ]
    entries = "".join(f"<dt>{label}</dt><dd>{escape(value)}</dd>" for label, value in rows if value)
    return _section("How it was made", f'<dl class="made">{entries}</dl>')


def _section(heading: str, body: str) -> str:
    return f"<section><h2>{heading}</h2>{body}</section>"


def _table(headings: Iterable[tuple[str, str]], rows: Iterable[str]) -> str:
    head = "".join(
        f'<th scope="col" class="{kind}">{name}</th>' if kind else f'<th scope="col">{name}</th>'
        for name, kind in headings
    )
    body = "\n".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
