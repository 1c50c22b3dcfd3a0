"""Cores replayed: the validator's own search against brute force, cores that are wrong, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_file import dumps, loads
from memplan_engine.planner import adopt, make_plan
from memplan_engine.problem import FREE, Gap, Problem, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify import certificates
from memplan_engine.verify.certificates import Outcome, check_certificate, proved_bytes, replay
from memplan_engine.verify.validate import Rule, validate_plan
from tests.support import drawn, reference, tight


def crowded(seed: int, buffers: int, room: int, largest: int) -> Problem:
    """Every step holds exactly `room` bytes: what ends is replaced by others of the same sum."""
    rows = tight.crowded_rows(np.random.default_rng(seed), buffers, room, largest)
    return make_problem(*zip(*rows, strict=True))


def whole(problem: Problem, nbytes: int) -> Bound:
    """The claim that all buffers together need `nbytes` bytes."""
    core = tuple(range(len(problem)))
    return Bound(nbytes, BoundKind.CORE, 0, core=core, until=problem.steps)


TIGHT = make_problem(
    [0, 1, 0, 4, 1, 0, 0, 3, 5],
    [1, 2, 4, 5, 5, 6, 7, 7, 7],
    [3, 2, 2, 3, 1, 1, 4, 1, 4],
    names=list("abcdefghi"),
)
"""Holds 10 bytes at every step and needs 11, for all of its buffers together and for no fewer."""
FITS_11 = (5, 6, 8, 7, 5, 4, 0, 6, 7)


def optimum_by_replay(problem: Problem) -> int:
    """The smallest claim that is refuted, from LOAD upward, each refutation a placement that is sound."""
    room = max(reference.load(problem), int(problem.size.max(initial=0)))
    while True:
        found = replay(problem, whole(problem, room + 1))
        assert found.outcome is not Outcome.UNCHECKED
        if found.outcome is Outcome.REFUTED:
            reference.assert_sound(problem, found.offsets)
            assert reference.arena(problem, found.offsets) <= room
            return room
        room += 1


def test_a_core_by_hand_is_proved_and_the_next_claim_refuted():
    assert reference.load(TIGHT) == 10
    found = replay(TIGHT, whole(TIGHT, 11))
    assert (found.outcome, found.offsets, found.reason) == (Outcome.PROVED, (), "")
    assert found.nodes > 1
    refuted = replay(TIGHT, whole(TIGHT, 12))
    assert refuted.outcome is Outcome.REFUTED
    reference.assert_sound(TIGHT, refuted.offsets)
    assert reference.arena(TIGHT, refuted.offsets) == 11


@pytest.mark.parametrize("left_out", range(len(TIGHT)))
def test_every_buffer_of_that_core_is_needed(left_out):
    core = tuple(buffer for buffer in range(len(TIGHT)) if buffer != left_out)
    found = replay(TIGHT, replace(whole(TIGHT, 11), core=core))
    assert found.outcome is Outcome.REFUTED
    rest = make_problem(*(column[list(core)] for column in (TIGHT.start, TIGHT.end, TIGHT.size)))
    reference.assert_sound(rest, found.offsets)
    assert reference.arena(rest, found.offsets) <= 10


@given(drawn.problems(most=5, steps=4, largest=6, alignments=st.sampled_from([1, 1, 2, 3, 4])))
def test_it_decides_as_brute_force_does(problem):
    """Alignments, gaps with windows and fixed offsets."""
    assert optimum_by_replay(problem) == reference.optimum(problem)


@given(drawn.problems(least=4, most=6, steps=3, largest=4, gaps=False, fixed=False, alignments=st.just(1)))
def test_it_decides_as_brute_force_does_where_much_is_live(problem):
    assert optimum_by_replay(problem) == reference.optimum(problem)


@given(drawn.problems(least=1, most=2, steps=4, largest=5, fixed=False))
def test_it_decides_as_brute_force_does_where_each_buffer_is_there_twice(problem):
    n = len(problem)
    columns = (np.tile(column, 2) for column in (problem.start, problem.end, problem.size))
    gaps = problem.gaps | {buffer + n: gaps for buffer, gaps in problem.gaps.items()}
    twice = make_problem(*columns, alignment=np.tile(problem.alignment, 2), gaps=gaps)
    assert optimum_by_replay(twice) == reference.optimum(twice)


@pytest.mark.parametrize(("buffers", "seed"), [(14, 21), (18, 3), (22, 0), (22, 5), (26, 1)])
def test_it_gets_through_cores_of_some_twenty_buffers(buffers, seed):
    room = {14: 30, 18: 40, 22: 60, 26: 60}[buffers]
    problem = crowded(seed, buffers, room, {14: 10, 18: 14, 22: 20, 26: 20}[buffers])
    found = replay(problem, whole(problem, room + 1))
    assert found.outcome is not Outcome.UNCHECKED
    if found.outcome is Outcome.REFUTED:
        reference.assert_sound(problem, found.offsets)


def test_alike_buffers_are_not_tried_in_every_order(monkeypatch):
    # c and g in two equal halves each: still 10 bytes at every step, and still no placement.
    rows = list(zip(TIGHT.start.tolist(), TIGHT.end.tolist(), TIGHT.size.tolist(), strict=True))
    halves = [(start, end, size // 2) for start, end, size in (rows[2], rows[6]) for _ in range(2)]
    problem = make_problem(*zip(*(rows[:2] + rows[3:6] + rows[7:] + halves), strict=True))
    found = replay(problem, whole(problem, 11))
    monkeypatch.setattr(
        certificates, "_initial_orders", lambda problem, core, pairs: np.zeros(len(pairs), dtype=np.int8)
    )
    slower = replay(problem, whole(problem, 11))
    assert found.outcome is slower.outcome is Outcome.PROVED
    assert found.nodes < slower.nodes / 2


def test_equal_buffers_at_fixed_offsets_may_lie_in_either_order():
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[4, 0])
    assert replay(problem, whole(problem, 9)).offsets == (4, 0)
    assert replay(problem, whole(problem, 8)).outcome is Outcome.PROVED


def test_an_offset_between_two_that_are_excluded_is_left():
    # a holds its bytes [0, 4) and then [8, 12): b fits between them at 4, and nowhere else below 16.
    problem = make_problem([0, 0], [9, 9], [12, 4], gaps={0: (Gap(0, 2, 0, 4), Gap(2, 9, 8, 12))})
    assert replay(problem, whole(problem, 13)).offsets == (0, 4)


def test_sizes_add_up_only_where_no_byte_can_be_shared():
    problem = make_problem([0, 0, 0], [2, 2, 2], [3, 4, 5])
    assert replay(problem, whole(problem, 12)) == certificates.Replay(Outcome.PROVED)
    assert replay(problem, whole(problem, 13)).outcome is Outcome.REFUTED
    # 8 and 4 bytes, of which 3 can be shared: 9 are enough, whether b lies above a or below it.
    for low, high in ((0, 5), (3, 8)):
        shared = make_problem([0, 2], [9, 4], [8, 4], gaps={0: (Gap(2, 4, low, high),)})
        assert replay(shared, whole(shared, 9)).outcome is Outcome.PROVED
        assert reference.arena(shared, replay(shared, whole(shared, 10)).offsets) == 9


@pytest.mark.parametrize("offset", range(4))
def test_a_fixed_offset_leaves_no_room_below_its_end(offset):
    problem = make_problem([0], [1], [4], fixed=[offset])
    assert replay(problem, whole(problem, offset + 4)) == certificates.Replay(Outcome.PROVED)
    assert replay(problem, whole(problem, offset + 5)).offsets == (offset,)


def test_gaps_let_others_in_and_windows_do_not():
    free = make_problem([0, 2], [10, 4], [8, 8], gaps={0: (Gap(2, 4),)})
    assert replay(free, whole(free, 9)).offsets == (0, 0)
    window = make_problem([0, 2], [10, 4], [8, 6], gaps={0: (Gap(2, 4, 3, 4),)})
    assert replay(window, whole(window, 10)).outcome is Outcome.PROVED
    assert replay(window, whole(window, 11)).outcome is Outcome.REFUTED


def test_all_that_a_pair_excludes_is_excluded():
    # At step 0 both are whole, at step 2 a holds [0, 2) and b [0, 6), at step 4 a [5, 8) and b [0, 2). Of b's
    # offset less a's this rules out −7 to 7, −5 to 1 and 4 to 7; the first has the others in it.
    gaps = {0: (Gap(2, 3, 0, 2), Gap(4, 5, 5, 8)), 1: (Gap(2, 3, 0, 6), Gap(4, 5, 0, 2))}
    problem = make_problem([0, 0], [9, 9], [8, 8], gaps=gaps)
    assert replay(problem, whole(problem, 16)).outcome is Outcome.PROVED
    for claim in (17, 30):
        reference.assert_sound(problem, replay(problem, whole(problem, claim)).offsets)


@given(drawn.problems(least=2, most=4, steps=4, largest=6), st.integers(1, 12))
def test_a_claim_that_is_far_too_large_is_refuted_as_well(problem, spare):
    room = reference.optimum(problem) + spare
    found = replay(problem, whole(problem, room + 1))
    assert found.outcome is Outcome.REFUTED
    reference.assert_sound(problem, found.offsets)
    assert reference.arena(problem, found.offsets) <= room


def test_a_buffer_larger_than_the_claim_proves_it_without_a_search():
    problem = make_problem([0, 5], [5, 9], [8, 0], fixed=[FREE, 20])
    assert replay(problem, whole(problem, 20)) == certificates.Replay(Outcome.PROVED)
    assert replay(problem, whole(problem, 21)).outcome is Outcome.REFUTED


def test_a_replay_ends_at_its_limit_and_says_so():
    problem = crowded(3, 80, 1000, 200)
    found = replay(problem, whole(problem, 1001), most_work=10_000_000)
    assert found.outcome is Outcome.UNCHECKED
    assert found.nodes > 1
    assert found.reason == f"more than {found.nodes:,} nodes"
    assert replay(problem, whole(problem, 1001), most_work=10_000_000) == found


def test_cores_too_large_to_try_are_not_tried():
    many = make_problem([0] * 201, [1] * 201, [1] * 201)
    assert replay(many, whole(many, 200)).reason == "the 201 buffers of its core are too many"
    n = certificates.MOST_BUFFERS + 1
    row = make_problem(np.arange(n), np.arange(n) + 1, [1] * n)
    assert replay(row, whole(row, 2)).reason == f"the {n:,} buffers of its core are too many"
    huge = make_problem([0, 0], [1, 1], [2**60, 2**60])
    assert replay(huge, whole(huge, 2**61)).reason == "the sizes of its core pass 2^60 bytes"


def test_the_largest_cores_that_are_tried(monkeypatch):
    # Beside each size counts an alignment of 1.
    most = make_problem([0, 0], [1, 1], [2**59 - 1, 2**59 - 1])
    assert replay(most, whole(most, 2**60)).offsets == (0, 2**59 - 1)
    more = make_problem([0, 0], [1, 1], [2**59 - 1, 2**59])
    assert replay(more, whole(more, 2**60)).reason == "the sizes of its core pass 2^60 bytes"
    spans = list(zip(TIGHT.start.tolist(), TIGHT.end.tolist(), strict=True))
    pairs = sum(a[0] < b[1] and b[0] < a[1] for a, b in combinations(spans, 2))
    monkeypatch.setattr(certificates, "MOST_PAIRS", pairs)
    assert replay(TIGHT, whole(TIGHT, 11)).outcome is Outcome.PROVED
    monkeypatch.setattr(certificates, "MOST_BUFFERS", len(TIGHT))
    assert replay(TIGHT, whole(TIGHT, 11)).outcome is Outcome.PROVED
    monkeypatch.setattr(certificates, "MOST_PAIRS", pairs - 1)
    assert replay(TIGHT, whole(TIGHT, 11)).reason == "the 9 buffers of its core are too many"


def test_what_is_known_of_cliques_saves_nodes(monkeypatch):
    def unknown(pairs, pair_of):
        return pairs, np.full_like(pair_of, -1)

    problem = crowded(21, 14, 30, 10)
    asked = problem, whole(problem, 31)
    found = replay(*asked)
    find_pairs = certificates._pairs
    with monkeypatch.context() as without:
        without.setattr(certificates, "_cliques", lambda pieces: (np.zeros(1, dtype=np.int64), []))
        assert replay(*asked).nodes > found.nodes
    with monkeypatch.context() as without:
        without.setattr(certificates, "_pairs", lambda pieces: unknown(*find_pairs(pieces)))
        assert replay(*asked).nodes > found.nodes


def test_the_largest_claim_there_is_does_not_overflow():
    problem = make_problem([0, 0], [1, 1], [2**58, 2**58])
    assert replay(problem, whole(problem, 2**63 - 1)).offsets == (0, 2**58)
    assert replay(problem, whole(problem, 2**59)).outcome is Outcome.PROVED


# -- what the validator says


def tight_plan(bound: Bound, offsets: tuple[int, ...] = FITS_11):
    return replace(adopt(TIGHT, offsets), bound=bound)


def test_a_plan_whose_core_is_confirmed_is_valid_and_optimal():
    plan = tight_plan(whole(TIGHT, 11))
    report = validate_plan(plan)
    assert report.valid
    assert plan.optimal
    nodes = replay(TIGHT, plan.bound).nodes
    assert report.replayed == f"9 buffers cannot be placed below 11 bytes ({nodes:,} nodes)"
    assert report.unchecked == ()


def test_a_core_that_is_refuted_is_a_violation_with_the_placement_that_refutes_it():
    report = validate_plan(tight_plan(whole(TIGHT, 12)))
    assert report.counts == {Rule.BOUND: 1}
    (violation,) = report.violations
    assert violation.buffers == TIGHT.names
    assert violation.message.startswith("the core of 9 buffers needs no 12 bytes, for 11 are enough: a at ")
    assert violation.message.count(" at ") == 8
    assert violation.message.endswith(", …")
    assert report.replayed == ""
    eight = make_problem([0] * 8, [1] * 8, [1] * 8)
    (violation,) = validate_plan(replace(adopt(eight, range(8)), bound=whole(eight, 9))).violations
    assert violation.message.count(" at ") == 8
    assert not violation.message.endswith("…")


def test_a_core_that_is_not_replayed_is_neither_right_nor_wrong(monkeypatch):
    monkeypatch.setattr(
        "memplan_engine.verify.certificates.replay", lambda *asked: replay(*asked, most_work=1)
    )
    report = validate_plan(tight_plan(whole(TIGHT, 11)))
    assert report.valid
    assert (report.replayed, report.unchecked) == (
        "",
        ("the certificate was not replayed: more than 1 nodes",),
    )


def test_without_replay_only_how_the_core_is_stated_is_checked(monkeypatch):
    monkeypatch.setattr("memplan_engine.verify.certificates.replay", None)
    report = validate_plan(tight_plan(whole(TIGHT, 12)), replay=False)
    assert (report.valid, report.replayed, report.unchecked) == (True, "", ())
    assert not validate_plan(tight_plan(replace(whole(TIGHT, 12), core=())), replay=False).valid


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"core": ()}, "the core names no buffer"),
        ({"core": (2, 1)}, "the core is no ascending list of indices below 9"),
        ({"core": (1, 1)}, "the core is no ascending list of indices below 9"),
        ({"core": (0, 1, 9)}, "the core is no ascending list of indices below 9"),
        ({"core": (9,)}, "the core is no ascending list of indices below 9"),
        ({"core": (-1, 2)}, "the core is no ascending list of indices below 9"),
        ({"until": 0}, "the core's window, from step 0 to 0, holds no step"),
        ({"step": 5, "until": 4}, "the core's window, from step 5 to 4, holds no step"),
        ({"step": 1}, "a of the core is not live within steps 1–6"),
        ({"until": 5}, "i of the core is not live within steps 0–4"),
    ],
)
def test_a_core_that_is_badly_stated_is_a_violation(wrong, message):
    bound = replace(whole(TIGHT, 11), **wrong)
    report = validate_plan(tight_plan(bound))
    assert report.counts == {Rule.BOUND: 1}
    assert report.violations[0].message == message
    assert check_certificate(TIGHT, bound, replay=False).fault == message
    assert proved_bytes(TIGHT, bound) == 0


def test_the_cores_that_the_solver_gives_are_confirmed():
    plan = make_plan(TIGHT, limits=SolveLimits(nodes=1_000_000))
    assert (plan.arena_bytes, plan.bound.kind) == (11, BoundKind.CORE)
    assert validate_plan(plan).replayed


# -- files and the command


def test_a_core_comes_back_from_a_file():
    plan = tight_plan(replace(whole(TIGHT, 11), step=0, until=7))
    text = dumps(plan).decode()
    assert json.loads(text)["bound"] == {
        "nbytes": 11,
        "kind": "core",
        "step": 0,
        "core": list(range(9)),
        "until": 7,
    }
    back = loads(text, "x")
    assert back == plan
    assert type(back.bound.core) is tuple
    assert "core" not in json.loads(dumps(adopt(TIGHT, FITS_11)))["bound"]


@pytest.mark.parametrize(
    ("core", "message"),
    [
        ([3, 3], "x: field bound.core[1]: found 3, expected places of buffers, ascending, below 9"),
        ([3, 1], "x: field bound.core[1]: found 1, expected places of buffers, ascending, below 9"),
        ([9], "x: field bound.core[0]: found 9, expected places of buffers, ascending, below 9"),
        ([-1], "x: field bound.core[0]: found -1, expected greater than or equal to 0"),
        (["a"], "x: field bound.core[0]: found 'a', expected a valid integer"),
        (7, "x: field bound.core: found 7, expected a valid"),
    ],
)
def test_a_core_that_names_no_buffers_is_refused(core, message):
    content = json.loads(dumps(tight_plan(whole(TIGHT, 11))))
    content["bound"]["core"] = core
    with pytest.raises(InputError) as refused:
        loads(json.dumps(content), "x")
    assert str(refused.value).startswith(message)


def test_the_command_says_what_was_replayed(memplan, tmp_path, monkeypatch):
    (tmp_path / "plan.json").write_bytes(dumps(tight_plan(whole(TIGHT, 11))))
    code, out, _ = memplan("validate", "plan.json")
    assert code == 0
    assert "replayed: 9 buffers cannot be placed below 11 bytes (" in out
    found = json.loads(memplan("validate", "plan.json", "--json")[1])
    assert (found["valid"], found["unchecked"]) == (True, [])
    assert found["replayed"].startswith("9 buffers cannot be placed below 11 bytes")
    (tmp_path / "wrong.json").write_bytes(dumps(tight_plan(whole(TIGHT, 12))))
    code, out, _ = memplan("validate", "wrong.json")
    assert code == 1
    assert "the core of 9 buffers needs no 12 bytes" in " ".join(out.split())
    monkeypatch.setattr(
        "memplan_engine.verify.certificates.replay", lambda *asked: replay(*asked, most_work=1)
    )
    code, out, _ = memplan("validate", "plan.json")
    assert code == 0
    assert "warning: the certificate was not replayed: more than 1 nodes" in out
