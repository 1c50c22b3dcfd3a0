"""The search tree of `exact` on a small problem: its own kernel, asked for the bound and then for more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.errors import PlanError
from memplan_engine.kernels.exact import branch
from memplan_engine.kernels.exact import tree_trace as noted
from memplan_engine.kernels.exact.branch_state import NEVER
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.replay import pseudo_code as code
from memplan_engine.replay.recorded import frozen
from memplan_engine.replay.replay_values import NOBODY, PLACING, ROOT, Family, Kind, Node, Outcome, Tree
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies.exact.exact_search import Exact
from memplan_engine.strategies.exact.independent_parts import (
    MOST_RAISES,
    Columns,
    independent,
    make_columns,
    priorities,
)
from memplan_engine.units import format_bytes

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
        """The first step at which all buffers of a column are alive; −1 for none."""
        if column < 0:
            return -1
        part = self.columns.part
        members = part.members[part.members_of[column] : part.members_of[column + 1]]
        return int(self.problem.start[self.own[members]].max())


def record_search(strategy: Exact, problem: Problem) -> Replay:
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
        told = f"{name}: the search tree at {format_bytes(capacity)} has more than {MOST_NODES:,} nodes"
        raise PlanError(f"{told}, too many to be shown")
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
