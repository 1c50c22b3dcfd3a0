"""A replay as tables for people: all decisions, or one of them in detail."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.problem import FREE, cut
from memplan_engine.replay.replay_values import Hole, SharedObject, Step
from memplan_engine.replay.steps import Replay
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.reporters.rich_tables import (
    MOST_ROWS,
    in_graph,
    label_table,
    make_table,
    named,
    numbers,
    plain_text,
)
from memplan_engine.units import exact, format_bytes, format_percent, format_span


def replay_tables(replay: Replay, every_row: bool = False) -> list[RenderableType]:
    """A row a decision; MOST_ROWS rows unless `every_row`."""
    plan, shown = replay.plan, len(replay) if every_row else min(len(replay), MOST_ROWS)
    over = "none" if plan.optimal else format_percent(plan.gap)
    count = f"{len(replay):,} {'nodes' if replay.tree else 'decisions'}"
    title = f"{replay.problem.name}: {plan.strategy}, {count}, {format_bytes(plan.arena_bytes)}, gap {over}"
    make = _nodes if replay.tree else _decisions
    table = make(replay, shown, title)
    parts: list[RenderableType] = [table]
    if shown < len(replay):
        parts.append(plain_text(f"and {len(replay) - shown:,} more (--all shows them)", style="dim"))
    return [*parts, *counted_lines(replay.problem)]


def _decisions(replay: Replay, shown: int, title: str) -> Table:
    key = replay.keys[0].name if replay.keys else "order"
    by_size, labels = key == "size", replay.labels
    headings = ("size", *(() if by_size else (key,)), "offset")
    columns = ("no.", "buffer", *in_graph(), *numbers(*headings), "because", *numbers("arena"))
    rows = (
        (
            f"{number + 1:,}",
            *named(labels[step.buffer], step.name),
            format_bytes(int(replay.problem.size[step.buffer])),
            *(() if by_size else (replay.keys[0].words(step.buffer) if replay.keys else "",)),
            format_bytes(step.offset),
            _because(step),
            format_bytes(step.arena_after),
        )
        for number, step in zip(range(shown), replay.steps, strict=False)
    )
    return make_table(columns, rows, title)


def _because(step: Step) -> str:
    """A few words: the hole, the object, or what else decided."""
    if step.object is not None:
        joined = step.joined
        return f"joins object {joined.number}" if joined else f"new object {step.object}"
    if step.moved is not None:
        mover, to = step.moved
        return f"in the place of {step.replay.labels[mover]}, which moves to {format_bytes(to)}"
    if step.replay.problem.fixed[step.buffer] != FREE:
        return "fixed offset"
    if step.hole is None:
        empty = not step.replay.problem.size[step.buffer]
        return "no bytes" if empty else "behind everything"
    if step.hole.size is None:
        return "top of stack"
    return f"hole of {format_bytes(step.hole.size)} at {format_bytes(step.hole.low)}"


def _nodes(replay: Replay, shown: int, title: str) -> Table:
    rows = []
    for number in range(shown):
        step = replay.steps[number]
        node = step.node
        assert node is not None
        decision = f"{node.kind} {step.label} at {format_bytes(node.offset)}" if step.name else str(node.kind)
        cells = (
            f"{number + 1:,}",
            f"{node.parent + 1:,}" if node.parent >= 0 else "",
            "  " * min(node.depth, 20) + decision,
            format_bytes(node.capacity),
            format_bytes(node.bound),
            str(node.outcome),
        )
        rows.append(cells)
    columns = ("no.", *numbers("parent"), "decision", *numbers("capacity", "bound"), "outcome")
    return make_table(columns, rows, title)


def step_tables(step: Step) -> list[RenderableType]:
    """One decision: what was looked at, the sentence, and the line of pseudo-code that acted."""
    replay, problem = step.replay, step.replay.problem
    rows = [("decision", f"{step.number + 1:,} of {len(replay):,}, {replay.plan.strategy}")]
    if step.name:
        size, start, end = (int(getattr(problem, key)[step.buffer]) for key in ("size", "start", "end"))
        count = int((cut(problem).owner == step.buffer).sum())
        pieces = f", in {count:,} pieces" if count > 1 else ""
        known = f" ({step.name} in the graph)" if step.name != step.label else ""
        rows += [
            ("buffer", f"{step.label}{known}, {exact(size)}, live in {format_span(start, end)}{pieces}"),
            ("offset", exact(step.offset)),
        ]
    if step.node is not None:
        parent = f"{step.node.parent + 1:,}" if step.node.parent >= 0 else "none"
        rows += [
            ("node", f"{step.node.kind}, parent {parent}"),
            ("capacity", exact(step.node.capacity)),
            ("bound", exact(step.node.bound)),
            ("outcome", str(step.node.outcome)),
        ]
    else:
        rows += [
            ("arena", f"{exact(step.arena_after)} of {exact(replay.plan.arena_bytes)} in the end"),
            ("still to come", exact(step.bytes_left)),
        ]
    parts: list[RenderableType] = [label_table(rows), *_candidates(step), plain_text(step.sentence)]
    for number, line in enumerate(replay.code):
        mark = "▸" if number == step.line else " "
        parts.append(plain_text(f"{mark} {line}", style="bold" if number == step.line else "dim"))
    return parts


def _candidates(step: Step) -> list[RenderableType]:
    rows = step.holes or step.objects
    if not rows:
        return []
    columns = ("hole at" if step.holes else "object", *numbers("size"), "verdict")
    rest = (f"and {step.more:,} more",) if step.more else ()
    return [make_table(columns, map(_row, rows), rest=rest)]


def _row(candidate: Hole | SharedObject) -> tuple[str, str, str]:
    if isinstance(candidate, SharedObject):
        return f"{candidate.number:,}", format_bytes(candidate.size), candidate.reason
    size = "top of stack" if candidate.size is None else format_bytes(candidate.size)
    return format_bytes(candidate.low), size, candidate.reason
