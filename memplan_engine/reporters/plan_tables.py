"""Plans, peaks, layouts and findings: for machines, what `--json` prints; for people, as Rich renderables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memplan_engine.analysis.buffer_names import buffer_names, layout_names
from memplan_engine.analysis.claims import (
    beside,
    claim_summary,
    counted,
    doubt,
    holds_at_least,
    is_optimal,
    is_proved,
    left_out,
    optimal_for,
    verdict,
)
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.bounds import BoundKind, contributors
from memplan_engine.graph import unknown_sizes
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.reporters.figure_list import (
    contributor_facts,
    figure_facts,
    figure_rows,
    shown_columns,
    silent_groups,
)
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    Heading,
    folded,
    in_graph,
    label_table,
    make_table,
    modules,
    more,
    named,
    numbers,
    paths,
    plain_text,
)
from memplan_engine.scope import Scope, assumed_summary, scope_summary
from memplan_engine.strategies.constructive.orders import planner_words
from memplan_engine.units import count_of, exact, format_bytes, format_percent, format_seconds, format_span
from memplan_engine.verdict import Reason

if TYPE_CHECKING:
    from memplan_engine.analysis.layout import Layout
    from memplan_engine.analysis.peak import Peak
    from memplan_engine.formats.memplan_json.graph_format import About
    from memplan_engine.strategies.base import Strategy
    from memplan_engine.verify.validate import Report


MOST_ENTRIES = 8


def plan_table(plan: Plan, cut_by: str = "") -> RenderableType:
    """The figures of one plan, its certificate, and what ended the search early (`cut_by`) if that did."""
    problem = plan.problem
    found_by = planner(plan)
    rows = [
        ("graph", f"{problem.name}, {count_of(len(problem), 'buffer')}, {count_of(problem.steps, 'step')}"),
        ("strategy", plan.strategy + (f" (planner: {found_by})" if found_by else "")),
        *figure_rows(figures_of(plan)),
        ("planned in", effort(plan)),
        ("counted", counted(problem)),
        *_objects(plan),
        ("not planned", left_out(problem)),
    ]
    style = "green" if is_proved(plan) else ""
    table = label_table(row for row in rows if row[1])
    parts: list[RenderableType] = [table, plain_text(certificate(plan), style=style)]
    if plan.cut_short:
        parts.append(plain_text(cut_short(plan, cut_by), style="yellow"))
    return Group(*parts)


def planner(plan: Plan) -> str:
    """What found the plan of a strategy that tries several: "largest first, first fit"; "" of the others."""
    return planner_words(str(dict(plan.parameters).get("found_by") or ""))


def cut_short(plan: Plan, cut_by: str = "") -> str:
    """One sentence: a plan that is not all that its strategy could have found."""
    by = f" by {cut_by}" if cut_by else ""
    return f"stopped after {format_seconds(plan.seconds)}{by}: best plan so far"


def effort(plan: Plan) -> str:
    """What it took: "3.2 s on 2 threads, 1,234 nodes"."""
    threads = f"{plan.threads} thread{'s' * (plan.threads != 1)}"
    nodes = f", {plan.nodes:,} nodes" if plan.nodes else ""
    return f"{format_seconds(plan.seconds)} on {threads}{nodes}"


def _objects(plan: Plan) -> list[tuple[str, str]]:
    if plan.objects is None:
        return []
    # Here, not above: most plans need not wait for what few of them have.
    from memplan_engine.analysis.positional import object_summary

    summary = object_summary(plan)
    over = "which they meet" if summary.optimal else f"{format_percent(summary.gap)} over"
    return [
        ("shared objects", f"{summary.objects}, {exact(summary.objects_bytes)}"),
        ("their bound", f"{exact(summary.objects_bound)}, the sum of positional maxima, {over}"),
    ]


def lesson(about: About) -> list[RenderableType]:
    """What an example file says that it shows; nothing for files that say nothing."""
    if not about.title:
        return []
    parts = (about.title, about.shows, f"optimum: {about.optimum}, for {about.why}" if about.why else "")
    return [plain_text(part) for part in ("", *filter(None, parts))]


def certificate(plan: Plan) -> str:
    """One sentence: what is proved, and by what."""
    bound, problem = plan.bound, plan.problem
    who = contributors(problem, bound)
    count = count_of(len(who), "buffer")
    proof = f"the live bytes at step {bound.step:,} ({count})"
    if bound.kind is BoundKind.ALIGNED_LOAD:
        proof += f" in units of {bound.unit} bytes"
    elif bound.kind is BoundKind.FIXED:
        proof = f"the end of {buffer_names(problem)[who[0]]}, whose offset is fixed"
    elif bound.kind is BoundKind.LARGEST:
        proof = f"the size of {buffer_names(problem)[who[0]]}"
    elif bound.kind is BoundKind.BETWEEN_FIXED:
        proof = f"what {count} need at step {bound.step:,}, some of them at fixed offsets"
    elif bound.kind is BoundKind.CORE:
        proof = f"what {count} live within {format_span(bound.step, bound.until)} need (as a search proved)"
    rest = f"; {note}" if (note := beside(plan)) else ""
    needs = f"needs at least {format_bytes(bound.nbytes)}, {proof}"
    if problem.scope is Scope.PART:
        return f"what was recorded {needs}; the run may have needed more"
    if doubt(problem) is Reason.COMPILED:
        return f"the eager run {needs}; the compiled run may hold more or less"
    if plan.optimal:
        return f"optimal for {optimal_for(problem)}: the arena equals {proof}{rest}"
    return f"not proved optimal: no arena can be smaller than {proof}, {format_bytes(bound.nbytes)}{rest}"


def compare_table(plans: Sequence[Plan]) -> Table:
    """A row a plan, in the given order."""
    workspace = bool(plans) and bool(plans[0].workspace_bytes)
    headings = ("arena", *["with workspace"] * workspace, "over bound", "reuse saves", "ms")
    rows = (
        (
            plan.strategy,
            format_bytes(plan.arena_bytes),
            *[format_bytes(plan.total_bytes)] * workspace,
            format_percent(plan.gap),
            format_percent(plan.saved),
            f"{1000 * plan.seconds:.2f}",
            verdict(plan),
        )
        for plan in plans
    )
    columns = ("strategy", *numbers(*headings), "proved")
    return make_table(columns, rows, _headline(plans[0]) if plans else "")


def _headline(plan: Plan) -> str:
    name, count = plan.problem.name, count_of(len(plan.problem), "buffer")
    return f"{name}: {count}, lower bound {format_bytes(plan.bound.nbytes)}"


def counted_lines(problem: Problem) -> list[Text]:
    """What the figures of `problem` count, and what they leave out, a line each."""
    unknown = left_out(problem)
    lines = [f"counted: {counted(problem)}", *([f"not planned: {unknown}"] if unknown else [])]
    return [plain_text(line) for line in lines]


def peak_table(peak: Peak, graph: str, every_row: bool = False) -> Table:
    """What the peak is made of, largest first; MOST_ROWS rows unless `every_row`."""
    at = f", op {peak.op_label}" if peak.op_label else ""
    title = f"{graph}: {format_bytes(peak.nbytes)} live at step {peak.step:,}{at}"
    silent = silent_groups(peak, peak.contributors)
    columns = [column for column in shown_columns() if column.group not in silent]
    ways = {"kind": modules, "module": modules, "source": paths}
    headings: list[Heading] = []
    for column in columns:
        way = ways.get(column.key, numbers if column.style == "number" else folded)
        headings += in_graph() if column.heading == "in graph" else way(column.heading)
    shown = peak.contributors if every_row else peak.contributors[:MOST_ROWS]
    rows = ([column.says(part, peak.nbytes) for column in columns] for part in shown)
    rest = more(peak.contributors, shown)
    if rest:
        size = sum(part.nbytes for part in peak.contributors[len(shown) :])
        rest += (format_bytes(size), format_percent(size / peak.nbytes))
    return make_table(headings, rows, title, rest)


def layout_table(layout: Layout, problem: Problem, every_row: bool = False) -> RenderableType:
    """The regions of a plan of `problem`, and the largest entries of each; all entries when `every_row`."""
    columns = ("region", *numbers("start", "bytes", "size", "entries"))
    rows = (
        (
            region.kind.words,
            f"{region.start:,}",
            f"{region.nbytes:,}",
            format_bytes(region.nbytes),
            f"{len(region.entries):,}",
        )
        for region in layout.regions
    )
    regions = make_table(columns, rows, f"{format_bytes(layout.nbytes)} total")
    headings = ("region", "entry", *in_graph(), *numbers("address", "offset", "bytes", "size"))
    entries = make_table(headings, _entries(layout, problem, every_row))
    counted_line = plain_text(f"counted: {counted(problem)}")
    return Group(regions, *_held(problem), entries, counted_line)


def device_lines(problem: Problem) -> list[Text]:
    """What is held on the device at the fullest step, in a line, where there is a graph."""
    held = _on_device(problem)
    parts = (f"{name} {format_bytes(nbytes)}" for name, nbytes in held.items())
    return [plain_text(f"{_held_words(held, problem)}: {', '.join(parts)}")] if held else []


def _on_device(problem: Problem) -> dict[str, int]:
    # Here, not above: a plan's table waits for nothing of the peak.
    from memplan_engine.analysis.device_memory import on_device

    return on_device(problem)


def _held_words(held: dict[str, int], problem: Problem) -> str:
    most = "at most " if doubt(problem) is None else "at least " * holds_at_least(problem)
    return f"on the device {most}{format_bytes(sum(held.values()))} at one step"


def _held(problem: Problem) -> Iterable[RenderableType]:
    """What is held on the device at the fullest step, by category, where there is a graph."""
    if held := _on_device(problem):
        rows = ((name, f"{nbytes:,}", format_bytes(nbytes)) for name, nbytes in held.items())
        title = f"{_held_words(held, problem)}, of which"
        yield make_table(("category", *numbers("bytes", "size")), rows, title)


def _entries(layout: Layout, problem: Problem, every_row: bool) -> Iterable[tuple[str, ...]]:
    labels = layout_names(problem)
    for region in layout.regions:
        largest = sorted(region.entries, key=lambda entry: -entry.nbytes)[:MOST_ENTRIES]
        shown = region.entries if every_row else [entry for entry in region.entries if entry in largest]
        for entry in shown:
            places = (f"{region.start + entry.offset:,}", f"{entry.offset:,}")
            name = named(labels.get(entry.name, entry.name), entry.name)
            yield region.kind.words, *name, *places, f"{entry.nbytes:,}", format_bytes(entry.nbytes)
        if len(shown) < len(region.entries):
            yield region.kind.words, f"and {len(region.entries) - len(shown)} smaller"


def report_lines(plan: Plan, report: Report) -> Iterable[Text]:
    """The validator's findings, a line each."""
    if report.valid:
        size = format_bytes(plan.arena_bytes)
        yield plain_text(f"valid: {len(plan.problem)} buffers in {size}; {certificate(plan)}", style="green")
        if report.replayed:
            yield plain_text(f"replayed: {report.replayed}", style="green")
        for warning in report.unchecked:
            yield plain_text(f"warning: {warning}", style="yellow")
        return
    yield plain_text("not valid", style="bold red")
    for rule, count in report.counts.items():
        yield plain_text(f"  broken {count} ×: {rule}")
    for violation in report.violations:
        yield plain_text(f"  {violation.message}")


def strategies_table(strategies: Mapping[str, Strategy]) -> Table:
    """All strategies with what they do and where they come from."""
    rows = ((strategy.name, strategy.description, strategy.source) for strategy in strategies.values())
    return make_table(("strategy", "what it does", "source"), rows)


def plan_summary(plan: Plan, cut_by: str = "") -> dict[str, Any]:
    """The figures of a plan; byte counts are exact integers. `cut_by` says what cut it short, if that is
    known."""
    problem = plan.problem
    figures, origin = figures_of(plan), problem.origin
    return {
        "graph": problem.name,
        **claim_summary(problem),
        "strategy": plan.strategy,
        "parameters": dict(plan.parameters),
        "buffers": len(problem),
        "steps": problem.steps,
        **figure_facts(figures),
        "symbols": {symbol.name: symbol.hint for symbol in origin.graph.symbols} if origin else {},
        "unique_workspaces_bytes": figures.scratch.unique,
        "shared_workspace_bytes": figures.scratch.shared,
        "unknown_sizes": sorted(unknown_sizes(origin.graph)) if origin else [],
        "seconds": plan.seconds,
        "nodes": plan.nodes,
        "threads": plan.threads,
        "cut_short": plan.cut_short,
        **({"cut_by": cut_by} if plan.cut_short and cut_by else {}),
        **_object_facts(plan),
    }


def _object_facts(plan: Plan) -> dict[str, Any]:
    """Of a plan with shared objects: how many, how large, and their own bound; bytes."""
    if plan.objects is None:
        return {}
    # Here, not above: most plans need not wait for what few of them have.
    from memplan_engine.analysis.positional import object_summary

    summary = object_summary(plan)
    return {
        "objects": summary.objects,
        "objects_bytes": summary.objects_bytes,
        "objects_bound_bytes": summary.objects_bound,
    }


def peak_summary(peak: Peak, problem: Problem) -> dict[str, Any]:
    """What the peak is made of. `on_device` has what is held with it at the fullest step, by category: of a
    graph also weights, the state of an optimizer and inputs."""
    return {
        "peak_step": peak.step,
        "peak_bytes": peak.nbytes,
        **scope_summary(peak.scope, peak.counted),
        **assumed_summary(problem.basis),
        "on_device": _on_device(problem),
        "workspace_bytes": peak.workspace_bytes,
        "ops": [op.name for op in peak.ops],
        "contributors": [contributor_facts(contributor, peak) for contributor in peak.contributors],
    }


def offsets(plan: Plan) -> dict[str, int]:
    """The offset in bytes of every buffer, by name."""
    return dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True))


def layout_summary(layout: Layout, problem: Problem) -> dict[str, Any]:
    """The regions with their entries; offsets count from the start of each region, bytes. `on_device` has
    what is held at the fullest step, by category."""
    return {
        "bytes": layout.nbytes,
        **scope_summary(layout.scope, counted(problem)),
        **assumed_summary(problem.basis),
        "on_device": _on_device(problem),
        "regions": [
            {
                "kind": str(region.kind),
                "start": region.start,
                "bytes": region.nbytes,
                "entries": [
                    {"name": entry.name, "offset": entry.offset, "bytes": entry.nbytes}
                    for entry in region.entries
                ],
            }
            for region in layout.regions
        ],
    }


def report_summary(plan: Plan, report: Report) -> dict[str, Any]:
    """The validator's findings on `plan`."""
    return {
        "valid": report.valid,
        "arena_bytes": plan.arena_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "total_bytes": plan.total_bytes,
        "lower_bound_bytes": plan.bound.nbytes,
        "optimal": report.valid and is_optimal(plan),
        **claim_summary(plan.problem),
        "replayed": report.replayed,
        "unchecked": list(report.unchecked),
        "counts": {rule.name.lower(): count for rule, count in report.counts.items()},
        "violations": [
            {
                "rule": violation.rule.name.lower(),
                "buffers": list(violation.buffers),
                "steps": violation.steps,
                "bytes": violation.byte_range,
                "message": violation.message,
            }
            for violation in report.violations
        ],
    }
