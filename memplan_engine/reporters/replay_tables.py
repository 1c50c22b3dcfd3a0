"""A replay as tables for people: all decisions, or one of them in detail."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.problem import FREE
from memplan_engine.replay.replay_values import Hole, SharedObject, Step
from memplan_engine.replay.steps import Replay
from memplan_engine.reporters.plan_tables import MOST_ROWS, counted_lines, plain_text
from memplan_engine.units import exact, format_bytes, format_percent


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
    by_size = key == "size"
    table = Table("no.", "buffer", title=plain_text(title), title_justify="left")
    for heading in ("size", *(() if by_size else (key,)), "offset"):
        table.add_column(plain_text(heading), justify="right")
    table.add_column("because")
    table.add_column("arena", justify="right")
    for number in range(shown):
        step = replay.steps[number]
        words = () if by_size else (replay.keys[0].words(step.buffer) if replay.keys else "",)
        table.add_row(
            f"{number + 1:,}",
            plain_text(step.name),
            format_bytes(int(replay.problem.size[step.buffer])),
            *(plain_text(each) for each in words),
            format_bytes(step.offset),
            plain_text(_because(step)),
            format_bytes(step.arena_after),
        )
    return table


def _because(step: Step) -> str:
    """A few words: the hole, the object, or what else decided."""
    if step.object is not None:
        joined = step.joined
        return f"joins object {joined.number}" if joined else f"new object {step.object}"
    if step.moved is not None:
        mover, to = step.moved
        return f"in the place of {step.replay.problem.names[mover]}, which moves to {format_bytes(to)}"
    if step.replay.problem.fixed[step.buffer] != FREE:
        return "fixed offset"
    if step.hole is None:
        empty = not step.replay.problem.size[step.buffer]
        return "no bytes" if empty else "behind everything"
    if step.hole.size is None:
        return "above all that is alive with it"
    return f"hole of {format_bytes(step.hole.size)} at {format_bytes(step.hole.low)}"


def _nodes(replay: Replay, shown: int, title: str) -> Table:
    table = Table("no.", title=plain_text(title), title_justify="left")
    table.add_column("parent", justify="right")
    table.add_column("decision")
    for heading in ("capacity", "bound"):
        table.add_column(heading, justify="right")
    table.add_column("outcome")
    for number in range(shown):
        step = replay.steps[number]
        node = step.node
        assert node is not None
        decision = f"{node.kind} {step.name} at {format_bytes(node.offset)}" if step.name else str(node.kind)
        table.add_row(
            f"{number + 1:,}",
            f"{node.parent + 1:,}" if node.parent >= 0 else "",
            plain_text("  " * min(node.depth, 20) + decision),
            format_bytes(node.capacity),
            format_bytes(node.bound),
            plain_text(node.outcome),
        )
    return table


def step_tables(step: Step) -> list[RenderableType]:
    """One decision: what was looked at, the sentence, and the line of pseudo-code that acted."""
    replay, problem = step.replay, step.replay.problem
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = [("decision", f"{step.number + 1:,} of {len(replay):,}, {replay.plan.strategy}")]
    if step.name:
        size, start, end = (int(getattr(problem, key)[step.buffer]) for key in ("size", "start", "end"))
        rows += [
            ("buffer", f"{step.name}, {exact(size)}, alive in steps {start:,}–{end - 1:,}"),
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
    for label, value in rows:
        table.add_row(label, plain_text(value))
    parts: list[RenderableType] = [table, *_candidates(step), plain_text(step.sentence)]
    for number, line in enumerate(replay.code):
        mark = "▸" if number == step.line else " "
        parts.append(plain_text(f"{mark} {line}", style="bold" if number == step.line else "dim"))
    return parts


def _candidates(step: Step) -> list[RenderableType]:
    rows = step.holes or step.objects
    if not rows:
        return []
    table = Table(*(("hole at",) if step.holes else ("object",)))
    table.add_column("size", justify="right")
    table.add_column("verdict")
    for each in rows:
        table.add_row(*(plain_text(text) for text in _row(each)))
    if step.more:
        table.add_row(plain_text(f"and {step.more:,} more"), "", "", style="dim")
    return [table]


def _row(each: Hole | SharedObject) -> tuple[str, str, str]:
    if isinstance(each, SharedObject):
        return f"{each.number:,}", format_bytes(each.size), each.reason
    size = "no end" if each.size is None else format_bytes(each.size)
    return format_bytes(each.low), size, each.reason
