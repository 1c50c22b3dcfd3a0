"""A fit as a job of the scheduler: its stages come one after another, and those that are there stay."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memplan_dashboard.background.jobs import CANCEL_SECONDS, ProcessJob, State

from memplan_engine.advice.fit_stages import Stage, StageName
from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.json_file import dumps, loads
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation
from memplan_engine.problem import Ints
from memplan_engine.rewrites.held_gradients import HeldBy, HeldGradients
from memplan_engine.rewrites.order.order_search import OrderProgress, ProvedBy
from memplan_engine.rewrites.order.reorder import Reordered

PROCESS = "memplan_dashboard.background.fit_process"
MOST_SEARCHES = 8
"""Of a fit: two for each of its stages."""
SPARE_SECONDS = 60.0
"""What is no search: rewriting, checking, compiling what is not compiled yet."""


@dataclass(frozen=True, slots=True)
class FitAsked:
    """What is fitted, and how: the `document` by key and `version`, its sizes `dims`; `only` are the stages
    that may be used, `seconds` and `nodes` the limits of each search, None for no limit."""

    document: str
    version: tuple[int, int]
    dims: tuple[tuple[str, int], ...]
    how: Preparation
    only: tuple[str, ...]
    seconds: float | None
    nodes: int | None = None


@dataclass(eq=False)
class FitJob(ProcessJob):
    """One fit of `graph`. `stages` are those that are there, `gradients` what holds those of its step, `part`
    is the one under way, `order` how far its search for an order is. It cannot be held: at its limit, `until`
    (seconds), it is cancelled."""

    WORK = "fit"

    asked: FitAsked
    graph: Graph
    until: float = 0.0
    stages: tuple[Stage, ...] = ()
    gradients: tuple[HeldGradients, ...] = ()
    part: str = ""
    order: OrderProgress | None = None
    _stopping: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds = math.inf if self.asked.seconds is None else self.asked.seconds
        self.until = self.until or MOST_SEARCHES * seconds + SPARE_SECONDS

    def line_up(self) -> None:
        """Wait for a turn."""

    def run(self) -> None:
        """Begin."""
        with self._lock:
            if self.state is not State.WAITING:
                return
            self._enter(State.RUNNING)
            how = self.asked.how
            options = {"alignment": how.alignment, "unread": how.unread, "round_sizes": how.round_sizes}
            limits = {"seconds": self.asked.seconds, "nodes": self.asked.nodes}
            given = {"only": self.asked.only, "how": options, **limits}
            try:
                self._start(PROCESS, {"graph": dumps(self.graph).decode(), **given})
            except MemplanError as error:
                # A name that is no valid text, which files cannot hold.
                self._enter(State.FAILED)
                self.fault = str(error)

    def cancel(self, patience: float = CANCEL_SECONDS) -> None:
        """Have it end within `patience` seconds and keep the stages that are there; returns at once."""
        with self._lock:
            process = self._process
            if self.state is State.WAITING or process is None:
                if self.state.is_active:
                    self._enter(State.CANCELLED)
                return
            if self._stopping and patience:
                return
            self._stopping = True
            if patience and self._sent:
                self._ask_to_stop(process)
        killer = threading.Timer(patience if self._sent else 0.0, process.kill)
        killer.daemon = True
        killer.start()

    def suspend(self) -> None:
        """What the scheduler does at the limit."""
        self.cancel()

    def _hear(self, values: dict[str, Any], arrays: dict[str, Ints]) -> None:
        stage = _read_stage(values) if values["kind"] == "stage" else None
        with self._lock:
            if self.state is not State.RUNNING:
                return
            if stage is not None:
                self.stages = (*self.stages, stage)
            elif values["kind"] == "gradients":
                self.gradients = _read_held(values, self.graph)
            elif values["kind"] == "begun":
                self.part, self.order = values["part"], None
            elif values["kind"] == "order":
                self.order = OrderProgress(**values["order"])
            elif values["kind"] == "error":
                self._enter(State.FAILED)
                self.fault = values["message"]
            else:
                self._enter(State.CANCELLED if self._stopping else State.DONE)

    def _bury(self, error: Exception) -> None:
        with self._lock:
            if self._stopping and self.state is State.RUNNING:
                self._enter(State.CANCELLED)
            super()._bury(error)


def stage_values(stage: Stage) -> dict[str, Any]:
    """`stage` as JSON can hold it. The certificate stays behind: it was checked where it was made."""
    order = stage.order and {
        "live_before": stage.order.live_before,
        "live_after": stage.order.live_after,
        "bound_bytes": stage.order.bound_bytes,
        "proved_by": stage.order.proved_by,
        "in_place": stage.order.in_place,
        "found_by": stage.order.found_by,
        "seconds": stage.order.seconds,
        "states": stage.order.states,
    }
    return {"kind": "stage", "name": stage.name, "plan": dumps(stage.plan).decode(), "order": order}


def _read_stage(values: dict[str, Any]) -> Stage:
    """The stage that `stage_values` has taken apart."""
    plan = loads(values["plan"], "the fit")
    assert isinstance(plan, Plan)
    assert plan.problem.origin is not None
    graph, order = plan.problem.origin.graph, values["order"]
    if order is not None:
        order = Reordered(graph, **{**order, "proved_by": ProvedBy(order["proved_by"])}, certificate=None)
    return Stage(StageName(values["name"]), graph, plan, order)


def held_values(held: Iterable[HeldGradients]) -> dict[str, Any]:
    """What holds gradients as JSON can hold it: ops by name, which the graph knows."""
    groups = [
        {
            "why": group.why,
            "tensors": group.tensors,
            "nbytes": group.nbytes,
            "op": group.op and group.op.name,
            "readers": [op.name for op in group.readers],
        }
        for group in held
    ]
    return {"kind": "gradients", "groups": groups}


def _read_held(values: dict[str, Any], graph: Graph) -> tuple[HeldGradients, ...]:
    """What `held_values` has taken apart, of `graph`."""
    ops = {op.name: op for op in graph.ops}
    return tuple(
        HeldGradients(
            HeldBy(group["why"]),
            tuple(group["tensors"]),
            group["nbytes"],
            group["op"] and ops[group["op"]],
            tuple(ops[name] for name in group["readers"]),
        )
        for group in values["groups"]
    )
