"""What branch and bound decides and why it turns back, node by node: the tracing twin of `branch`.

As in `trace`, nothing of this is compiled into a search that is not traced.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.exact.branch_state import Part, State
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

FRAME, DECISION, WHO, LOW, OUTCOME, END, CLIQUE, BLOCKED, STRETCHES = range(9)
"""Columns of `TreeTrace.rows`."""
ROOT = 4
"""A decision beside those that `branch` has frames for."""
BRANCHED, FULL, LATE, NOTHING_BELOW, KNOWN = range(5)
"""Outcomes. The last node of a search that fits is the solution."""


class TreeTrace(NamedTuple):
    """`rows`: for each node the depth of the branching that it belongs to, what is decided there, about which
    buffer and at which low (units), the outcome, the least end of all cliques (units), the clique that it
    comes from, the buffer that is past its latest offset (−1 for none), and into how many stretches of
    cliques what is left falls. `begun[0]`: how many nodes there are."""

    rows: Ints
    begun: Ints


def make_tree_trace(nodes: int) -> TreeTrace:
    """The root, and room for a search of at most `nodes` states with at most two ways each."""
    trace = TreeTrace(np.zeros((2 * nodes + 8, 9), dtype=np.int64), np.ones(1, dtype=np.int64))
    trace.rows[0, [DECISION, WHO, CLIQUE, BLOCKED]] = ROOT, -1, -1, -1
    return trace


@kernel
def begin_node(trace: TreeTrace, frame: int, decision: int, who: int, low: int) -> None:
    """What comes now follows from this decision."""
    row = trace.rows[trace.begun[0]]
    row[FRAME], row[DECISION], row[WHO], row[LOW] = frame, decision, who, low
    row[OUTCOME], row[CLIQUE], row[BLOCKED] = BRANCHED, -1, -1
    trace.begun[0] += 1


@kernel
def end_node(trace: TreeTrace, outcome: int) -> None:
    """The search turns back, or is done."""
    trace.rows[trace.begun[0] - 1, OUTCOME] = outcome


@kernel
def note_state(trace: TreeTrace, part: Part, s: State) -> None:
    """What follows from all that is decided: the least end, and the stretches that are left."""
    row = trace.rows[trace.begun[0] - 1]
    if row[DECISION] != ROOT:
        row[LOW] = s.low[row[WHO]]
    row[END], row[STRETCHES], tied = 0, 0, False
    for clique in range(len(part.cap)):
        end = _least_end(part, s, clique)
        if end > row[END]:
            row[END], row[CLIQUE] = end, clique
        if s.unplaced[clique] > 0:
            row[STRETCHES] += not tied
            tied = s.reaching[clique] > 0


@kernel
def note_failure(trace: TreeTrace, part: Part, s: State) -> None:
    """Why nothing can follow: a low past its latest offset, else a clique that is too full."""
    note_state(trace, part, s)
    row = trace.rows[trace.begun[0] - 1]
    for u in range(len(s.low)):
        if not s.placed[u] and s.low[u] > part.latest[u]:
            row[OUTCOME], row[BLOCKED], row[CLIQUE] = LATE, u, -1
            return
    for clique in range(len(part.cap)):
        if _least_end(part, s, clique) > part.cap[clique]:
            row[OUTCOME], row[CLIQUE] = FULL, clique


@kernel
def _least_end(part: Part, s: State, clique: int) -> int:
    """Where a clique ends at least: its placed buffers, and the others by low, one above the other."""
    members = part.members[part.members_of[clique] : part.members_of[clique + 1]]
    end, top = 0, 0
    for u in members[np.argsort(s.low[members])]:
        if s.placed[u]:
            top = max(top, s.low[u] + part.size[u])
        else:
            end = max(end, s.low[u]) + part.size[u]
    return max(end, top)
