"""A proposal not to return what is held at the peak for nobody but the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memplan_engine.advice.code import code_changes
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.values import Candidate
from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.graph import Op, Phase, Role
from memplan_engine.lifetimes import lifetimes
from memplan_engine.profile import bytes_held
from memplan_engine.units import count_of
from memplan_engine.what_if.edits import MOST_EDITS, Shorten

LEAST_SHARE = 0.01
"""What the results hold of the peak: a loss alone is not worth a line."""


def propose_unreturned(situation: Situation) -> Iterator[Candidate]:
    """Results that are live at the peak though no op reads them any more, such as a cache of keys and
    values: each could die at its last reader. What a backward pass makes are no results but gradients."""
    reused, problem = situation.reused({}), situation.problem
    if reused is None or not situation.peaks:
        return
    graph = reused.graph
    backward = {op.name for op in graph.ops if op.phase is Phase.BACKWARD}
    spans = lifetimes(replace(graph, outputs=()), reused.schedule, situation.how.unread)
    provenances = find_provenance(problem)
    # The last of the tied peaks: what is returned stays, so that most of it is there.
    step = situation.peaks[-1].step
    rows = [
        row
        for row in bytes_held(problem, step).nonzero()[0].tolist()
        if provenances[row].role is Role.OUTPUT
        and provenances[row].producer not in backward
        and spans.get(problem.names[row], (0, problem.steps))[1] <= step
    ]
    if not rows:
        return
    held = int(problem.size[rows].sum())
    if held < LEAST_SHARE * situation.peaks[0].nbytes or len(rows) + len(situation.edits) > MOST_EDITS:
        return
    makers = [maker for row in rows if isinstance(maker := provenances[row].maker, Op)]
    yield Candidate(
        ("unreturned",),
        f"Do not return {count_of(len(rows), 'result')}",
        edits=tuple(Shorten(problem.names[row], *spans[problem.names[row]]) for row in rows),
        same_bits=False,
        note="what if: they are not among the results",
        code=code_changes(graph, makers, lambda op: "do not return it (a cache: use_cache=False)"),
    )
