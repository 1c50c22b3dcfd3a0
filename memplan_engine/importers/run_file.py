"""Runs as files: what `memplan run -o` writes, and observations, which are runs without a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.importers.base import says_format
from memplan_engine.importers.limits import read_text
from memplan_engine.importers.observation_file import is_observation, load_observation
from memplan_engine.recordings.observation import Level, Observation, observed_live

if TYPE_CHECKING:
    from memplan_engine.formats.run_format import RunFile


def is_run(head: bytes) -> bool:
    """Whether a file that begins like this is a run."""
    return says_format(head, "memplan/run")


def load_run(path: Path | str) -> RunFile:
    """Read a run, or an observation as one that has no prediction.

    Raises
    ------
    InputError: another file, or one that is not sound, with the path of the first field that is wrong.
    """
    from memplan_engine.formats.base import check_head, parse
    from memplan_engine.formats.run_format import RunFile, check_run

    path = Path(path)
    text = read_text(path)
    if is_observation(text[:1000].encode("utf-8", "replace")):
        return run_of_observation(load_observation(path))
    check_head(text, path.name, "memplan/run", "memplan/run or memplan/observation")
    return check_run(parse(RunFile, text, path.name), path.name)


def run_of_observation(observation: Observation) -> RunFile:
    """What was measured in `observation`, as a run of which nothing was predicted; all devices together."""
    from memplan_engine.formats.run_format import RunFile, TakerEntry

    ops = observation.ops
    live = {level: observed_live(observation, level) for level in observation.levels}
    temporary = [
        live[level].temporary.tolist() if level in live else [0] * len(ops)
        for level in (Level.ALLOCATOR, Level.DISPATCH)
    ]
    takers = [
        TakerEntry(op=op, kind=kind, bytes=nbytes, inside_bytes=max(0, min(own, nbytes)))
        for op, kind, nbytes, own in zip(ops.names, ops.kinds, *temporary, strict=True)
        if nbytes > 0
    ]
    curves: dict[str, Any] = {level.value: tuple(curve.during.tolist()) for level, curve in live.items()}
    return RunFile(
        format="memplan/run",
        version=1,
        name=observation.name,
        ops=ops.names,
        kinds=ops.kinds,
        temporaries=tuple(sorted(takers, key=lambda taker: -taker.bytes)),
        **curves,
    )
