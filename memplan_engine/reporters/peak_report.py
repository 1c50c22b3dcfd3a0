"""What is live at a step: one sentence, a tree as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from rich.table import Column, Table

from memplan_engine.analysis.buffer_names import short_name
from memplan_engine.analysis.claims import doubt, holds_at_least
from memplan_engine.analysis.peak import Peak
from memplan_engine.analysis.peak_parts import Part, peak_parts
from memplan_engine.analysis.peak_tree import Node
from memplan_engine.problem import Problem
from memplan_engine.reporters.rich_tables import MOST_ROWS, make_table, numbers
from memplan_engine.scope import Scope
from memplan_engine.units import format_bytes, format_percent, format_signed
from memplan_engine.verdict import Reason

INDENT = "  "
PEAK_OF = {
    Scope.GRAPH: "Graph peak",
    Scope.WITH_TEMPORARIES: "Graph peak",
    Scope.WITH_KERNELS: "Graph peak",
    Scope.EAGER: "Recorded peak",
    Scope.PART: "Most in the recorded part of a run:",
    Scope.PREDICTED: "Predicted eager peak",
    Scope.PREDICTED_WITH_KERNELS: "Predicted eager peak",
    Scope.UNCOMPILED: "Predicted eager peak",
    Scope.UNCOMPILED_WITH_KERNELS: "Predicted eager peak",
    Scope.BUFFERS: "Peak",
}
"""What the peak is of: the storages of a graph, what a run allocated, or a list."""
CSV_HEADER = ("path", "name", "bytes", "share", "module", "source")


def headline(contents: Peak, problem: Problem, is_peak: bool = True) -> str:
    """One sentence: "Graph peak 51 MiB at h.0.mlp.act · mul.2 (step 44): h.0.mlp 48 MiB (94 %),
    activations.py:66; h.0 · add 3 MiB (6 %)", of another step "12 MiB live at …"."""
    step = f"step {contents.step:,}"
    at = f"{short_name(contents.op_label)} ({step})" if contents.op_label else step
    parts = [part_words(part, contents.nbytes) for part in peak_parts(contents, problem)]
    made_of = f": {'; '.join(parts)}" if parts else ""
    live = format_bytes(contents.nbytes)
    live = "at least " * holds_at_least(problem) + live
    of_what = PEAK_OF[problem.scope] + " of a compiled run" * (doubt(problem) is Reason.COMPILED)
    return f"{f'{of_what} {live}' if is_peak else f'{live} live'} at {at}{made_of}"


def difference_headline(there: Peak, base: Peak) -> str:
    """One sentence about two steps: "Step 118 holds 36 MiB more than step 325: 51 MiB, not 15.05 MiB"."""
    change = there.nbytes - base.nbytes
    if not change:
        return f"Step {there.step:,} holds as much as step {base.step:,}: {format_bytes(there.nbytes)}"
    held = f"{format_bytes(abs(change))} {'less' if change < 0 else 'more'}"
    sizes = f"{format_bytes(there.nbytes)}, not {format_bytes(base.nbytes)}"
    return f"Step {there.step:,} holds {held} than step {base.step:,}: {sizes}"


def part_words(part: Part, total: int) -> str:
    """ "h.*.mlp in 12 layers 36 MiB (92 %), modeling_gpt2.py:221"."""
    layers = f" in {part.layers} layers" if part.layers > 1 else ""
    share = round(100 * part.nbytes / total) if total else 0
    mostly = "mostly " * (part.line_bytes < part.nbytes)
    line = f", {mostly}{part.line}" if part.line and part.line not in part.label else ""
    return f"{short_name(part.label)}{layers} {format_bytes(part.nbytes)} ({share} %){line}"


def tree_table(tree: Node, title: str, every_row: bool = False, signed: bool = False) -> Table:
    """The groups, indented, with their bytes and shares of all; `signed` bytes alone for a difference.
    MOST_ROWS rows unless `every_row`."""
    total = tree.nbytes
    rows = []
    for depth, node in _walk(tree):
        figures = [format_bytes(node.nbytes), format_percent(node.nbytes / total) if total else ""]
        if signed:
            figures = [format_signed(node.nbytes)]
        source = str(node.contributor.provenance.source or "") if node.contributor else ""
        rows.append((INDENT * depth + node.label, *figures, source))
    shown = rows if every_row else rows[:MOST_ROWS]
    rest = (f"and {len(rows) - len(shown):,} more rows (--all)",) if len(shown) < len(rows) else ()
    figures_of = ("change",) if signed else ("bytes", "share")
    columns = (Column("what is live", overflow="fold"), *numbers(*figures_of), "source")
    return make_table(columns, shown, title, rest)


def tree_facts(tree: Node) -> dict[str, Any]:
    """The tree for machines: exact bytes."""
    facts: dict[str, Any] = {"label": tree.label, "bytes": tree.nbytes}
    if tree.contributor is not None:
        return {**facts, "name": tree.contributor.name}
    return {**facts, "children": [tree_facts(child) for child in tree.children]}


def tree_csv(tree: Node) -> str:
    """A line for each that is live, with the path of its groups, its name in the graph and its bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for path, leaf in _leaves(tree, ()):
        part = leaf.contributor
        assert part is not None
        share = f"{leaf.nbytes / tree.nbytes:.6f}" if tree.nbytes else ""
        provenance = part.provenance
        writer.writerow(
            ("/".join(path), part.name, leaf.nbytes, share, provenance.module, str(provenance.source or ""))
        )
    return text.getvalue()


def _walk(tree: Node, depth: int = 0) -> Iterator[tuple[int, Node]]:
    for child in tree.children:
        yield depth, child
        yield from _walk(child, depth + 1)


def _leaves(tree: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    for child in tree.children:
        if child.contributor is not None:
            yield (*path, child.label), child
        else:
            yield from _leaves(child, (*path, child.label))
