"""A fit in a process of its own: the same stages as here, kept when it is cancelled."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.fit_job import FitAsked, FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.scheduler import JobScheduler

from memplan_engine import Graph, fit_graph, load, validate_plan
from memplan_engine.advice.fit_stages import LOWERING, StageName, summed_up
from memplan_engine.graph import Op, Phase
from memplan_engine.preparation import Preparation
from memplan_engine.rewrites.held_gradients import held_gradients
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verdict import Verdict
from tests import ROOT
from tests.dashboard.background.test_jobs import until
from tests.rewrites.test_held_gradients import clip, step, update
from tests.support.waiting import HANG_SECONDS

NODES = 20_000
ASKED = FitAsked("x", (0, 0), (), Preparation(), LOWERING, None, NODES)


def graph_of(name: str) -> Graph:
    graph = load(ROOT / "example_graphs" / f"{name}.json")
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture
def scheduler():
    made = JobScheduler(lambda session: True)
    yield made
    made.close()


def figures(stages):
    return [
        (
            each.name,
            each.plan.arena_bytes,
            each.load_bytes,
            each.bound_bytes,
            each.proved,
            each.is_of_all_orders,
        )
        for each in stages
    ]


@pytest.mark.parametrize("name", ["teaching_order", "gpt2"])
def test_the_stages_are_those_of_fit_graph(scheduler, name):
    graph = graph_of(name)
    job = FitJob("a", ASKED, graph)
    scheduler.submit(job)
    until(lambda: not job.state.is_active, look=lambda: (job.state, job.part, job.fault))
    here = fit_graph(graph, limits=SolveLimits(nodes=NODES))
    assert job.state is State.DONE
    assert figures(job.stages) == figures(here.stages)
    assert [each.plan.problem for each in job.stages] == [each.plan.problem for each in here.stages]
    assert all(validate_plan(each.plan).valid for each in job.stages)
    assert job.stages[-1].order.states == here.stages[-1].order.states
    orders = ([op.name for op in each.graph.ops] for each in (job.stages[-1], here.stages[-1]))
    assert len(set(map(tuple, orders))) == 1


def test_options_and_the_stages_that_may_be_used_reach_the_process(scheduler):
    graph = graph_of("teaching_order")
    job = FitJob("a", replace(ASKED, how=Preparation(alignment=4096), only=(StageName.REORDER,)), graph)
    scheduler.submit(job)
    until(lambda: not job.state.is_active)
    assert [each.name for each in job.stages] == ["captured", "reorder"]
    assert all(not int(each.plan.offsets.sum()) % 4096 for each in job.stages)


class CancelsItself(FitJob):
    """A fit that is cancelled as soon as its first stage is there."""

    def _hear(self, values, arrays):
        super()._hear(values, arrays)
        if self.stages:
            self.cancel(HANG_SECONDS)


def test_a_cancelled_fit_keeps_what_is_there_and_proves_nothing_with_it(scheduler):
    graph = graph_of("gpt2_training_step")
    job = CancelsItself("a", replace(ASKED, nodes=None), graph)
    scheduler.submit(job)
    until(lambda: not job.state.is_active and job.process_id is None)
    assert job.state is State.CANCELLED
    assert job.stages[0].plan.arena_bytes == 579_726_340
    arenas = [each.plan.arena_bytes for each in job.stages]
    assert arenas == sorted(arenas, reverse=True)
    # The other stages might need less: with the first alone nothing is proved.
    fitted = summed_up(graph, 10**9, LOWERING, job.stages[:1])
    assert fitted.verdict is Verdict.UNDECIDED
    assert summed_up(graph, 10**9, (), job.stages[:1]).verdict is Verdict.DOES_NOT_FIT


def test_what_holds_gradients_comes_from_the_process(scheduler):
    graph = step(clip(), update("v", "both"), update("w"))
    job = FitJob("a", ASKED, graph)
    scheduler.submit(job)
    until(lambda: not job.state.is_active, look=lambda: (job.state, job.part, job.fault))
    assert (
        job.gradients == fit_graph(graph, limits=SolveLimits(nodes=NODES)).gradients == held_gradients(graph)
    )
    assert job.gradients[0].op is graph.ops[3]
    logged = Op("logged", "norm", ("dv",), ("both",), phase=Phase.OPTIMIZER)
    graph = step(update("v"), update("w"), logged)
    job = FitJob("b", ASKED, graph)
    scheduler.submit(job)
    until(lambda: not job.state.is_active, look=lambda: (job.state, job.part, job.fault))
    assert [group.readers for group in job.gradients] == [(logged,)]


def test_a_fit_that_waits_is_cancelled_at_once():
    job = FitJob("a", ASKED, graph_of("teaching_order"))
    job.cancel()
    assert (job.state, job.stages) == (State.CANCELLED, ())
    job.run()
    assert job.process_id is None


def test_at_its_limit_it_ends(scheduler):
    job = FitJob("a", ASKED, graph_of("teaching_order"), until=1e-9)
    scheduler.submit(job)
    scheduler.tick()
    until(lambda: not job.state.is_active)
    assert job.state is State.CANCELLED


def test_a_graph_that_no_file_can_hold_is_a_fault_and_no_traceback():
    graph = graph_of("teaching_order")
    bad = replace(graph, name="\ud800")
    job = FitJob("a", ASKED, bad)
    job.run()
    assert job.state is State.FAILED
    assert "valid text" in job.fault


def test_the_process_knows_no_streamlit():
    code = "import sys, memplan_dashboard.background.fit_process; sys.exit('streamlit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
