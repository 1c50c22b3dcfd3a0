"""Why an arena grew: figures by hand, and sums that add up exactly for any two plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Gap, Op, Problem, adopt, find_peak, make_plan, make_problem, to_problem
from memplan_engine.diffing.moment import CAUSES, Cause, Footing
from memplan_engine.diffing.regression import (
    CHANGES,
    Change,
    Diff,
    Limit,
    changes_by_buffer,
    diff,
    parse_limit,
)
from memplan_engine.diffing.rows import diff_rows, module_rows, profile_difference
from memplan_engine.errors import InputError
from memplan_engine.graph import Workspace
from memplan_engine.kernels.alignment import NOBODY
from memplan_engine.profile import bytes_at
from memplan_engine.reporters.diff_tables import diff_summary
from memplan_engine.reporters.diff_words import (
    change,
    counted_sentences,
    figures,
    headline,
    matched_sentence,
    notes,
    peak_sentence,
    reasons,
)
from memplan_engine.scope import Scope
from memplan_engine.units import format_signed
from tests.support.graphs import make_graph
from tests.support.traced import Node, doubled, traced, transformer


def buffers(*rows: tuple[str, int, int, int], steps: int | None = None) -> Problem:
    """Buffers as (name, start, end, size)."""
    names, *columns = zip(*rows, strict=True)
    return make_problem(*columns, names=names, steps=steps)


def compared(base: Problem, head: Problem, strategy: str = "greedy_by_size") -> Diff:
    return diff(make_plan(base, strategy), make_plan(head, strategy))


def causes(found: Diff) -> dict[Cause, int]:
    """Those that say something."""
    return {cause: nbytes for cause, nbytes in found.causes.items() if nbytes}


#   steps     0   1   2   3         live: 10, 30, 25, 5
#   a (10)    ├───────┤
#   b (20)        ├───────┤
#   c  (5)            ├───────┤
BASE = buffers(("a", 0, 2, 10), ("b", 1, 3, 20), ("c", 2, 4, 5))


def test_larger_and_new_tensors_at_the_same_peak():
    found = compared(BASE, buffers(("a", 0, 2, 10), ("b", 1, 3, 32), ("c", 2, 4, 5), ("new", 1, 2, 7)))
    assert (found.arena_delta, found.demand_delta, found.packing_delta) == (19, 19, 0)
    assert causes(found) == {Cause.LARGER: 12, Cause.NEW: 7}
    assert (found.elsewhere, found.peak_moved) == (0, False)
    assert (found.moment.base_step, found.moment.head_step, found.moment.footing) == (1, 1, Footing.SAME_OP)
    assert found.percent == pytest.approx(19 / 30)


def test_a_longer_lifetime_counts_with_all_its_bytes_and_the_peak_moves():
    found = compared(BASE, buffers(("a", 0, 3, 10), ("b", 1, 3, 20), ("c", 2, 4, 5)))
    # The peak is now at step 2: a lives on there. The base held 25 there, 5 less than at its own peak.
    assert (found.demand_delta, found.elsewhere, found.peak_moved) == (5, -5, True)
    assert causes(found) == {Cause.LONGER: 10}
    assert found.counts[Change.LONGER] == 1
    assert found.counts[Change.SAME] == 2
    assert [(row.name, row.at_peak, row.changes) for row in diff_rows(found)] == [("a", 10, (Change.LONGER,))]


def test_where_demand_falls_it_is_explained_at_the_peak_that_was():
    head = buffers(("a", 0, 1, 10), ("b", 1, 3, 8), ("c", 2, 4, 5))
    found = compared(BASE, head)
    # 30 at step 1 became 8; the head's peak, 13, is at step 2.
    assert (found.demand_delta, found.elsewhere) == (-17, 5)
    assert found.moment is found.base_moment
    assert causes(found) == {Cause.SMALLER: -12, Cause.SHORTER: -10}
    mirrored = compared(head, BASE)
    assert causes(mirrored) == {Cause.LARGER: 12, Cause.LONGER: 10}
    assert (mirrored.demand_delta, mirrored.elsewhere) == (17, -5)


def test_tensors_that_are_gone():
    found = compared(BASE, buffers(("a", 0, 2, 40), ("c", 2, 4, 5)))
    assert found.demand_delta == 10
    # At the head's first peak, step 0, the base held 10: the tensor that is gone came later.
    assert causes(found) == {Cause.LARGER: 30}
    assert found.elsewhere == -20
    gone = compared(BASE, buffers(("a", 0, 2, 10), ("c", 2, 4, 5)))
    assert causes(gone) == {Cause.GONE: -20}
    assert gone.counts[Change.ONLY_BASE] == 1


def test_packing_loss_is_what_the_arena_takes_beyond_the_peak():
    base = adopt(BASE, np.array([0, 10, 0]))
    head = adopt(BASE, np.array([0, 16, 0]))
    found = diff(base, head)
    assert (found.arena_delta, found.demand_delta, found.packing_delta) == (6, 0, 6)
    assert not found.same
    assert found.changed == 0
    assert (causes(found), found.elsewhere) == ({}, 0)


def test_bytes_in_gaps_do_not_count():
    gaps = {1: (Gap(1, 2, 0, 4),)}
    names = BASE.names
    head = make_problem(BASE.start, BASE.end, BASE.size, names=names, gaps=gaps)
    found = compared(head, BASE)
    # Without the gap b holds 20 bytes at step 1, with it 4: the peak was 25, at step 2.
    assert (found.base_load.peak, found.head_load.peak) == (25, 30)
    assert causes(found) == {Cause.LARGER: 16}
    assert found.elsewhere == -11


def test_an_op_inserted_anywhere_makes_no_lifetime_longer():
    base = transformer(2)
    for place in range(1, len(base)):
        new = Node("new", "sin", 4, (base[place - 1].id,))
        nodes = [*base[:place], new, *base[place:]]
        found = diff(*(make_plan(traced(each)[0], "naive") for each in (base, nodes)))
        changed = {row.base for row in diff_rows(found) if row.changes == (Change.LONGER,)}
        # Only what the new op reads may live longer, and only if nobody read it later.
        assert changed <= {found.base.problem.names[place - 1]}
        assert found.counts[Change.SHORTER] == 0
        assert found.counts[Change.ONLY_HEAD] == 1


def test_a_tensor_that_is_read_again_later_lives_longer():
    base = transformer(2)
    head = [*base, Node("last", "add", 4, ("0.up", base[-1].id))]
    found = diff(*(make_plan(traced(each)[0], "naive") for each in (base, head)))
    assert {row.base for row in diff_rows(found) if Change.LONGER in row.changes} == {"linear_4", "add_3"}


def test_a_peak_at_a_new_op_is_compared_with_the_fullest_step_between_its_neighbours():
    base = [Node("a", "sin", 10), Node("b", "cos", 10, ("a",)), Node("c", "exp", 10, ("b",))]
    new = [Node("m", "tan", 50, ("a",)), Node("n", "tan", 50, ("m",))]
    head = [base[0], *new, Node("b", "cos", 10, ("a", "n")), base[2]]
    found = diff(*(make_plan(traced(each)[0], "greedy_by_size") for each in (base, head)))
    assert found.moment.footing is Footing.SAME_STRETCH
    # Between sin (step 0, 10 bytes) and cos (step 1, 20 bytes); a lives on, and cos is not made yet.
    assert (found.moment.base_step, found.moment.head_step) == (1, 2)
    assert causes(found) == {Cause.NEW: 100, Cause.SHORTER: -10}
    assert (found.demand_delta, found.elsewhere) == (90, 0)


def test_two_strangers_are_compared_peak_by_peak_and_called_unrelated():
    found = compared(BASE, buffers(("x", 0, 9, 111), ("y", 1, 7, 222), ("z", 3, 4, 5)))
    assert not found.related
    assert found.share == 0.0
    assert found.moment.footing is Footing.NOTHING
    assert peak_sentence(found).startswith("the peaks have nothing to do with each other: step 1 in base")
    assert causes(found) == {Cause.NEW: 338, Cause.GONE: -30}
    assert (found.demand_delta, found.elsewhere) == (308, 0)


def test_nothing_beside_nothing_and_beside_something():
    nothing = make_problem([], [], [])
    assert compared(nothing, nothing).same
    assert compared(nothing, nothing).related
    found = compared(nothing, BASE)
    assert (found.demand_delta, found.percent, causes(found)) == (30, None, {Cause.NEW: 30})
    assert compared(BASE, nothing).demand_delta == -30


rows = st.dictionaries(
    st.sampled_from(["conv", "norm", "act", "pool", "t1", "t2", "t3", "t4", "t5", "loss"]),
    st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(0, 40), st.booleans()),
    max_size=10,
)


def problem_of(chosen: dict[str, tuple[int, int, int, bool]]) -> Problem:
    """Some of the buffers need only half of their bytes in their first step."""
    gaps = {
        row: (Gap(start, start + 1, 0, size // 2),)
        for row, (start, _, size, gap) in enumerate(chosen.values())
        if gap
    }
    columns = [list(column) for column in zip(*chosen.values(), strict=True)] or [[], [], [], []]
    ends = [start + length for start, length in zip(*columns[:2], strict=True)]
    return make_problem(columns[0], ends, columns[2], names=list(chosen), gaps=gaps)


def live(problem: Problem, step: int) -> int:
    return sum(bytes_at(problem, buffer, step) for buffer in range(len(problem)))


@given(rows, rows)
def test_everything_adds_up_exactly(one, other):
    base, head = problem_of(one), problem_of(other)
    found = compared(base, head)
    assert found.arena_delta == found.demand_delta + found.packing_delta
    assert found.demand_delta == sum(found.causes.values()) + found.elsewhere
    assert found.elsewhere <= 0 if found.demand_delta >= 0 else found.elsewhere >= 0
    for cause, nbytes in found.causes.items():
        assert nbytes >= 0 if cause in (Cause.LARGER, Cause.NEW, Cause.LONGER) else nbytes <= 0
    assert (
        sum(row.at_peak for row in diff_rows(found, unchanged=True)) + found.elsewhere == found.demand_delta
    )
    assert sum(row.delta for row in diff_rows(found)) == head.total_bytes - base.total_bytes
    assert sum(row.delta for row in module_rows(found, found.moment)) == found.moment.delta
    assert sum(nbytes for _, nbytes in reasons(found)) == found.demand_delta
    assert found.changed == len(diff_rows(found))


@given(rows, rows)
def test_a_moment_is_what_is_live_at_its_two_steps(one, other):
    """The causes once more, buffer by buffer and by name."""
    base, head = problem_of(one), problem_of(other)
    found = compared(base, head)
    assert found.head_moment.head_bytes == found.head_load.peak
    assert found.base_moment.base_bytes == found.base_load.peak
    for moment in (found.base_moment, found.head_moment):
        expected = dict.fromkeys(Cause, 0)
        for row in range(len(base)):
            mate = int(found.matching.head_of[row])
            before = bytes_at(base, row, moment.base_step)
            after = bytes_at(head, mate, moment.head_step) if mate != NOBODY else 0
            if mate == NOBODY:
                expected[Cause.GONE] -= before
            elif before and after:
                expected[Cause.LARGER] += max(after - before, 0)
                expected[Cause.SMALLER] += min(after - before, 0)
            else:
                expected[Cause.LONGER] += after
                expected[Cause.SHORTER] -= before
        for row in np.flatnonzero(found.matching.base_of == NOBODY).tolist():
            expected[Cause.NEW] += bytes_at(head, row, moment.head_step)
        assert moment.causes == expected
        assert (moment.base_bytes, moment.head_bytes) == (
            live(base, moment.base_step),
            live(head, moment.head_step),
        )


@given(rows, rows)
def test_the_other_way_round_all_deltas_change_their_sign(one, other):
    base, head = make_plan(problem_of(one), "naive"), make_plan(problem_of(other), "naive")
    there, back = diff(base, head), diff(head, base)
    for name in ("arena_delta", "demand_delta", "packing_delta"):
        assert getattr(there, name) == -getattr(back, name)


@given(rows)
def test_a_plan_beside_itself_is_the_same(one):
    plan = make_plan(problem_of(one), "naive")
    found = diff(plan, plan)
    assert found.same
    assert not found.peak_moved
    assert diff_rows(found) == ()
    assert (found.share, found.bytes_share, found.elsewhere) == (1.0, 1.0, 0)
    assert set(changes_by_buffer(found)[0].tolist()) <= {CHANGES.index(Change.SAME)}
    assert not profile_difference(found).delta.any()


@given(rows, rows)
def test_colours_rows_and_counts_say_the_same(one, other):
    found = compared(problem_of(one), problem_of(other))
    of_base, of_head = changes_by_buffer(found)
    by_name = {row.base: row.changes[0] for row in diff_rows(found, unchanged=True) if row.base}
    assert [CHANGES[place] for place in of_base] == [by_name[name] for name in found.base.problem.names]
    by_name = {row.head: row.changes[0] for row in diff_rows(found, unchanged=True) if row.head}
    assert [CHANGES[place] for place in of_head] == [by_name[name] for name in found.head.problem.names]
    listed = [change for row in diff_rows(found, unchanged=True) for change in row.changes]
    assert {kind: listed.count(kind) for kind in Change} == found.counts


def test_rows_begin_with_what_adds_most_to_the_peak():
    head = buffers(("a", 0, 2, 12), ("b", 1, 3, 24), ("c", 2, 4, 500), ("n", 2, 3, 3))
    found = compared(BASE, head)
    assert [(row.name, row.delta, row.at_peak) for row in diff_rows(found)] == [
        ("c", 495, 495),
        ("b", 4, 4),
        ("n", 3, 3),
        ("a", 2, 0),
    ]
    assert [row.name for row in diff_rows(found, 2)] == ["c", "b"]
    row = diff_rows(found)[2]
    assert (row.base, row.base_lifetime, row.head_lifetime, row.how) == ("", None, (2, 3), None)


def test_modules_hold_what_their_buffers_hold():
    base, head = transformer(2), doubled(transformer(2))
    found = diff(*(make_plan(traced(each)[0], "greedy_by_size") for each in (base, head)))
    modules = module_rows(found, found.moment)
    assert sum(row.delta for row in modules) == found.demand_delta
    assert [abs(row.delta) for row in modules] == sorted((abs(row.delta) for row in modules), reverse=True)
    first = modules[0]
    assert first.module == "layers.0.attention"
    assert [(part.name, part.base_bytes, part.head_bytes, part.cause) for part in first.parts] == [
        ("matmul", 256, 512, Cause.LARGER),
        ("softmax", 256, 512, Cause.LARGER),
    ]
    assert str(first.parts[0].provenance.source) == "model.py:6"


def test_the_profiles_on_one_axis():
    found = compared(BASE, buffers(("a", 0, 2, 10), ("b", 1, 3, 30), ("c", 2, 4, 5), ("n", 3, 5, 9)))
    strip = profile_difference(found)
    assert strip.bounds.tolist() == [0, 1, 2, 3, 4, 5]
    assert strip.head.tolist() == [10, 40, 35, 14, 9]
    assert strip.base.tolist() == [10, 30, 25, 5, 5]
    assert strip.delta.tolist() == [0, 10, 10, 9, 4]


def test_steps_beyond_either_end_of_the_base_are_compared_with_its_outermost_step():
    """An output of 200 bytes lives to the end on both sides; the head has more steps, and 12 more bytes."""
    base = buffers(("in", 0, 1, 7), ("out", 1, 3, 200))
    longer = buffers(("in", 0, 1, 7), ("out", 1, 5, 200), ("new", 3, 5, 12))
    assert profile_difference(compared(base, longer)).delta.tolist() == [0, 0, 12]
    earlier = buffers(("new", 0, 2, 12), ("in", 2, 3, 7), ("out", 3, 5, 200))
    assert profile_difference(compared(base, earlier)).delta.tolist() == [5, 0, 0]
    nothing = make_problem([], [], [])
    assert profile_difference(compared(nothing, base)).delta.tolist() == [7, 200]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("5%", 2), ("5.5 %", 2), ("0%", 0), ("10B", 10), ("1KiB", 1024), ("7", 7), ("100%", 50)],
)
def test_limits(text, allowed):
    base = make_plan(buffers(("a", 0, 1, 50)), "naive")
    for size in (50 + allowed, 51 + allowed):
        found = diff(base, make_plan(buffers(("a", 0, 1, size)), "naive"))
        limit = parse_limit(text)
        assert limit.allowed(found) == allowed
        assert limit.exceeded(found) == (size > 50 + allowed)


def test_less_memory_is_no_regression_and_any_memory_after_none_is():
    base, nothing = make_plan(BASE, "naive"), make_plan(make_problem([], [], []), "naive")
    assert not Limit(0).exceeded(diff(base, nothing))
    assert parse_limit("50%").exceeded(diff(nothing, base))


@pytest.mark.parametrize("text", ["", "5 percent", "-1%", "10XB", "1e9", "%", "nan%", "5%%"])
def test_limits_that_are_none(text):
    with pytest.raises(
        InputError, match=r"--fail-above: found .*, expected a share as in 5%, bytes, or units"
    ):
        parse_limit(text)


def test_words():
    assert [format_signed(nbytes) for nbytes in (0, 3, -3, 1536)] == ["0 B", "+3 B", "−3 B", "+1.5 KiB"]
    assert [change(*pair) for pair in ((0, 5), (4, 5), (4, 3), (4, 4))] == [
        "+5 B",
        "+1 B (+25.0 %)",
        "−1 B (−25.0 %)",
        "0 B",
    ]
    found = compared(BASE, buffers(("a", 0, 2, 10), ("b", 1, 3, 32), ("c", 2, 4, 5), ("new", 1, 2, 7)))
    assert headline(found) == "arena +19 B (+63.3 %): 30 B → 49 B"
    assert (
        matched_sentence(found)
        == "3 buffers matched, of 3 in base and 4 in head (85.7 %, 92.1 % of the bytes)"
    )
    assert headline(compared(BASE, BASE)) == "arena unchanged: 30 B"
    assert len(CAUSES) == 6


# Beside the arena.


def captured(held: int, scope: Scope = Scope.WITH_TEMPORARIES) -> Problem:
    """An input of 8 bytes, an op that holds `held` inside and gives 16, and one that gives 4."""
    ops = (
        Op("big", "aten.big", ("x",), ("a",), workspace=Workspace(held)),
        Op("small", "aten.small", ("a",), ("b",), workspace=Workspace(1)),
    )
    graph = make_graph(list(ops), {"x": 8, "a": 16, "b": 4}, inputs=("x",), outputs=("b",))
    return to_problem(replace(graph, scope=scope), alignment=1)


def test_what_ops_hold_beside_the_arena_is_a_part_of_the_sum() -> None:
    found = compared(captured(100), captured(130))
    assert (found.arena_delta, found.workspace_delta, found.total_delta) == (0, 30, 30)
    assert (found.base.total_bytes, found.head.total_bytes) == (120, 150)
    assert headline(found) == "arena unchanged: 20 B; with workspace +30 B (+25.0 %): 120 B → 150 B"
    rows = {what: (base, head) for what, base, head in figures(found)}
    assert (rows["workspace"], rows["total"]) == ((100, 130), (120, 150))
    # Where most is held is not where storages alone are most: both are said.
    told = peak_sentence(found)
    assert told.startswith("the peak of the storages has not moved: ")
    assert "; with temporaries " in told
    sides = diff_summary(found)["base"], diff_summary(found)["head"]
    for side, plan in zip(sides, (found.base, found.head), strict=True):
        peak = find_peak(plan.problem)
        assert (side["held_peak_bytes"], side["held_peak_step"]) == (peak.nbytes, peak.step)
    assert not found.same
    assert diff_summary(found)["total_delta_bytes"] == 30
    assert [parse_limit(text).exceeded(found) for text in ("24%", "25%", "29", "30")] == [
        True, False, True, False,
    ]  # fmt: skip


def test_sides_that_do_not_count_the_same_are_judged_by_their_arenas() -> None:
    found = compared(captured(0, Scope.GRAPH), captured(130))
    assert found.judged == (20, 20)
    assert not parse_limit("0").exceeded(found)
    assert "base and head do not count the same" in notes(found)[0]
    base, head = counted_sentences(found)
    assert "unknown" in base
    assert head.startswith("counted in head: the graph's storages and the temporaries")
