"""What a graph says of itself, what reuse saves in it, and what its kernels take, as Rich tables for people
and as plain values for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.buffer_names import names_of_ops, tensor_names
from memplan_engine.analysis.claims import remarks_on
from memplan_engine.analysis.managed_values import ManagedValue, Reason, summarise
from memplan_engine.calibration.kernel_table import Calibration, Formula
from memplan_engine.errors import one_line
from memplan_engine.fx_estimator.fx_estimates import COUNTED
from memplan_engine.graph import Graph
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    in_graph,
    make_table,
    more,
    named,
    numbers,
    plain_text,
)
from memplan_engine.rewrites import reuse
from memplan_engine.scope import Scope, assumed_summary, scope_summary, scope_words
from memplan_engine.units import count_of, format_bytes, format_percent

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import EstimateEntry

MANAGED = "the graph's storages, one by one; temporaries inside ops have no value of their own"
UNLISTED = (Reason.CONSTANT, Reason.GRAPH_INPUT, Reason.ALIAS)


def _counted(graph: Graph, words: str) -> str:
    """Return `words` on what figures of `graph` count, with the remarks on them."""
    return "; ".join((words, *remarks_on(graph.basis, graph.symbols)))


def values_summary(graph: Graph, values: Sequence[ManagedValue]) -> dict[str, Any]:
    """Every value with its reason, and what stays outside a plan by reason; bytes."""
    return {
        **scope_summary(Scope.GRAPH, _counted(graph, MANAGED)),
        "managed": sum(value.managed for value in values),
        "managed_bytes": sum(value.nbytes for value in values if value.managed),
        "outside": [
            {"reason": part.reason.name.lower(), "storages": part.storages, "bytes": part.nbytes}
            for part in summarise(values)
        ],
        "values": [
            {
                "tensor": value.tensor,
                "managed": value.managed,
                "reason": value.reason.name.lower(),
                "bytes": value.nbytes,
                "explanation": value.explanation,
            }
            for value in values
        ],
    }


def values_tables(graph: Graph, values: Sequence[ManagedValue], every_row: bool) -> list[RenderableType]:
    """Reasons with their counts, then the values that are not managed, largest first; inputs, constants and
    aliases, whose reasons need no list, only when `every_row`."""
    managed = [value for value in values if value.managed]
    size = format_bytes(sum(value.nbytes for value in managed))
    title = f"{graph.name}: {len(managed)} of {len(values)} values can be planned, {size}"
    by_reason = {reason: [value.nbytes for value in values if value.reason is reason] for reason in Reason}
    reasons = make_table(
        ("reason", *numbers("values", "bytes")),
        ((reason, f"{len(own):,}", format_bytes(sum(own))) for reason, own in by_reason.items() if own),
        title,
    )
    listed = [v for v in values if not v.managed and (every_row or v.reason not in UNLISTED)]
    unplanned = sorted(listed, key=lambda value: -value.nbytes)
    shown = unplanned if every_row else unplanned[:MOST_ROWS]
    labels = tensor_names(graph)
    rows = (
        (
            *named(labels.get(value.tensor, value.tensor), value.tensor),
            value.explanation,
            format_bytes(value.nbytes),
        )
        for value in shown
    )
    columns = ("not planned", *in_graph(), "why", *numbers("size"))
    listing = make_table(columns, rows, rest=more(unplanned, shown))
    return [reasons, *([listing] if unplanned else []), plain_text(f"counted: {_counted(graph, MANAGED)}")]


def estimates_table(title: str, estimates: Sequence[EstimateEntry]) -> Table:
    """A row a rule: forward peak, baseline and backward peak."""
    headings = ("forward peak", "baseline", "backward peak", "peak", "bytes")
    columns = ("aliasing rule", "unused values", *numbers(*headings))
    rows = []
    for estimate in estimates:
        sizes = (estimate.forward_peak, estimate.baseline, estimate.backward_peak, estimate.peak)
        rows.append((estimate.rule, estimate.unread, *map(format_bytes, sizes), f"{estimate.peak:,}"))
    return make_table(columns, rows, title, caption=f"counted: {COUNTED}")


def reuse_summary(rows: Sequence[reuse.Saving]) -> dict[str, Any]:
    """The ways with what they need, the ops rewritten by both together, and those left as they were."""
    both = rows[-1].reused
    graph = both.graph
    return {
        **scope_summary(graph.scope, _counted(graph, scope_words(graph.scope))),
        **assumed_summary(graph.basis),
        "ways": reuse.savings_table(tuple(rows)),
        "rewritten": reuse.rewrites_table(both),
        "kept": reuse.kept_table(both),
    }


def reuse_tables(graph: str, rows: Sequence[reuse.Saving], every_row: bool = False) -> list[RenderableType]:
    """A row a way, then what both together rewrite, then the reasons for what they leave."""
    both = rows[-1].reused
    words = _counted(both.graph, scope_words(both.graph.scope))
    counts = plain_text(f"counted in the peak: {words}; the arena holds storages only")
    return [
        _savings_table(graph, rows),
        counts,
        _rewrites(both.graph, reuse.rewrites_table(both), every_row),
        _reasons_kept(rows[-1]),
    ]


def _savings_table(graph: str, rows: Sequence[reuse.Saving]) -> Table:
    first = rows[0].arena
    cells = (
        (
            row.name,
            format_bytes(row.arena),
            format_percent(1 - row.arena / first) if first else "",
            format_bytes(row.bound),
            format_bytes(row.peak),
            f"{row.ops:,}" if row.ops else "",
        )
        for row in rows
    )
    return make_table(("way", *numbers("arena", "saved", "lower bound", "peak", "ops")), cells, graph)


def _rewrites(graph: Graph, rewrites: Sequence[dict[str, Any]], every_row: bool) -> Table:
    shown = rewrites if every_row else rewrites[:MOST_ROWS]
    ops, tensors = names_of_ops(graph), tensor_names(graph)
    rows = []
    for row in shown:
        told = {key: tensors.get(row[key], row[key]) for key in ("tensor", "output")}
        places = tenant_and_home(row | told)
        op = named(ops[row["op"]], row["op"])
        rows.append((*op, row["kind"], row["way"], *places, format_bytes(row["bytes"])))
    columns = ("op rewritten", *in_graph(), "kind", "way", "tensor", "stored in", *numbers("size"))
    return make_table(columns, rows, rest=more(rewrites, shown))


def tenant_and_home(row: dict[str, Any]) -> tuple[str, str]:
    """Which tensor no longer has bytes of its own, and in whose it lives."""
    if row["way"] == "concat":
        return str(row["tensor"]), f"{row['output']}, from byte {row['at']:,}"
    return str(row["output"]), str(row["tensor"])


def _reasons_kept(row: reuse.Saving) -> Table:
    rows = ((reason, f"{count:,}") for reason, count in reuse.reasons(row.reused).items())
    return make_table(("not rewritten because", *numbers("ops")), rows)


def formula_text(sums: Sequence[Mapping[str, int]]) -> str:
    """ "max(x16 + w16, 2·y − made)"; "0" for nothing."""
    parts = [_sum_text(each) for each in sums]
    return f"max({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0"


def _sum_text(each: Mapping[str, int]) -> str:
    words = [
        f"{'−' if factor < 0 else '+'} {f'{abs(factor)}·' if abs(factor) > 1 else ''}{name}"
        for name, factor in each.items()
    ]
    return " ".join(words).removeprefix("+ ")


def calibration_summary(calibration: Calibration, failed: Mapping[str, str]) -> dict[str, Any]:
    """The machine, the formulas, errors as shares of all that an op holds, how many calls were measured
    themselves, and which could not be, with the reason."""
    machine = calibration.machine
    return {
        "torch": machine.torch,
        "threads": machine.threads,
        "capability": machine.capability,
        "processor": machine.processor,
        "calls": len(calibration.calls),
        "not_measured": dict(failed),
        "formulas": [
            {
                "kind": each.kind,
                "regime": each.regime,
                "formula": formula_text(each.sums),
                "samples": each.samples,
                "held_out": each.judged,
                "mean_error": each.mean_error,
                "error_95": each.error,
                "worst_error": each.worst_error,
            }
            for each in calibration.formulas
        ],
    }


def calibration_tables(
    calibration: Calibration, failed: Mapping[str, str], all_rows: bool
) -> list[RenderableType]:
    """The formulas of kernels that take anything, the least certain first, and calls measured themselves."""
    taking = [each for each in calibration.formulas if each.sums or each.worst_error > 0]
    taking.sort(key=lambda each: (-(each.error or each.worst_error), each.kind, each.regime))
    shown = taking if all_rows else taking[:MOST_ROWS]
    machine = calibration.machine
    title = f"torch {machine.torch}, {count_of(machine.threads, 'thread')}, {machine.capability}"
    columns = ("kernel", "regime", "takes", *numbers("samples", "mean error", "95 % within", "worst"))
    none = len(calibration.formulas) - len(taking)
    words = [
        f"{len(taking)} formulas, {none} kernels that take nothing; errors are of samples held out, as "
        "shares of all that an op holds"
    ]
    if calibration.calls or failed:
        words.append(f"{count_of(len(calibration.calls), 'call')} measured themselves")
    words += [f"not measured: {one_line(text, 200)}: {why}" for text, why in failed.items()]
    return [
        make_table(columns, (_row(each) for each in shown), title),
        *(plain_text(each) for each in words),
    ]


def _row(each: Formula) -> tuple[str, ...]:
    within = "" if each.error is None else format_percent(each.error)
    errors = (format_percent(each.mean_error), within, format_percent(each.worst_error))
    return each.kind, each.regime, formula_text(each.sums), f"{each.samples:,}", *errors
