"""The stage that runs ops again: by hand, and what holds whatever the capacity."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memplan_engine import Graph, InputError, SolveLimits, accelerator, fit_graph, load
from memplan_engine.analysis.op_costs import OpTimes, modelled_times
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fit_stages import summed_up
from memplan_engine.fitting.fitted import LOWERING, Fitted, StageName, state_bytes_of
from memplan_engine.fitting.recompute_stage import StageTime
from memplan_engine.reporters.fit.fit_tables import fit_stages_summary
from memplan_engine.reporters.fit.fit_words import fit_verdict
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from tests import ROOT
from tests.rewrites.test_recompute import chain

US = 1e-6
TIMES = dict(zip(("f0", "f1", "f2", "b2", "b1", "b0"), (5 * US, 7 * US, 9 * US, US, US, US), strict=True))


def fit(capacity: int | None, only: tuple[str, ...] = ("recompute",)) -> Fitted:
    """Of three layers forward and back, 64 bytes to a unit, so that all is aligned; the input is there."""
    graph = chain()
    state = state_bytes_of(graph)
    how = None if capacity is None else capacity + state
    from memplan_engine.preparation import Preparation

    return fit_graph(graph, how, only, times=OpTimes(TIMES, "by hand"), how=Preparation(alignment=1))


def test_a_chain_by_hand() -> None:
    """31 bytes; within 21 the first layer runs again, in 5 of 24 µs. Within 19 nothing fits: 10 that are made
    and 10 that are read."""
    fitted = fit(21)
    assert [str(stage.name) for stage in fitted.stages] == ["captured", "recompute"]
    assert [stage.plan.arena_bytes for stage in fitted.stages] == [31, 21]
    time = fitted.best.time
    assert time is not None
    assert (time.of, time.seconds, time.extra_seconds) == ("by hand", 24e-6, 5e-6)
    assert time.bound_seconds == pytest.approx(5 * US, rel=1e-3)
    assert fitted.verdict is Verdict.FITS
    assert fit_verdict(fitted) == (
        "Fits in 22 B:",
        "ops run again, 1 B state + 21 B arena, +20.8 % time (no schedule is quicker than +20.8 %, proved)",
    )
    nothing = fit(19)
    assert nothing.verdict is Verdict.DOES_NOT_FIT
    assert nothing.proof == "every order of the ops, however often they run again"
    assert fit_verdict(nothing)[1].endswith(
        "; the nearest found is ops run again, 1 B state + 21 B arena, +20.8 % time"
    )
    # As the curve below has it.
    assert nothing.stages[-1].plan.arena_bytes == 21
    assert nothing.stages[-1].time == StageTime("by hand", 24e-6, 5e-6, None)


def test_what_fits_before_runs_nothing_again() -> None:
    assert [str(stage.name) for stage in fit(31).stages] == ["captured"]


def test_the_curve_of_a_chain_by_hand() -> None:
    curve = fit(None).curve
    assert curve is not None
    # 10 of what is made and 10 of what is read: 20 and a byte of the gradient that is there.
    assert curve.least_bytes in (20, 21)
    assert [(each.plan.arena_bytes, round(each.time.extra_seconds / US)) for each in curve.points] == [
        (31, 0),
        (21, 5),
    ]
    summary = fit_stages_summary(fit(None))
    assert [each["arena_bytes"] for each in summary["curve"]] == [31, 21]
    assert summary["curve"][1]["bound_seconds"] == pytest.approx(5 * US, rel=1e-3)


def test_a_curve_answers_for_any_capacity() -> None:
    fitted = fit(None)
    for arena, verdict, used in (
        (31, Verdict.FITS, 31), (30, Verdict.FITS, 21), (21, Verdict.FITS, 21),
        (19, Verdict.DOES_NOT_FIT, 21),
    ):  # fmt: skip
        asked = summed_up(
            chain(), arena + state_bytes_of(chain()), ("recompute",), fitted.stages,
            times=OpTimes(TIMES, "by hand"), curve=fitted.curve,
        )  # fmt: skip
        assert (asked.verdict, asked.best.plan.arena_bytes) == (verdict, used)


def test_stages_without_time_take_none_and_say_so() -> None:
    stages = fit_stages_summary(fit(21))["stages"]
    assert [(each["extra_seconds"], each["times"]) for each in stages] == [(0.0, None), (5e-6, "by hand")]


@pytest.fixture(scope="module")
def step() -> Graph:
    graph = load(ROOT / "example_graphs" / "bert_training_default.json")
    assert isinstance(graph, Graph)
    return graph


def test_less_memory_never_takes_less_time_and_never_more_than_was_asked(step: Graph) -> None:
    times = modelled_times(step, accelerator("a100-80"))
    state, before = state_bytes_of(step), fit_graph(step).best.plan.arena_bytes
    found = []
    for percent in (90, 75, 60):
        arena = before * percent // 100
        only = [name for name in LOWERING if name is not StageName.OFFLOAD]
        fitted = fit_graph(step, state + arena, only, times=times, limits=SolveLimits(10))
        stage = fitted.best
        assert fitted.verdict is Verdict.FITS
        assert stage.plan.arena_bytes <= arena
        assert stage.time is not None
        assert stage.time.bound_seconds is not None
        assert stage.time.bound_seconds <= stage.time.extra_seconds
        found.append((stage.time.bound_seconds, stage.time.extra_seconds))
    assert all(low <= high for bounds in zip(*found, strict=True) for low, high in pairwise(bounds))
    assert found[1][1] < 0.02 * sum(times.seconds.values())


@pytest.mark.slow
def test_the_curve_of_a_step_falls_in_bytes_and_rises_in_time(step: Graph) -> None:
    found = fit_graph(step, times=modelled_times(step, accelerator("a100-80"))).curve
    assert found is not None
    curve = found.points
    assert 0 < found.least_bytes <= curve[-1].plan.arena_bytes
    assert len(curve) >= 6
    for one, next_ in pairwise(curve):
        assert next_.plan.arena_bytes < one.plan.arena_bytes
        assert next_.time.extra_seconds >= one.time.extra_seconds
    assert all((each.time.bound_seconds or 0.0) <= each.time.extra_seconds for each in curve)
    assert curve[-1].time.bound_seconds
    # Half of it for a tenth of the time.
    assert any(
        each.plan.arena_bytes < curve[0].plan.arena_bytes / 2 and each.time.extra < 0.1 for each in curve
    )


def test_a_graph_without_times_and_an_eager_run_run_nothing_again() -> None:
    fitted = fit_graph(chain(), 20)
    assert dict(fitted.skipped)[StageName.RECOMPUTE] == "nothing says what its ops take"
    assert fitted.verdict is Verdict.UNDECIDED or fitted.verdict is Verdict.DOES_NOT_FIT


def test_times_of_another_graph_are_refused() -> None:
    with pytest.raises(InputError, match="f0: found no time of that op of net, expected a time for each of"):
        fit_graph(chain(), 20, times=OpTimes({}, "run.json"))


def test_what_runs_again_is_checked_in_the_order_that_it_has_in_the_end() -> None:
    stage = fit(21, ("reorder", "recompute")).best
    assert check_recompute(chain(), stage.graph) == []
