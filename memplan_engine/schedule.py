"""Which ops run at which step: one after another, or several at once on parallel streams."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.ordered import draws, has_effect

MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """`step_of_op[i]` is the step at which `graph.ops[i]` runs; steps count from 0 to `steps` − 1."""

    step_of_op: tuple[int, ...]
    steps: int


def sequential(graph: Graph) -> Schedule:
    """One op a step, in the graph's order."""
    return Schedule(tuple(range(len(graph.ops))), len(graph.ops))


def multi_stream(graph: Graph, streams: int) -> Schedule:
    """Ops as soon as their inputs are there, at most `streams` of them at one step.

    AITemplate's simple multi-stream: an op's level is one more than the highest level it depends on; the ops
    of a level are taken in the graph's order, `streams` at a time, one step after another. Beyond theirs, an
    op that writes in place waits for those that read what it overwrites, and ops that draw random numbers or
    are there for an effect keep their order.

    Raises
    ------
    InputError: `streams` below 1.
    """
    if streams < 1:
        raise InputError(graph.name, "streams", str(streams), "1 or more")
    by_level: dict[int, list[int]] = {}
    for op, level in enumerate(_levels(dependencies(graph))):
        by_level.setdefault(level, []).append(op)
    step_of_op = [0] * len(graph.ops)
    steps = 0
    for level in sorted(by_level):
        ops = by_level[level]
        for position, op in enumerate(ops):
            step_of_op[op] = steps + position // streams
        steps += -(-len(ops) // streams)
    return Schedule(tuple(step_of_op), steps)


def by_steps(graph: Graph, steps: Mapping[str, int], source: str = "schedule") -> Schedule:
    """The schedule that a person gives as op name → step; checked.

    Raises
    ------
    InputError: an op without a step, a name that is no op, a step that is negative or passes MOST_STEPS, an
        op that does not run after what it depends on.
    """
    _check_names(graph, steps, source)
    for name, step in steps.items():
        if not 0 <= step < MOST_STEPS:
            raise InputError(source, f"op {name!r}", f"step {step}", f"0 to {MOST_STEPS - 1}")
    schedule = Schedule(tuple(steps[op.name] for op in graph.ops), max(steps.values(), default=-1) + 1)
    return check_schedule(graph, schedule, source)


def in_order_of(graph: Graph, schedule: Schedule, source: str = "schedule") -> Graph:
    """`graph` with its ops in the order of `schedule`.

    Raises
    ------
    InputError: two ops at one step.
    """
    order = sorted(range(len(graph.ops)), key=schedule.step_of_op.__getitem__)
    for one, other in pairwise(order):
        if schedule.step_of_op[one] == schedule.step_of_op[other]:
            found = (
                f"{graph.ops[one].name!r} and {graph.ops[other].name!r} at step {schedule.step_of_op[one]}"
            )
            raise InputError(source, "steps", found, "one op a step: this runs one after another")
    return replace(graph, ops=tuple(graph.ops[index] for index in order))


def moved(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The fewest ops that have to be moved to make the order `after` of the order `before`, as they stand in
    `after`; names that only one of them has do not count. All others stand in the same order in both: a
    longest increasing subsequence of their places, O(n log n)."""
    place = {name: index for index, name in enumerate(before)}
    common = [name for name in after if name in place]
    # Of each length the smallest place that such a subsequence ends with, and where in `common` that is.
    ends: list[int] = []
    at: list[int] = []
    previous: list[int] = []
    for index, name in enumerate(common):
        length = bisect_left(ends, place[name])
        previous.append(at[length - 1] if length else -1)
        ends[length : length + 1], at[length : length + 1] = [place[name]], [index]
    stays, index = set(), at[-1] if at else -1
    while index >= 0:
        stays.add(index)
        index = previous[index]
    return tuple(name for index, name in enumerate(common) if index not in stays)


def moved_ops(before: Graph, after: Graph) -> tuple[str, ...]:
    """`moved` of the ops of two graphs as they stand in them."""
    return moved([op.name for op in before.ops], [op.name for op in after.ops])


def by_streams(graph: Graph, streams: Sequence[Sequence[str]], source: str = "schedule") -> Schedule:
    """The schedule of ops that a person has put on streams: each stream runs its ops in the order given,
    and every op runs as soon as its stream and its inputs let it.

    Raises
    ------
    InputError: an op on no stream or on two, a name that is no op, streams that wait for each other in a
        circle.
    """
    seen: dict[str, None] = {}
    for name in (name for stream in streams for name in stream):
        if name in seen:
            raise InputError(source, f"op {name!r}", "the op twice", "one place on one stream")
        seen[name] = None
    _check_names(graph, seen, source)
    index = {op.name: number for number, op in enumerate(graph.ops)}
    before = [dict.fromkeys(earlier) for earlier in dependencies(graph)]
    for stream in streams:
        for first, second in pairwise(stream):
            before[index[second]][index[first]] = None
    try:
        step_of_op = _levels(before)
    except CycleError as error:
        cycle = " → ".join(graph.ops[op].name for op in error.args[1])
        found = f"streams that wait for each other: {cycle}"
        raise InputError(source, "streams", found, "an assignment without cycles") from None
    return Schedule(tuple(step_of_op), max(step_of_op, default=-1) + 1)


def check_reads(graph: Graph, schedule: Schedule, source: str = "schedule") -> Schedule:
    """Return `schedule` if it has a step for every op and none runs before its inputs are made; raise
    InputError naming both ops. Whether ops that write in place come in order is `check_schedule`'s to say."""
    _check_length(graph, schedule, source)
    maker_of: dict[str, int] = {}
    for index, op in enumerate(graph.ops):
        maker_of |= dict.fromkeys(op.outputs, index)
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        for name in (*op.inputs, *op.mutates):
            maker = maker_of.get(name)
            if maker is not None and schedule.step_of_op[maker] > step:
                raise InputError(
                    source,
                    f"op {op.name!r}",
                    f"step {step}, but {graph.ops[maker].name!r}, which makes its input {name!r}, "
                    f"runs at step {schedule.step_of_op[maker]}",
                    "a step after its inputs are made",
                )
    return schedule


def check_schedule(graph: Graph, schedule: Schedule, source: str = "schedule") -> Schedule:
    """Return `schedule` if every op runs after all that it depends on, and no other op while what is inside
    an op runs; raise InputError naming both ops."""
    _check_length(graph, schedule, source)
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        if not 0 <= step < schedule.steps:
            raise InputError(source, f"op {op.name!r}", f"step {step}", f"below {schedule.steps}, the steps")
    needs = dependencies(graph, apart=False)
    for index, (step, earlier) in enumerate(zip(schedule.step_of_op, needs, strict=True)):
        for other in earlier:
            if schedule.step_of_op[other] >= step:
                raise InputError(
                    source,
                    f"op {graph.ops[index].name!r}",
                    f"step {step}, but {graph.ops[other].name!r}, which it depends on, runs at step "
                    f"{schedule.step_of_op[other]}",
                    "a step after all that it depends on",
                )
    _check_apart(graph, schedule, source)
    return schedule


def _check_apart(graph: Graph, schedule: Schedule, source: str) -> None:
    """Raise InputError for an op that runs while what is inside another one does."""
    inside: dict[str, list[int]] = {}
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        if op.within:
            inside.setdefault(op.within[0][0], []).append(step)
    ends = {op.name: step for op, step in zip(graph.ops, schedule.step_of_op, strict=True)}
    spans = sorted((min(steps), ends[call], call) for call, steps in inside.items())
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        own = op.within[0][0] if op.within else op.name
        for first, last, call in spans[: bisect_right(spans, step, key=lambda span: span[0])][-2:]:
            if call != own and step <= last:
                found = f"step {step}, but {call!r} and what is inside it run at steps {first} to {last}"
                raise InputError(source, f"op {op.name!r}", found, "a step before or after these")


def _check_length(graph: Graph, schedule: Schedule, source: str) -> None:
    found, expected = len(schedule.step_of_op), len(graph.ops)
    if found != expected:
        raise InputError(source, "step_of_op", f"{found} steps", f"{expected}, one for each op")


def _levels(before: Sequence[Iterable[int]]) -> list[int]:
    """The length of the longest chain of dependencies that ends at each op; CycleError for a circle."""
    level = [0] * len(before)
    for op in TopologicalSorter(dict(enumerate(before))).static_order():
        level[op] = 1 + max((level[other] for other in before[op]), default=-1)
    return level


def _check_names(graph: Graph, ops: Iterable[str], source: str) -> None:
    names = {op.name for op in graph.ops}
    unknown = [name for name in ops if name not in names]
    if unknown:
        raise InputError(source, f"op {unknown[0]!r}", "no such op", f"an op of {graph.name}")
    missing = names.difference(ops)
    if missing:
        first = next(op.name for op in graph.ops if op.name in missing)
        raise InputError(source, f"op {first!r}", "no step", "a step for every op")


def dependencies(graph: Graph, *, apart: bool = True) -> list[tuple[int, ...]]:
    """For each op, by index, the ops that run before it in every order; O(ops + reads).

    An op runs after the makers of the tensors that it reads, and after the last op before it that wrote to a
    storage it touches; one that writes, after all that have touched the storage since. An output in a storage
    that the op does not read is a write: the first begins the storage. An op that holds a storage runs after
    its maker. Ops that draw random numbers keep their order, and so do those that are there for an effect.
    What is inside an op runs branch by branch, then the op. Unless `apart` is false, it also stays between
    what stands before and behind it.
    """
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    maker: dict[str, int] = {}
    writer: dict[str, int] = {}
    touched: dict[str, list[int]] = {}
    first: dict[str, int] = {}
    latest: dict[str, int] = {}
    held: dict[str, list[str]] = {}
    for each in graph.storages:
        if each.held_by:
            held.setdefault(each.held_by, []).append(each.name)
    predecessors: list[tuple[int, ...]] = []
    for index, op in enumerate(graph.ops):
        read = {home[name]: None for name in (*op.inputs, *op.mutates)}
        made = {home[name]: None for name in op.outputs}
        written = {home[name]: None for name in op.mutates} | {s: None for s in made if s not in read}
        before = {maker[name]: None for name in (*op.inputs, *op.mutates) if name in maker}
        before |= {first[name]: None for name in held.get(op.name, ()) if name in first}
        for storage in read | made:
            if storage in writer:
                before[writer[storage]] = None
            if storage in written:
                before |= dict.fromkeys(touched.get(storage, ()))
                writer[storage], touched[storage] = index, []
            touched.setdefault(storage, []).append(index)
            first.setdefault(storage, index)
        for chain, belongs in (("random", draws(op, not written)), ("effect", has_effect(op))):
            if belongs:
                if chain in latest:
                    before[latest[chain]] = None
                latest[chain] = index
        maker |= dict.fromkeys(op.outputs, index)
        before.pop(index, None)
        predecessors.append(tuple(before))
    if any(op.within for op in graph.ops):
        return _branch_by_branch(graph, predecessors, apart)
    return predecessors


def _branch_by_branch(
    graph: Graph, predecessors: list[tuple[int, ...]], apart: bool
) -> list[tuple[int, ...]]:
    """Return `predecessors` with those that keep the ops of each branch together: the first ops of a branch
    wait for the last ones of what stands before it, outside of all branches only if these are to be `apart`.
    """
    starts = [0]
    for index in range(1, len(graph.ops)):
        path, before = graph.ops[index].within, graph.ops[index - 1].within
        calls_before = index > 1 and len(graph.ops[index - 2].within) > len(before)
        if path != before or calls_before:
            starts.append(index)
    ordered = list(predecessors)
    ends: list[int] = []
    for begin, end in pairwise([*starts, len(graph.ops)]):
        inner = range(begin, end)
        if not apart and begin and not graph.ops[begin - 1].within:
            ends = []
        waited_for = {other for index in inner for other in predecessors[index]}
        for index in inner:
            if not any(other in inner for other in predecessors[index]):
                ordered[index] = tuple(dict.fromkeys((*predecessors[index], *ends)))
        ends = [index for index in inner if index not in waited_for]
    return ordered
