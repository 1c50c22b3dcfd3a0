"""What kernels noted while they planned, as the columns of a replay: holes, shared objects, a search tree.

The tree is that of `exact` on a small problem: its own kernel, asked for the bound and then for more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive.place import MOST
from memplan_engine.kernels.constructive.trace import BUFFER, FITTING, LISTED, SEEN, TAKEN, Trace
from memplan_engine.kernels.exact import branch
from memplan_engine.kernels.exact import tree_trace as noted
from memplan_engine.kernels.exact.branch_state import NEVER
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.replay import pseudo_code as code
from memplan_engine.replay.replay_values import (
    NOBODY,
    PLACING,
    ROOT,
    STATES,
    CandidateState,
    Family,
    Holes,
    Kind,
    Node,
    Objects,
    Outcome,
    Tree,
)
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.exact.exact_search import Exact
from memplan_engine.strategies.exact.independent_parts import (
    MOST_RAISES,
    Columns,
    independent,
    make_columns,
    priorities,
)
from memplan_engine.units import format_bytes

NO_END = -1


def read_holes(trace: Trace, size: Ints, fits: CandidateState, above: CandidateState) -> Holes:
    """The holes of all steps; `size` is that of each buffer, bytes.

    `fits` is the state of a hole with room that was not taken, `above` that of the one without an end.
    """
    first, step, is_taken, rows = _listed(trace)
    more, possible = _counts(trace, first)
    kept = is_taken | ~_inside_another(step, rows[:, 0], rows[:, 1])
    step, is_taken, rows = step[kept], is_taken[kept], rows[kept]
    first = np.searchsorted(step, np.arange(len(first)))
    low, high, offset = (rows[:, column] for column in range(3))
    needed = size[trace.steps[: trace.begun[0], BUFFER]][step]
    short = np.maximum(0, offset - (high - needed))
    as_tight = (high - low == _of_taken(high - low, is_taken, step)) & (fits is CandidateState.NOT_TIGHTEST)
    state = np.select(
        [is_taken, short > 0, high == MOST, as_tight],
        [
            STATES.index(state)
            for state in (CandidateState.TAKEN, CandidateState.TOO_SMALL, above, CandidateState.NOT_LOWEST)
        ],
        STATES.index(fits),
    )
    columns = (first, more, possible, low, np.where(high == MOST, NO_END, high), offset, short, state)
    return Holes(*(frozen(column) for column in columns))


def read_objects(trace: Trace, size: Ints, smaller: CandidateState, enough: CandidateState) -> Objects:
    """The shared objects of all steps; `size` is that of each buffer, bytes.

    `smaller` and `enough` are the states of one that was free and not taken, by whether it is smaller than
    the buffer.
    """
    first, step, is_taken, rows = _listed(trace)
    number, nbytes, value, free = (rows[:, column] for column in range(4))
    needed = size[trace.steps[: trace.begun[0], BUFFER]][step]
    equal = value == _of_taken(value, is_taken, step)
    state = np.select(
        [is_taken, free == 0, equal, nbytes < needed],
        [
            STATES.index(state)
            for state in (CandidateState.TAKEN, CandidateState.IN_USE, CandidateState.NO_BETTER, smaller)
        ],
        STATES.index(enough),
    )
    more, possible = _counts(trace, first)
    columns = (first, more, possible, number, nbytes, value, state)
    return Objects(*(frozen(column) for column in columns))


def frozen(column: Ints) -> Ints:
    """A read-only int64 column of its own."""
    own = np.array(column, dtype=np.int64)
    own.flags.writeable = False
    return own


def _listed(trace: Trace) -> tuple[Ints, Ints, NDArray[np.bool_], Ints]:
    """Where the rows of each step begin, and for each row its step, whether it was taken, and its numbers."""
    count = int(trace.begun[0])
    steps, listed = trace.steps[:count], trace.listed[:count]
    rows = np.minimum(steps[:, SEEN], LISTED)
    # Taken as the last of more than there is room for: it stands there twice.
    last = listed[:, LISTED - 1]
    full = (steps[:, SEEN] >= LISTED) & (steps[:, TAKEN] == LISTED - 2)
    rows = rows - (full & (last == listed[:, LISTED - 2]).all(axis=1))
    first = np.concatenate([[0], np.cumsum(rows)])
    step = np.repeat(np.arange(count), rows)
    place = np.arange(len(step)) - first[step]
    return first, step, steps[step, TAKEN] == place, listed[step, place]


def _inside_another(step: Ints, low: Ints, high: Ints) -> NDArray[np.bool_]:
    """Which rows lie within another row of their step, or say what the next says again.

    A neighbour that meets several pieces of a buffer with gaps ends a hole once for each, and only the
    outermost is one; the others never have room. In a step, neither `low` nor `high` falls from row to row:
    what lies within another row shares a side with it.
    """
    if not len(step):
        return np.zeros(0, dtype=np.bool_)
    same_step = step[1:] == step[:-1]
    same_low, same_high = same_step & (low[1:] == low[:-1]), same_step & (high[1:] == high[:-1])
    of_low, of_high = (np.concatenate([[0], np.cumsum(~same)]) for same in (same_low, same_high))
    top = high[np.append(np.flatnonzero(~same_low), len(step) - 1)][of_low]
    bottom = low[np.append(0, np.flatnonzero(~same_high) + 1)][of_high]
    again = np.append(same_low & same_high, False)
    inside: NDArray[np.bool_] = (high < top) | (low > bottom) | again
    return inside


def _of_taken(value: Ints, is_taken: NDArray[np.bool_], step: Ints) -> Ints:
    """For each row the `value` of the row that its step took; −1 where it took none."""
    of_step = np.full(int(step.max(initial=-1)) + 1, -1, dtype=np.int64)
    of_step[step[is_taken]] = value[is_taken]
    return of_step[step]


def _counts(trace: Trace, first: Ints) -> tuple[Ints, Ints]:
    steps = trace.steps[: trace.begun[0]]
    return steps[:, SEEN] - np.diff(first), steps[:, FITTING]


RULE = branch.FEWEST_WAYS
"""With the longest first: one of the branching rules that the whole search races."""
MOST_BUFFERS = 20
MOST_NODES = 5_000
"""At one capacity: a larger tree is none that people look at."""
SLOTS = 2**14

_KINDS = {
    branch.PLACE: Kind.PLACE,
    branch.FORCED: Kind.FORCED,
    branch.LIFT: Kind.LIFT,
    noted.ROOT: Kind.ROOT,
}
_OUTCOMES = {
    noted.BRANCHED: Outcome.BRANCHED,
    noted.FULL: Outcome.TOO_FULL,
    noted.LATE: Outcome.PAST_LATEST,
    noted.NOTHING_BELOW: Outcome.NOTHING_BELOW,
    noted.KNOWN: Outcome.REFUTED_BEFORE,
}
_LINES = {
    Outcome.TOO_FULL: code.TREE_FULL,
    Outcome.PAST_LATEST: code.TREE_FULL,
    Outcome.EXCHANGED: code.TREE_FULL,
    Outcome.NOTHING_BELOW: code.TREE_MAY_REST,
    Outcome.REFUTED_BEFORE: code.TREE_KNOWN,
    Outcome.SOLVED: code.TREE_SOLVED,
}
_DECISIONS = {
    Kind.ROOT: code.TREE_ROOT,
    Kind.PLACE: code.TREE_PLACE,
    Kind.FORCED: code.TREE_PLACE,
    Kind.LIFT: code.TREE_LIFT,
}


@dataclass(frozen=True, slots=True)
class _Part:
    """An independent part of a problem at a capacity in bytes. `own`: its buffers in the kernel's order.
    `slack`: what the topmost unit of an arena may hold that nobody needs, bytes."""

    problem: Problem
    columns: Columns
    own: Ints
    slack: int
    capacity: int

    def step_of(self, column: int) -> int:
        """The first step at which all buffers of a column are live; −1 for none."""
        if column < 0:
            return -1
        part = self.columns.part
        members = part.members[part.members_of[column] : part.members_of[column + 1]]
        return int(self.problem.start[self.own[members]].max())


def record_search(strategy: Exact, problem: Problem, limits: SolveLimits) -> Replay:
    """Each independent part in turn, at the lower bound (or the strategy's capacity) and then at the next
    arena that there can be, until it fits.

    Of the searches that `exact` races, which differ in their branching rules, it is the first one. Columns of
    a replay have one value a node here.

    Raises
    ------
    PlanError: more than MOST_BUFFERS buffers, gaps in which a buffer needs some of its bytes (searches take
    them for full and proofs for empty, so that there is no one tree), or more than MOST_NODES nodes.
    """
    _check(problem)
    bound = lower_bound(problem)
    capacity = max(bound.nbytes, strategy.capacity or 0)
    offsets = np.where(problem.fixed != FREE, problem.fixed, 0)
    nodes: list[Node] = []
    for members in independent(problem):
        columns = make_columns(select(problem, members))
        own = members[columns.rows]
        slack = int((columns.part.size * columns.unit - problem.size[own]).max(initial=0))
        while len(own):
            fits, low, trace = _search(columns, capacity, problem.name)
            _add_nodes(nodes, _Part(problem, columns, own, slack, capacity), trace, fits)
            if fits:
                offsets[own] = low * columns.unit
                break
            capacity = (capacity // columns.step + 1) * columns.step
            first, last = int(problem.start[members].min()), int(problem.end[members].max())
            core = tuple(np.sort(members).tolist())
            bound = Bound(capacity, BoundKind.CORE, first, core=core, until=last)
    plan = replace(adopt(problem, offsets, strategy.name), bound=bound)
    return _replay(plan, tuple(nodes))


def _check(problem: Problem) -> None:
    name = problem.name
    if len(problem) > MOST_BUFFERS:
        raise PlanError(
            f"{name}: {len(problem):,} buffers, and a replay of exact shows {MOST_BUFFERS} at most"
        )
    if any(gap.low < gap.high for gaps in problem.gaps.values() for gap in gaps):
        raise PlanError(
            f"{name}: a replay of exact shows no buffers with gaps in which some bytes are needed"
        )


def _search(columns: Columns, capacity: int, name: str) -> tuple[bool, Ints, noted.TreeTrace]:
    trace = noted.make_tree_trace(MOST_NODES)
    outcome, low, _ = branch.branch(
        columns.within(capacity),
        columns.lows,
        RULE,
        priorities(columns, "length"),
        MOST_RAISES[0],
        MOST_NODES,
        np.zeros(SLOTS, dtype=np.uint64),
        np.zeros(8, dtype=np.int64),
        np.zeros(1, dtype=np.bool_),
        trace,
    )
    if outcome == branch.UNDECIDED:
        message = f"{name}: the search tree at {format_bytes(capacity)} has more than {MOST_NODES:,} nodes"
        raise PlanError(f"{message}, too many to be shown")
    return outcome == branch.FITS, low, trace


def _add_nodes(nodes: list[Node], part: _Part, trace: noted.TreeTrace, fits: bool) -> None:
    """Add the nodes of one search; its root follows from the latest solution of another part."""
    solutions = (node.number for node in reversed(nodes) if node.outcome is Outcome.SOLVED)
    parent_of_root = next(solutions, ROOT)
    # The node in whose state each branching of the path was made.
    branched: dict[int, int] = {}
    for number, row in enumerate(trace.rows[: trace.begun[0]].tolist(), len(nodes)):
        frame, kind = row[noted.FRAME], _KINDS[row[noted.DECISION]]
        if kind is Kind.ROOT:
            parent = parent_of_root
        elif kind is Kind.LIFT:
            parent = branched[frame]
        else:
            parent = branched[frame] = number - 1
        depth = nodes[parent].depth + 1 if parent != ROOT else 0
        nodes.append(_node(part, row, kind, (number, parent, depth)))
    if fits:
        nodes[-1] = replace(nodes[-1], outcome=Outcome.SOLVED)


def _node(part: _Part, row: list[int], kind: Kind, place: tuple[int, int, int]) -> Node:
    """The node at `place` (its number, its parent's, its depth), with its units turned into bytes."""
    _, _, who, low, outcome, end, column, blocked, stretches = row
    unit, result = part.columns.unit, _OUTCOMES[outcome]
    buffer, offset = (int(part.own[who]), low * unit) if who >= 0 else (NOBODY, 0)
    bound = end * unit - part.slack
    if result is Outcome.PAST_LATEST and end >= NEVER:
        # What could only rest on the buffer that was just placed: nothing is lost without it.
        bound, result = part.capacity + 1, Outcome.EXCHANGED
    elif result in (Outcome.TOO_FULL, Outcome.PAST_LATEST, Outcome.NOTHING_BELOW):
        bound = max(bound, part.capacity + 1)
    return Node(
        *place,
        kind=kind,
        buffer=buffer,
        offset=offset,
        bound=bound,
        outcome=result,
        capacity=part.capacity,
        step=part.step_of(column),
        blocked=int(part.own[blocked]) if blocked >= 0 else NOBODY,
        independent=stretches,
    )


def _replay(plan: Plan, tree: Tree) -> Replay:
    size = plan.problem.size
    # The arena at each node and the bytes that are not placed there, behind those of no node: ROOT is −1.
    arena, left = np.zeros((2, len(tree) + 1), dtype=np.int64)
    left[ROOT] = size.sum()
    for node in tree:
        arena[node.number], left[node.number] = arena[node.parent], left[node.parent]
        if node.kind in PLACING and size[node.buffer]:
            arena[node.number] = max(arena[node.parent], node.offset + size[node.buffer])
            left[node.number] -= size[node.buffer]
    lines = [_LINES.get(node.outcome, _DECISIONS[node.kind]) for node in tree]
    return Replay(
        plan,
        Family.TREE,
        None,
        buffer=frozen(np.array([node.buffer for node in tree])),
        offset=frozen(np.array([node.offset for node in tree])),
        arena=frozen(arena[:-1]),
        bytes_left=frozen(left[:-1]),
        moved=frozen(np.full(len(tree), NOBODY)),
        moved_to=frozen(np.zeros(len(tree), dtype=np.int64)),
        line=frozen(np.array(lines)),
        code=code.BRANCH_AND_BOUND,
        keys=(),
        tree=tree,
    )
