"""One rank on fake tensors, as `memplan devices` runs it, with the bytes that are there during each op.

What an observation says of weights and moments, that they were there before, is undone: they count from the
op that makes them, as in a real run.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from memplan_engine.recordings.observed_flow import HELD
from memplan_engine.runtime.ranks.fake_world import fake_ranks
from memplan_engine.runtime.recorder import fake_run
from memplan_engine.runtime.scripts import script_process
from tests.support.rank_processes import RankProcesses, Rows


def main(rank: str, world: str, mailbox: str, out: str, script: str, *arguments: str) -> None:
    """What the rank does, and writes to `out`; those of one world meet in the folder `mailbox`."""
    vars(fake_run)["settled_flow"] = lambda flow, replaced: flow
    with (
        fake_ranks(int(rank), int(world), mailbox=Path(mailbox)),
        script_process.as_script(script, arguments),
        script_process.alone(),
    ):
        run = lambda: script_process._run(script, Path.cwd(), "a script")  # noqa: E731
        seen = fake_run.observe_whole(run, "train.py", "a script")
    flow = seen.flow
    assert flow is not None
    storages, n = flow.storages, len(flow.stages)
    change = np.zeros(n + 2, dtype=np.int64)
    np.add.at(change, storages.maker + 1, storages.nbytes)
    gone = storages.released != HELD
    np.add.at(change, storages.released[gone] + 2, -storages.nbytes[gone])
    live = np.cumsum(change)[1 : n + 1].tolist()
    Path(out).write_text(json.dumps(list(zip(map(str, seen.ops.kinds), live, strict=True))))


def run_on_fakes(processes: RankProcesses, script: Path, world: int, arguments: list[str]) -> list[Rows]:
    """Of each rank its ops with the bytes that are there during them."""
    return processes(__name__, "", script, world, arguments)
