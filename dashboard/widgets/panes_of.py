"""What stands beside the chart of a problem: worked out once, packed by `plan_view`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from memplan_dashboard.plan_view.panes import OpColumns, Panes
from numpy.typing import NDArray

from memplan_engine import Problem
from memplan_engine.analysis.buffer_names import op_names
from memplan_engine.analysis.peak_tree import groupings_of
from memplan_engine.analysis.provenance import OP_PROPERTIES, find_provenance
from memplan_engine.analysis.tied_peaks import tied_peaks
from memplan_engine.graph import Op
from memplan_engine.profile import scratching, workspace_of

NOBODY = -1
FUNCTION = "function"
"""What the grouping by module is called where functions asked for the memory, as in recordings."""
MOST_TIES = 64
"""Places that reach the same peak: of more the row would have no end."""


def panes_of(problem: Problem) -> Panes:
    """The panes of a problem: O(buffers + ops), once a problem."""
    return problem.once(_panes_of)


def _panes_of(problem: Problem) -> Panes:
    provenances = find_provenance(problem)
    ops = problem.origin.graph.ops if problem.origin else ()
    number = {op.name: index for index, op in enumerate(ops)}
    scratch = list(scratching(problem))
    groupings, callers = groupings_of(problem), problem.callers
    module = FUNCTION if callers else "module"
    return Panes(
        groupings={module if by == "module" else by: each for by, each in groupings.items()},
        by="line" if callers and "line" in groupings else module,
        scratch_start=np.array([step for _, step in scratch], np.int64),
        scratch_bytes=np.array([op.workspace.shared for op, _ in scratch], np.int64),
        always=workspace_of(problem).unique,
        ties=_ties(problem),
        own_names=problem.names,
        tensors=[_tensor(each.shape, each.dtype) for each in provenances],
        kinds=[each.kind for each in provenances],
        places=["" if isinstance(each.maker, Op) else str(each.source or "") for each in provenances],
        ops=_columns(problem, ops),
        maker=np.array([number.get(each.producer, NOBODY) for each in provenances], np.int32),
        readers=_rows([number[name] for name in each.readers] for each in provenances),
        stack=np.array(callers.stack if callers else [NOBODY] * len(problem), np.int32),
        stacks=_rows(callers.stacks.stacks if callers else ()),
        frames=[str(frame) for frame in callers.stacks.frames] if callers else [],
    )


def _ties(problem: Problem) -> list[tuple[str, int]]:
    """The layer and the first step of each place that reaches the peak; none where there is but one."""
    ties = tied_peaks(problem)[:MOST_TIES]
    return [(".".join(tie.module.split(".")[-2:]), tie.step) for tie in ties] if len(ties) > 1 else []


def _tensor(shape: Sequence[int], dtype: str) -> str:
    """ "1 × 1,024 × 768 float32"."""
    return f"{' × '.join(f'{size:,}' for size in shape) or 'scalar'} {dtype}" if dtype else ""


def _columns(problem: Problem, ops: Sequence[Op]) -> OpColumns:
    names = op_names(problem)
    steps: Sequence[int] = ()
    row: dict[str, int] = {}
    makes: dict[str, int] = {}
    if problem.origin is not None:
        graph, steps = problem.origin.graph, problem.origin.schedule.step_of_op
        buffers = {name: index for index, name in enumerate(problem.names)}
        row = {each.name: buffers[each.storage] for each in graph.tensors if each.storage in buffers}
        for buffer, provenance in enumerate(find_provenance(problem)):
            makes.setdefault(provenance.producer, buffer)
    return OpColumns(
        names=[names[op.name] for op in ops],
        own_names=[op.name for op in ops],
        properties=_told(ops),
        sources=[str(op.source or "") for op in ops],
        codes=[op.source.code if op.source else "" for op in ops],
        step=np.array(steps, np.int64),
        makes=np.array([makes.get(op.name, NOBODY) for op in ops], np.int32),
        inputs=_rows(dict.fromkeys(row[name] for name in op.inputs if name in row) for op in ops),
    )


def _told(ops: Sequence[Op]) -> list[tuple[str, list[str]]]:
    """Return the properties that at least one of `ops` has."""
    told = ((each.label, [each.words(each.of(op)) for op in ops]) for each in OP_PROPERTIES)
    return [(label, texts) for label, texts in told if any(texts)]


def _rows(lists: Iterable[Iterable[int]]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    ids: list[int] = []
    ends = []
    for each in lists:
        ids.extend(each)
        ends.append(len(ids))
    return np.array(ends, np.uint32), np.array(ids, np.int32)
