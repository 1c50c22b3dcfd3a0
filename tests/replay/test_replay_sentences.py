"""Replays by hand: holes, sentences, moves and objects of small problems, worked out on paper."""

from __future__ import annotations

from memplan_engine import Gap, load, make_problem, make_replay
from memplan_engine.replay.replay_values import UNPLACED, CandidateState
from tests import ROOT

FOLDER = ROOT / "example_graphs"


def teaching(name):
    return load(FOLDER / f"teaching_{name}.csv")


def test_best_fit_by_hand():
    # Largest first: b, d (3 bytes) at 0 and 3, h at 0 again, a at 6, c at 8. Then f meets c and d: the holes
    # are [0, 3), which b leaves, and [6, 8), which a leaves: the second one is tighter.
    replay = make_replay(teaching("best_fit"), "greedy_by_size")
    assert [step.name for step in replay.steps] == list("bdhacfge")
    assert replay.offset.tolist() == [0, 3, 0, 6, 8, 6, 10, 0]
    assert replay.arena.tolist() == [3, 6, 6, 8, 10, 10, 12, 12]
    assert replay.bytes_left.tolist() == [15, 12, 9, 7, 5, 3, 1, 0]
    step = replay.steps[5]
    holes = [(hole.low, hole.high, hole.state) for hole in step.holes]
    assert holes == [
        (0, 3, CandidateState.NOT_TIGHTEST),
        (6, 8, CandidateState.TAKEN),
        (10, None, CandidateState.NOT_NEEDED),
    ]
    assert step.sentence == (
        "f comes 6th of 8 by size, 2 B. 2 of the 5 placed buffers are live with it. Of the 2 holes that "
        "hold it, that of 2 B at 6 B is the tightest. Offset 6 B; the arena stays at 10 B."
    )
    assert replay.code[step.line] == "    if there is one: b.offset = first multiple of b.alignment in it"
    assert replay.steps[6].sentence == (
        "g comes 7th of 8 by size, 2 B. 4 of the 6 placed buffers are live with it. There is no hole, so it "
        "goes above what is live with it. Offset 10 B; the arena grows from 10 B to 12 B."
    )


def test_alignment_by_hand():
    # a at 0, b at 4 (its alignment moves it up from 3), so c finds one byte between and goes to 8.
    replay = make_replay(teaching("alignment"), "first_fit_by_start")
    c = replay.steps[2]
    assert [(hole.low, hole.high, hole.short) for hole in c.holes] == [(3, 4, 3), (7, None, 0)]
    assert c.sentence == (
        "c comes 3rd of 4 by start, step 1. All 2 placed buffers are live with it. The only hole does not "
        "hold it (it is too small by 3 B), so it goes above what is live with it. Its alignment of 4 B "
        "moves it up from 7 B. Offset 8 B; the arena grows from 7 B to 11 B."
    )


def test_a_buffer_gives_way_in_a_linear_scan_by_hand():
    # At step 1 b (2 bytes) finds no free range. a, 3 bytes, ends last: it moves to 3, and b takes its place.
    problem = make_problem([0, 1], [9, 2], [3, 2], names=["a", "b"])
    replay = make_replay(problem, "linear_scan")
    assert replay.steps[1].moved == (0, 3)
    assert (replay.offset.tolist(), replay.plan.offsets.tolist()) == ([0, 0], [3, 0])
    assert replay.placed_at(0).tolist() == [0, UNPLACED]
    assert replay.steps[1].sentence == (
        "b comes 2nd of 2 by start, step 1. 1 buffer is active, and the free list is empty. Of the active "
        "buffers that are large enough a ends last, at step 9: it moves to 3 B, and b takes its place. "
        "Offset 0 B; the arena grows from 3 B to 6 B."
    )


def test_gaps_and_fixed_offsets_by_hand():
    # c lies fixed at 0. In steps 2 and 3 a, at 2, keeps only byte 2: b may begin at 3.
    replay = make_replay(teaching("gaps"), "greedy_by_size")
    assert [step.name for step in replay.steps] == list("cabd")
    assert [step.offset for step in replay.steps] == [0, 2, 3, 6]
    assert replay.steps[0].sentence == (
        "c has a fixed offset, and those come first. Offset 0 B; the arena grows from 0 B to 2 B."
    )


def test_objects_by_hand():
    # 4 bytes in steps 0-1, 3 in step 1, 6 from step 2 on: the largest first makes object 0, the second joins.
    problem = make_problem([0, 1, 2], [2, 2, 4], [4, 3, 6], names=["a", "b", "c"])
    replay = make_replay(problem, "shared_objects_by_size")
    assert [(step.name, step.object) for step in replay.steps] == [("c", 0), ("a", 0), ("b", 1)]
    assert replay.arena.tolist() == [6, 6, 9]
    assert replay.steps[2].sentence == (
        "b comes 3rd of 3 by size, 3 B. The only object is in use: it gets a new one, number 1. Offset 6 B; "
        "the arena grows from 6 B to 9 B."
    )


def test_what_is_placed_in_a_gap_is_not_live_with_the_buffer_around_it():
    # b is live in steps 0, 1 and 6; a in its gap, c at step 6. A linear scan keeps b active in its gap.
    problem = make_problem([2, 0, 6], [6, 7, 7], [9, 4, 5], names=["a", "b", "c"], gaps={1: (Gap(2, 6),)})
    fitted = make_replay(problem, "greedy_by_size")
    assert [step.name for step in fitted.steps] == ["a", "c", "b"]
    assert [fitted.problem.names[each] for each in fitted.steps[2].live] == ["c"]
    assert "1 of the 2 placed buffers is live with it." in fitted.steps[2].sentence
    scanned = make_replay(problem, "linear_scan")
    assert {step.name: len(step.live) for step in scanned.steps} == {"b": 0, "a": 1, "c": 1}
