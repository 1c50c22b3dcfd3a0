"""Ranks of the built-in Llama as a job: what may be asked, what comes of it, and an end."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("torch")
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.ranks_job import RanksAsked, RanksJob

from memplan_engine import InputError
from memplan_engine.formats.memplan_json.ranks_archive import load_ranks_archive
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (RanksAsked(world=3), "ranks: found 3, expected one of 2, 4, 8, 16, 32, 64"),
        (RanksAsked(checkpoint="; rm -rf"), "checkpoints: found"),
        (RanksAsked(world=2, tensor=2, stages=2), "found 2 × 2 of 2 ranks"),
        (RanksAsked(stages=4, schedule="DualPipeV"), "found 8 stages of DualPipeV on 4 ranks"),
    ],
)
def test_what_the_script_cannot_do_is_refused_before_it_runs(asked, says):
    with pytest.raises(InputError, match=says):
        _ = asked.arguments


def test_the_arguments_are_those_of_the_script():
    asked = RanksAsked(8, 2, 2, "GPipe", "full", 4)
    assert " ".join(asked.arguments) == "--tp 2 --pp 2 --batch 4 --schedule GPipe --checkpoint full"
    assert asked.name == "small Llama, FSDP 2 × TP 2 × PP 2 GPipe, checkpoints full, batch 4"


@pytest.mark.slow
def test_ranks_come_as_a_zip_that_the_page_opens(tmp_path):
    job = RanksJob("a session", RanksAsked(world=16))
    job.run()
    wait_until(lambda: not job.state.is_active, lambda: job.part)
    assert job.state is State.DONE, job.fault
    path = tmp_path / "a.ranks.zip"
    path.write_bytes(job.archive)
    (run,) = load_ranks_archive(path)
    assert (run.rank, run.ranks) == (0, tuple(range(16)))


def test_cancelled_it_leaves_no_process():
    job = RanksJob("a session", RanksAsked())
    job.run()
    wait_until(lambda: job.process_id is not None)
    process = job._process
    job.cancel()
    assert (job.state, job.archive) == (State.CANCELLED, None)
    wait_until(lambda: process.poll() is not None)
