"""Observed and predicted runs: as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.peak import find_peak
from memplan_engine.lifetimes import to_problem
from memplan_engine.recordings.observation import (
    NO_OP,
    Level,
    Observation,
    observed_live,
    observed_peak,
    older,
)
from memplan_engine.recordings.observed_flow import (
    Flow,
    devices_of,
    flow_peak,
    fullest_device,
    host_peak,
    state_bytes,
)
from memplan_engine.recordings.observed_graph import observation_graph
from memplan_engine.recordings.recorded_problem import observed_problem
from memplan_engine.reporters.plan_tables import peak_table
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.scope import Scope, assumed_summary, scope_summary, scope_words
from memplan_engine.units import exact, format_bytes, format_seconds

LEVELS = {
    Level.DISPATCH: "tensors",
    Level.ALLOCATOR: "allocator",
}
SCOPE = {
    Level.DISPATCH: "storages of tensors that operators returned",
    Level.ALLOCATOR: "all allocator requests, kernel scratch included",
}


def observation_summary(observation: Observation) -> dict[str, Any]:
    """The run in figures; bytes are exact integers and count what the run made, not weights and inputs."""
    ops = observation.ops
    lives = {level: observed_live(observation, level) for level in observation.levels}
    columns = {f"{level}_bytes": live.during.tolist() for level, live in lives.items()}
    return {
        "name": observation.name,
        **(scope_summary(Scope.EAGER) if observation.flow is None else _predicted(observation)),
        "seconds": observation.nanoseconds / 1e9,
        "peaks": [_observed_peak(observation, level) for level in lives],
        "ops": [
            {"name": name, "kind": kind, **{key: values[row] for key, values in columns.items()}}
            for row, (name, kind) in enumerate(zip(ops.names, ops.kinds, strict=True))
        ],
    }


def _predicted(observation: Observation) -> dict[str, Any]:
    """The figures of a run that was not run."""
    flow = observation.flow
    assert flow is not None
    fullest = fullest_device(flow)
    return {
        **scope_summary(flow.scope, "; ".join((scope_words(flow.scope), *flow.basis.notes))),
        "device": fullest,
        **_on_device(observation, flow, fullest),
        "devices": [{"device": each, **_on_device(observation, flow, each)} for each in devices_of(flow)],
        "host": _on_host(observation, flow),
        "steps": flow.steps,
        "step_peaks": list(flow.step_peaks),
        "compiled": flow.compiled,
        **assumed_summary(flow.basis),
        "stopped": flow.stopped,
        "calibration": flow.calibration or None,
    }


def _on_device(observation: Observation, flow: Flow, device: int) -> dict[str, Any]:
    """The figures of a predicted run on one device."""
    nbytes, op = flow_peak(flow, device)
    return {
        "peak_bytes": nbytes,
        "state_bytes": state_bytes(flow, device),
        **_place(observation, flow, op),
    }


def _on_host(observation: Observation, flow: Flow) -> dict[str, Any] | None:
    """Return the most that a run on accelerators has on the host, state included; None for nothing."""
    nbytes, op = host_peak(flow)
    return {"peak_bytes": nbytes, **_place(observation, flow, op)} if nbytes else None


def _place(observation: Observation, flow: Flow, op: int) -> dict[str, Any]:
    return {
        "peak_op": None if op == NO_OP else observation.ops.names[op],
        "peak_source": None if op == NO_OP else str(flow.source_of(op) or "") or None,
        "peak_stage": None if op == NO_OP else str(flow.stages[op]),
    }


def _peak_words(said: dict[str, Any]) -> str:
    at = f" during {said['peak_op']} ({said['peak_stage']})" if said["peak_op"] else ""
    source = f", {said['peak_source']}" if said["peak_source"] else ""
    return f"{exact(said['peak_bytes'])}{at}{source}"


def _observed_peak(observation: Observation, level: Level) -> dict[str, Any]:
    nbytes, op = observed_peak(observation, level)
    rows = observation.at(level)
    return {
        "level": str(level),
        "counted": SCOPE[level],
        "peak_bytes": nbytes,
        "op": None if op == NO_OP else observation.ops.names[op],
        "after_bytes": int(rows["size"][~older(rows)].sum()),
    }


def observation_tables(observation: Observation, all_rows: bool = False) -> list[RenderableType]:
    """Peaks at each level, and what the higher of them is made of."""
    if observation.flow is not None:
        return _predicted_tables(observation, all_rows)
    table = Table.grid(padding=(0, 2))
    table.add_row("run", plain_text(f"{observation.name}, {len(observation.ops)} operators"))
    for peak in [_observed_peak(observation, level) for level in reversed(observation.levels)]:
        level = Level(peak["level"])
        at = f" during {peak['op']}" if peak["op"] else ""
        table.add_row(f"{LEVELS[level]} peak", plain_text(f"{exact(peak['peak_bytes'])}{at}: {SCOPE[level]}"))
    after = _observed_peak(observation, Level.DISPATCH)["after_bytes"]
    table.add_row("at the end", plain_text(f"{exact(after)} of tensors still alive, results included"))
    table.add_row("not counted", "what existed before: weights, inputs")
    seconds = format_seconds(observation.nanoseconds / 1e9)
    table.add_row("observed in", f"{seconds}, observer overhead included")
    problem = observed_problem(observation)
    return [table, peak_table(find_peak(problem), problem.name, all_rows)] if len(problem) else [table]


def _predicted_tables(observation: Observation, all_rows: bool) -> list[RenderableType]:
    """The figures of a run that was not run, and what its peak is made of."""
    said = _predicted(observation)
    table = Table.grid(padding=(0, 2))
    steps = f", step {said['steps']} of training" if said["steps"] else ""
    table.add_row("run", plain_text(f"{observation.name}, {len(observation.ops)} operators{steps}"))
    several = len(said["devices"]) > 1
    on = f" on cuda:{said['device']}" if several else ""
    table.add_row(f"peak{on}", plain_text(_peak_words(said)))
    if len(said["step_peaks"]) > 1:
        table.add_row("by step", ", ".join(map(format_bytes, said["step_peaks"])))
    kept = f"{exact(said['state_bytes'])}: weights, buffers, what optimizers keep; not in the peak"
    table.add_row(f"state{on}", kept)
    both = said["peak_bytes"] + said["state_bytes"]
    table.add_row(
        f"together{on}", f"{exact(both)}: peak and state; what a GPU counts is more (memplan allocator)"
    )
    for each in said["devices"] if several else ():
        if each["device"] != said["device"]:
            state = f"; state {exact(each['state_bytes'])}"
            table.add_row(f"peak on cuda:{each['device']}", plain_text(f"{_peak_words(each)}{state}"))
    if said["host"]:
        table.add_row("on the host", plain_text(f"{_peak_words(said['host'])}; in none of these figures"))
    table.add_row("counted", said["counted"])
    for note in observation.flow.basis.assumed_words if observation.flow else ():
        table.add_row("assumed", plain_text(note))
    if said["calibration"]:
        table.add_row("calibration", plain_text(said["calibration"]))
    problem = to_problem(observation_graph(observation), alignment=1)
    return [table, peak_table(find_peak(problem), problem.name, all_rows)] if len(problem) else [table]
