"""A simulated run as a recording, to be planned, drawn and costed as one that a GPU made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.allocator.simulation import AllocatorRun
from memplan_engine.kernels.allocator.run import ALLOC, COMPLETE_FREE, REQUEST_FREE
from memplan_engine.recordings.allocator_recording import BLOCK, EVENT, SEGMENT, Action, Recording

ACTIONS = {
    ALLOC: Action.ALLOC,
    REQUEST_FREE: Action.FREE_REQUESTED,
    COMPLETE_FREE: Action.FREE_COMPLETED,
}


def simulated_recording(run: AllocatorRun) -> Recording:
    """The requests of `run` at their simulated addresses, and its segments as events of their own. Its time
    axis is its own: what was there before the first event is allocated in it.

    A request that failed is an OOM event, with what the device had free.
    """
    rows, expandable = run.rows, run.settings.expandable_segments
    kept = np.isin(rows.op, list(ACTIONS)) & (rows.event < run.ended)
    placed = run.address[rows.ident] >= 0
    kept &= placed if len(rows.ident) else kept
    at = np.flatnonzero(kept)
    memory = np.zeros(len(at), dtype=EVENT)
    memory["address"], memory["stack"] = run.address[rows.ident[at]], rows.stack[rows.ident[at]]
    sizes = np.zeros(max(rows.idents, 1), dtype=np.int64)
    allocates = rows.op == ALLOC
    sizes[rows.ident[allocates]] = rows.size[allocates]
    memory["size"] = sizes[rows.ident[at]]
    memory["action"] = [ACTIONS[each] for each in rows.op[at].tolist()]
    streams = np.array(rows.streams)
    count = len(streams)
    memory["stream"] = streams[rows.base[at] // 2 % count]
    memory["pool"] = -1
    segments = np.zeros(len(run.log), dtype=EVENT)
    segments["address"], segments["size"] = run.log[:, 1], np.abs(run.log[:, 2])
    grows = Action.SEGMENT_MAP if expandable else Action.SEGMENT_ALLOC
    shrinks = Action.SEGMENT_UNMAP if expandable else Action.SEGMENT_FREE
    segments["action"] = np.where(run.log[:, 2] > 0, grows, shrinks)
    segments["stream"], segments["pool"], segments["stack"] = streams[run.log[:, 3] // 2 % count], -1, -1
    failed = np.zeros(len(run.failures), dtype=EVENT)
    for row, failure in zip(failed, run.failures, strict=True):
        row["address"], row["size"], row["action"] = failure.device_free, failure.asked, Action.OOM
        row["stack"], row["pool"] = failure.stack, -1
    steps = np.concatenate(
        [
            run.log[:, 0],
            rows.event[at] + 1,
            np.array([each.event + 1 for each in run.failures], dtype=np.int64),
        ]
    )
    events = np.concatenate([segments, memory, failed])[np.argsort(steps, kind="stable")]
    name = f"{run.recording.name}, {run.settings.words}"
    return replace(
        run.recording,
        name=name,
        events=events,
        segments=np.zeros(0, SEGMENT),
        blocks=np.zeros(0, BLOCK),
        pools=(),
        held=None,
        allocated=None,
    )
