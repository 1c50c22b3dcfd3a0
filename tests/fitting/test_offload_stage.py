"""The stage in which results wait on the host: by hand, beside ops that run again, and what is proved."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from memplan_engine import accelerator, fit_graph, load
from memplan_engine.analysis.op_costs import OpTimes, modelled_times
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fitted import Fitted, StageName, state_bytes_of
from memplan_engine.fitting.offload_stage import Offloading
from memplan_engine.op_kinds.copies import is_copy
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.fit.fit_tables import fit_stages_summary
from memplan_engine.reporters.fit.fit_words import fit_verdict
from memplan_engine.rewrites.offload.check_offload import wrong_copies
from tests import ROOT
from tests.fitting.test_recompute_stage import TIMES
from tests.rewrites.test_recompute import chain

FAST = 10e6
"""Bytes a second: 10 bytes take 1 µs."""


def fit(capacity: int, only: tuple[str, ...], bandwidth: float | None = FAST) -> Fitted:
    graph = chain()
    times = OpTimes(TIMES, "by hand", host_bandwidth=bandwidth)
    how = Preparation(alignment=1)
    return fit_graph(graph, capacity + state_bytes_of(graph), only, times=times, how=how)


def test_copies_that_are_quicker_than_running_again() -> None:
    """Within 21 bytes the first layer runs again, 5 µs, or waits on the host, 1 µs out and 1 back."""
    fitted = fit(21, ("recompute", "offload"))
    assert [str(stage.name) for stage in fitted.stages] == ["captured", "recompute", "offload"]
    again, moved = fitted.stages[1:]
    assert (again.extra_seconds, moved.extra_seconds) == (pytest.approx(5e-6), pytest.approx(2e-6))
    assert fitted.best is moved
    assert (fitted.again, moved.copied_bytes) == (again, 10)
    assert moved.time is not None
    assert moved.time.of.endswith("copies to the host and back, modelled: 0.01 GB/s each way")
    assert fit_verdict(fitted)[1].startswith("copies to the host, 1 B state + 21 B arena, +8.3 % time")
    assert wrong_copies(chain(), moved.graph) == []


def test_copies_that_are_slower_are_left_out() -> None:
    fitted = fit(21, ("recompute", "offload"), 1e6)
    assert [str(stage.name) for stage in fitted.stages] == ["captured", "recompute"]
    assert fitted.best is fitted.stages[1]


def test_copies_alone() -> None:
    fitted = fit(21, ("offload",), 1e6)
    assert [str(stage.name) for stage in fitted.stages] == ["captured", "offload"]
    assert fitted.stages[1].extra_seconds == pytest.approx(20e-6)
    assert fitted.again is None
    entry = fit_stages_summary(fitted)["stages"][1]
    assert entry["copied_bytes"] == 10
    assert entry["extra_seconds"] == pytest.approx(20e-6)
    assert 0 < entry["bound_seconds"] <= 7 / 3 * 1e-6


def test_what_one_op_needs_does_not_fit() -> None:
    """f1 reads ten bytes and makes ten, and so does f2."""
    fitted = fit(19, ("recompute", "offload"))
    assert fitted.verdict is Verdict.DOES_NOT_FIT
    assert fitted.proof == "f1 alone reads and makes 20 B"
    assert fitted.stages[-1].time is not None
    assert fitted.stages[-1].time.bound_seconds is None


def test_without_a_bandwidth_it_is_left_out() -> None:
    fitted = fit(21, ("offload",), None)
    assert dict(fitted.skipped)[StageName.OFFLOAD] == (
        "nothing says how fast copies to the host are: --host-bandwidth"
    )
    assert fitted.verdict is not Verdict.FITS


def test_a_real_step_shares_between_both() -> None:
    """BERT of four layers: fewer bytes than ops that only run again reach, or less time for as many."""
    graph = load(ROOT / "example_graphs" / "bert_training_default.json")
    times = replace(modelled_times(graph, accelerator("a100-80")), host_bandwidth=32e9)
    fitted = fit_graph(graph, 440 << 20, ["recompute", "offload"], times=times)
    stages = {stage.name: stage for stage in fitted.stages}
    moved = stages[StageName.OFFLOAD]
    assert fitted.verdict is Verdict.FITS
    assert fitted.best is moved
    assert moved.time is not None
    assert moved.time.bound_seconds is not None
    assert moved.time.bound_seconds <= moved.time.extra_seconds
    names = {op.name for op in graph.ops}
    more = [op for op in moved.graph.ops if op.name not in names and not is_copy(op.kind)]
    assert more
    assert any(is_copy(op.kind) for op in moved.graph.ops)


def test_copies_that_cost_no_time_are_tried_on_until_the_arena_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holes take 30 bytes beside what is live, whatever that is."""
    asked: list[int] = []

    def within(stage: Offloading, live: int) -> SimpleNamespace:
        asked.append(live)
        return SimpleNamespace(offloaded=SimpleNamespace(peak_bytes=live))

    def planned(stage: Offloading, best: SimpleNamespace, bound: float | None) -> SimpleNamespace:
        arena = best.offloaded.peak_bytes + 30
        return SimpleNamespace(plan=SimpleNamespace(arena_bytes=arena), time=SimpleNamespace(extra_seconds=0))

    monkeypatch.setattr(Offloading, "_within", within)
    monkeypatch.setattr(Offloading, "_planned", planned)
    again, plan = SimpleNamespace(peak_bytes=1000), SimpleNamespace(arena_bytes=1000)
    recomputing: Any = SimpleNamespace(again=again, planned=plan, times=None, limits=None)
    points = [*Offloading(recomputing, True)._towards(500, None)]
    assert asked == [500, 470]
    assert [point.plan.arena_bytes for point in points] == [530, 500]
