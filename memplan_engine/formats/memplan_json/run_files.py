"""Runs as files: what `memplan run -o` writes, and observations, which are runs without a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import says_format
from memplan_engine.formats.memplan_json.observation_file import is_observation, load_observation
from memplan_engine.formats.read_limits import read_text
from memplan_engine.recordings.observation import CPU, Level, LiveBytes, Observation, observed_live
from memplan_engine.recordings.observed_flow import Flow, flow_live
from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.run_format import RunFile


def write_run(run: RunFile, path: Path | str) -> None:
    """Write `run` as memplan JSON, atomically; `load_run` reads it back.

    Raises
    ------
    InputError: a place that cannot be written, names that are no valid text.
    """
    write_atomically(path, run_bytes(run))


def run_bytes(run: RunFile) -> bytes:
    """`run` as memplan JSON in UTF-8, with one line break at the end."""
    from memplan_engine.formats.memplan_json.json_base import render

    return render(lambda: run, run.name)


def is_run(head: bytes) -> bool:
    """Whether a file that begins like this is a run."""
    return says_format(head, "memplan/run")


def load_run(path: Path | str, device: int | None = None) -> RunFile:
    """Read a run, or an observation as one that has no prediction: of `device` (−1 is the CPU), or, of
    several, of the one that had the most live bytes.

    Raises
    ------
    InputError: another file, one that is not sound, with the path of the first field that is wrong, or a
        device of which it says nothing.
    """
    runs = load_runs(path)
    if device is None:
        return max(runs.values(), key=lambda run: max(map(max, run.curves.values()), default=0))
    if device not in runs:
        known = ", ".join(map(str, runs))
        raise InputError(Path(path).name, "device", str(device), f"one of {known}")
    return runs[device]


def load_runs(path: Path | str) -> dict[int, RunFile]:
    """Read a run, which is of the CPU (−1), or an observation as runs without a prediction, one for each of
    its devices. Raises InputError as `load_run` does."""
    from memplan_engine.formats.memplan_json.json_base import check_head, parse
    from memplan_engine.formats.memplan_json.run_format import RunFile, check_run

    path = Path(path)
    text = read_text(path)
    if is_observation(text[:1000].encode("utf-8", "replace")):
        observation = load_observation(path)
        return {device: run_of_observation(observation, device) for device in observation.devices or (CPU,)}
    check_head(text, path.name, "memplan/run", "memplan/run or memplan/observation")
    return {CPU: check_run(parse(RunFile, text, path.name), path.name)}


def run_of_observation(observation: Observation, device: int) -> RunFile:
    """What was measured in `observation` on one device, as a run of which nothing was predicted; a level at
    which nothing happened there has no curve. What was predicted on fake tensors is a run of which nothing
    was measured."""
    from memplan_engine.formats.memplan_json.run_format import RunFile, TakerEntry

    ops = observation.ops
    if observation.flow is not None:
        return _predicted_run(observation, observation.flow, device)
    levels = [
        level
        for level in observation.levels
        if len(observation.devices) < 2 or len(observation.at(level, device))
    ]
    live = {level: _live(observation, level, device) for level in levels}
    temporary = [
        live[level].temporary.tolist() if level in live else [0] * len(ops)
        for level in (Level.ALLOCATOR, Level.DISPATCH)
    ]
    takers = [
        TakerEntry(op=op, kind=kind, bytes=nbytes, inside_bytes=max(0, min(own, nbytes)))
        for op, kind, nbytes, own in zip(ops.names, ops.kinds, *temporary, strict=True)
        if nbytes > 0
    ]
    # What a file says of one op may be in another order than that of `observed_live`.
    curves: dict[str, Any] = {
        level.value: tuple(curve.during.clip(min=0).tolist()) for level, curve in live.items()
    }
    return RunFile(
        format="memplan/run",
        version=1,
        name=observation.name,
        scope="eager",
        ops=ops.names,
        kinds=ops.kinds,
        temporaries=tuple(sorted(takers, key=lambda taker: -taker.bytes)),
        **curves,
    )


def _predicted_run(observation: Observation, flow: Flow, device: int) -> RunFile:
    from memplan_engine.formats.memplan_json.run_format import RunFile, TakerEntry

    ops = observation.ops
    scratch = [0] * len(ops) if flow.scratch is None else flow.scratch.tolist()
    takers = [
        TakerEntry(op=op, kind=kind, bytes=nbytes)
        for op, kind, nbytes in zip(ops.names, ops.kinds, scratch, strict=True)
        if nbytes > 0
    ]
    return RunFile(
        format="memplan/run",
        version=1,
        name=observation.name,
        scope=flow.scope.value,
        remarks=flow.basis.remarks,
        ops=ops.names,
        kinds=ops.kinds,
        predicted=tuple(flow_live(flow, device).tolist()),
        temporaries=tuple(sorted(takers, key=lambda taker: -taker.bytes)),
    )


def _live(observation: Observation, level: Level, device: int) -> LiveBytes:
    return observed_live(observation, level, device if device in observation.devices else None)
