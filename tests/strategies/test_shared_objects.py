"""Shared objects: every strategy against its definition in plain Python, by hand, and in the checker."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import memplan_examples
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import load
from memplan_engine.analysis.positional import (
    ObjectRow,
    breadth_at,
    breadths,
    object_summary,
    object_table,
    positional_maxima,
    shared_objects_bound,
)
from memplan_engine.errors import InputError, PlanError
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.planner import adopt, compare, make_plan, strategies_for
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.shared_objects.assignment import MOST_MATCHED
from memplan_engine.verify.validate import Rule, validate_plan
from tests.support import drawn, reference
from tests.support import reference_objects as plain

REFERENCES = {
    "shared_objects_by_size": plain.by_size,
    "shared_objects_by_size_improved": plain.by_size_improved,
    "shared_objects_by_breadth": plain.by_breadth,
    "shared_objects_in_order": plain.in_order,
}
FAMILY = [name for name in known_strategies() if name.startswith("shared_objects_")]
PAIR = make_problem([0, 2], [2, 4], [8, 4], names=["a", "b"])


def objects_of(problem, name):
    return make_plan(problem, name).objects.tolist()


def least_total(problem):
    """The least sum of object sizes of all assignments there are, by trying every one."""
    n = len(problem)
    best = problem.total_bytes
    for objects in product(*(range(b + 1) for b in range(n))):
        groups = [[b for b in range(n) if objects[b] == k] for k in set(objects)]
        if all(plain.idle(problem, a, b) >= 0 for g in groups for a in g for b in g if a < b):
            best = min(best, sum(plain.width(problem, members) for members in groups))
    return best


def test_the_family_is_there():
    assert [*REFERENCES, "shared_objects_min_cost_flow"] == FAMILY


@given(problem=drawn.problems(fixed=False, most=16))
def test_every_greedy_follows_its_definition(problem):
    for name, reference_of in REFERENCES.items():
        assert objects_of(problem, name) == reference_of(problem), name
    assert positional_maxima(problem).tolist() == plain.positional_maxima(problem)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_definitions_hold_for_hundreds_of_buffers_too(name):
    random = np.random.default_rng(5)
    start = random.integers(0, 60, 150)
    size = random.choice([64, 64, 256, 1000, 4096], 150)
    problem = make_problem(start, start + random.integers(1, 15, 150), size)
    assert objects_of(problem, name) == REFERENCES[name](problem)


@given(problem=drawn.problems(fixed=False, most=6, steps=6))
def test_min_cost_flow_adds_the_least_memory_of_all_assignments(problem):
    objects = objects_of(problem, "shared_objects_min_cost_flow")
    assert plain.growth(problem, objects) == plain.least_growth(problem)


@given(problem=drawn.problems(fixed=False, most=5, steps=5))
def test_no_assignment_is_below_the_sum_of_the_positional_maxima(problem):
    assert shared_objects_bound(problem) <= least_total(problem)
    for name in FAMILY:
        summary = object_summary(make_plan(replace(problem, alignment=np.ones_like(problem.size)), name))
        assert least_total(problem) <= summary.objects_bytes == summary.arena_bytes


@given(problem=drawn.problems(fixed=False))
def test_objects_keep_apart_and_hold_one_buffer_at_a_time(problem):
    for name in FAMILY:
        plan = make_plan(problem, name)
        rows = object_table(plan)
        assert sorted(row.object for row in rows) == list(range(len(rows)))
        assert sorted(b for row in rows for b in row.buffers) == sorted(problem.names)
        for low, high in pairwise(rows):
            assert low.offset + low.nbytes <= high.offset
        for row in rows:
            members = [int(buffer) for buffer in row.buffers]
            assert all(plain.idle(problem, a, b) >= 0 for a in members for b in members if a != b)


def test_by_size_by_hand():
    # By size: a to a new object; c, free after a, too; b meets both: a second one; d finds it free.
    problem = make_problem([0, 1, 2, 3], [2, 3, 4, 5], [10, 6, 8, 6], names="abcd")
    plan = make_plan(problem, "shared_objects_by_size")
    assert plan.objects.tolist() == [0, 1, 0, 1]
    assert plan.offsets.tolist() == [0, 10, 0, 10]
    assert positional_maxima(problem).tolist() == [10, 6]
    assert object_summary(plan).optimal
    assert object_table(plan) == (
        ObjectRow(0, 0, 10, ("a", "c"), 4),
        ObjectRow(1, 10, 6, ("b", "d"), 4),
    )


def test_by_breadth_makes_an_object_grow_by_hand():
    # Step 1 is the busiest: b and c get an object of 6 bytes each. a, of 10, fits neither, and the one made
    # first grows.
    problem = make_problem([0, 1, 1], [1, 2, 2], [10, 6, 6])
    assert objects_of(problem, "shared_objects_by_breadth") == [0, 0, 1]
    assert make_plan(problem, "shared_objects_by_breadth").arena_bytes == 16
    # Of two that are too small the larger one grows: b (7) before c (5).
    uneven = make_problem([0, 1, 1], [1, 2, 2], [10, 5, 7])
    assert objects_of(uneven, "shared_objects_by_breadth") == [0, 1, 0]


def test_improved_prefers_the_object_that_was_idle_least_by_hand():
    # Positional maxima 8, 8, 2. p and q get objects 0 and 1. Of the small ones, u starts one step after q
    # ends (p: four) and comes first, although s starts earlier: s has no free object at all.
    problem = make_problem([0, 1, 2, 7], [3, 6, 3, 8], [8, 8, 2, 2], names=["p", "q", "s", "u"])
    assert positional_maxima(problem).tolist() == [8, 8, 2]
    assert objects_of(problem, "shared_objects_by_size_improved") == [0, 1, 2, 1]
    assert objects_of(problem, "shared_objects_by_size") == [0, 1, 2, 2]


def test_in_order_takes_the_closest_size_and_of_equals_the_larger_by_hand():
    assert objects_of(make_problem([0, 0, 1], [1, 1, 2], [4, 9, 6]), "shared_objects_in_order") == [0, 1, 0]
    assert objects_of(make_problem([0, 0, 1], [1, 1, 2], [4, 8, 6]), "shared_objects_in_order") == [0, 1, 1]


def test_min_cost_flow_by_hand():
    # 10 and 1 bytes come first and need 11. The 1 byte at step 1 could only take over the 10 bytes, which
    # the 10 bytes at step 6 will need: cheaper is a byte of its own. 12 bytes are added in all.
    problem = make_problem([0, 0, 1, 6], [1, 5, 2, 7], [10, 1, 1, 10])
    plan = make_plan(problem, "shared_objects_min_cost_flow")
    assert plan.objects.tolist() == [0, 1, 2, 0]
    assert plan.arena_bytes == plain.growth(problem, plan.objects.tolist()) == 12
    # Handing the 10 bytes on twice would have done with 11: growth counts it again after the small one.
    assert make_plan(problem, "shared_objects_in_order").arena_bytes == shared_objects_bound(problem) == 11


def test_each_buffer_lies_at_its_own_alignment_inside_its_object():
    # Objects 0: [0, 10); 1: from 10 on, c at 12 for its 3, b at 16 for its 8; 2: behind b.
    problem = make_problem([0, 0, 1, 0], [2, 1, 2, 2], [10, 4, 2, 1], alignment=[1, 8, 3, 1])
    plan = make_plan(problem, "shared_objects_by_size")
    assert plan.objects.tolist() == [0, 1, 1, 2]
    assert plan.offsets.tolist() == [0, 16, 12, 20]
    assert object_table(plan)[1] == ObjectRow(1, 12, 8, ("1", "2"), 2)


def test_a_buffer_keeps_its_object_in_its_gaps():
    problem = make_problem([0, 2], [6, 4], [8, 8], gaps={0: (Gap(2, 4),)})
    for name in FAMILY:
        assert sorted(objects_of(problem, name)) == [0, 1]
    assert make_plan(problem, "greedy_by_size").arena_bytes == 8
    assert shared_objects_bound(problem) == 16


def test_positional_maxima_and_breadths_by_hand():
    problem = make_problem([0, 1, 1], [3, 2, 4], [5, 9, 2], gaps={0: (Gap(1, 3),)}, steps=6)
    assert positional_maxima(problem).tolist() == [9, 5, 2]
    steps, nbytes = breadths(problem)
    assert dict(zip(steps.tolist(), nbytes.tolist(), strict=True)) == {0: 5, 1: 16, 2: 7, 3: 2, 4: 0}
    assert [breadth_at(problem, step) for step in range(6)] == [5, 16, 7, 2, 0, 0]
    assert positional_maxima(make_problem([], [], [])).tolist() == []
    assert shared_objects_bound(make_problem([], [], [])) == 0


@pytest.mark.parametrize("name", FAMILY)
def test_fixed_offsets_are_refused_with_the_reason(name):
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[FREE, 16], names=["a", "b"])
    expected = rf"{name} cannot place it: buffer 'b' is fixed at offset 16, and shared objects lie one behind"
    with pytest.raises(PlanError, match=expected):
        make_plan(problem, name)


def test_a_comparison_of_everything_leaves_out_what_cannot_place_it():
    fixed = make_problem([0, 0], [1, 1], [4, 4], fixed=[FREE, 16])
    assert strategies_for(PAIR) == tuple(known_strategies())
    left_out = set(known_strategies()) - set(strategies_for(fixed))
    assert left_out >= set(FAMILY)
    assert {"auto", "linear_scan", "naive"} & left_out == set()
    assert [plan.strategy for plan in compare(fixed)] == list(strategies_for(fixed))
    with pytest.raises(PlanError):
        compare(fixed, ["auto", "shared_objects_by_size"])


def test_min_cost_flow_says_when_there_are_too_many_buffers():
    n = MOST_MATCHED + 1
    problem = make_problem(np.arange(n), np.arange(n) + 1, np.ones(n, dtype=int))
    assert "shared_objects_min_cost_flow" not in strategies_for(problem)
    with pytest.raises(PlanError, match="10,001 buffers, and more than 10,000 would take minutes"):
        make_plan(problem, "shared_objects_min_cost_flow")


@pytest.mark.parametrize("name", FAMILY)
def test_a_budget_that_is_spent_stops_it(name):
    limits = SolveLimits()
    limits.cancel()
    with pytest.raises(PlanError, match=f"{name} was stopped before every buffer had its object"):
        make_plan(PAIR, name, limits=limits)


@pytest.mark.parametrize("name", FAMILY)
def test_thousands_of_buffers_share_few_objects(name):
    random = np.random.default_rng(6)
    n = 2_000 if name.endswith("flow") else 5_000
    start = random.integers(0, n, n)
    problem = make_problem(start, start + random.integers(1, 21, n), random.integers(1, 10_000, n))
    plan = make_plan(problem, name)
    assert plan.bound.nbytes <= shared_objects_bound(problem) <= plan.arena_bytes < problem.total_bytes / 40


def test_auto_leaves_the_family_alone():
    # On this graph an assignment to objects happens to be smaller than all orders × fits.
    graph = load(memplan_examples.PATH / "mobilenet_v2.json")
    auto = make_plan(graph, "auto", limits=SolveLimits(nodes=10_000))
    assert auto.objects is None
    # Branch and bound packs tighter than whole objects, which beat every order × fit here.
    assert auto.arena_bytes < make_plan(graph, "shared_objects_by_size_improved").arena_bytes


def test_every_object_inside_a_larger_one_is_named_but_not_what_has_no_bytes():
    problem = make_problem([0, 1, 2, 3], [1, 2, 3, 4], [100, 10, 10, 0], names=list("abcd"))
    report = validate_plan(adopt(problem, [0, 10, 30, 50], objects=[0, 1, 2, 3]))
    assert [found.message for found in report.violations] == [
        "object 1 with b reaches into object 0 with a in bytes 10–19",
        "object 2 with c reaches into object 0 with a in bytes 30–39",
    ]


def test_an_object_reaches_from_its_first_byte_to_its_last():
    # a and b, one byte each at both ends of object 0; d of object 2 ends where b does.
    problem = make_problem([0, 1, 2, 3], [1, 2, 3, 4], [2, 1, 1, 1], names=list("dabc"))
    report = validate_plan(adopt(problem, [8, 0, 9, 5], objects=[2, 0, 0, 1]))
    assert [found.message for found in report.violations] == [
        "object 1 with c reaches into object 0 with b in bytes 5–5",
        "object 2 with d reaches into object 0 with b in bytes 8–9",
    ]


def test_two_of_one_object_live_together_are_named():
    problem = make_problem([0, 1], [3, 4], [8, 4], names=["a", "b"])
    report = validate_plan(adopt(problem, [0, 8], objects=[0, 0]))
    assert report.counts == {Rule.OBJECTS: 1}
    (found,) = report.violations
    assert found.message == "a and b share object 0 and are live together at steps 1–2"
    assert (found.buffers, found.steps, found.byte_range) == (("a", "b"), (1, 3), None)


def test_they_may_not_meet_in_a_gap_either():
    problem = make_problem([0, 2], [6, 4], [8, 8], gaps={0: (Gap(2, 4),)})
    assert validate_plan(adopt(problem, [0, 0])).valid
    assert validate_plan(adopt(problem, [0, 0], objects=[0, 0])).counts == {Rule.OBJECTS: 1}


def test_an_object_that_reaches_into_another_is_named():
    # Never live together, so the bytes may be shared, but then it is one object and not two.
    report = validate_plan(adopt(PAIR, [0, 6], objects=[0, 1]))
    assert report.counts == {Rule.OBJECTS: 1}
    (found,) = report.violations
    assert found.message == "object 1 with b reaches into object 0 with a in bytes 6–7"
    assert (found.buffers, found.byte_range) == (("a", "b"), (6, 8))
    assert validate_plan(adopt(PAIR, [0, 8], objects=[0, 1])).valid
    assert validate_plan(adopt(PAIR, [0, 6], objects=[0, 0])).valid


def test_objects_in_the_way_are_named_by_the_buffers_that_are():
    # Of object 1, a is not at its lowest byte, z has no bytes; d of object 2 begins at the same byte as c.
    problem = make_problem([0, 1, 5, 9, 9], [1, 2, 9, 10, 10], [5, 0, 10, 10, 10], names="azbcd")
    report = validate_plan(adopt(problem, [20, 5, 0, 5, 5], objects=[1, 1, 0, 1, 2]))
    assert [violation.message for violation in report.violations if violation.rule is Rule.OBJECTS] == [
        "object 1 with c reaches into object 0 with b in bytes 5–9",
        "object 2 with d reaches into object 1 with a in bytes 5–14",
    ]
    # Of objects that end at the same byte the lowest is named.
    problem = make_problem([0, 1, 2], [1, 2, 3], [10, 5, 5], names="abc")
    report = validate_plan(adopt(problem, [0, 5, 7], objects=[0, 1, 2]))
    assert [violation.message for violation in report.violations] == [
        "object 1 with b reaches into object 0 with a in bytes 5–9",
        "object 2 with c reaches into object 0 with a in bytes 7–9",
    ]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([0], "1 objects for 2 buffers"),
        ([0, 2], "objects that are not numbered 0, 1, 2 … without a gap"),
        ([0, 2**62], "objects that are not numbered 0, 1, 2 … without a gap"),
        ([-1, 0], "objects that are not numbered 0, 1, 2 … without a gap"),
    ],
)
def test_a_column_of_objects_that_makes_no_sense(objects, message):
    report = validate_plan(adopt(PAIR, [0, 8], objects=objects))
    assert [violation.message for violation in report.violations] == [message]
    assert report.counts == {Rule.OBJECTS: 1}


@given(problem=drawn.problems(least=2, fixed=False), data=st.data())
def test_a_member_moved_to_another_object_is_always_caught_when_it_is_in_the_way(problem, data):
    plan = make_plan(problem, "shared_objects_by_size")
    buffer = data.draw(st.integers(0, len(problem) - 1))
    target = data.draw(st.integers(0, len(problem) - 1))
    moved = plan.objects.copy()
    moved[buffer] = plan.objects[target]
    members = [b for b in np.flatnonzero(moved == moved[buffer]).tolist() if b != buffer]
    if not plain.is_free(problem, members, buffer):
        assert Rule.OBJECTS in validate_plan(replace(plan, objects=moved)).counts


def test_plans_with_and_without_objects_differ_and_both_are_written_and_read(tmp_path):
    plan = make_plan(PAIR, "shared_objects_by_size")
    assert not plan.objects.flags.writeable
    assert plan != replace(plan, objects=None)
    for each in (plan, make_plan(PAIR, "auto")):
        path = tmp_path / f"{each.strategy}.json"
        write_json(each, path)
        assert load(path) == each
    assert b'"objects"' not in (tmp_path / "auto.json").read_bytes()


def test_a_file_with_too_few_objects_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    write_json(make_plan(PAIR, "shared_objects_by_size"), path)
    path.write_text(path.read_text().replace('"objects":[0,0]', '"objects":[0]'))
    with pytest.raises(InputError, match="field objects: found 1 objects, expected 2, one for each buffer"):
        load(path)


def test_a_plan_of_offsets_has_no_table_of_objects():
    with pytest.raises(InputError, match="objects: found auto, a plan of offsets, expected shared objects"):
        object_table(make_plan(PAIR, "auto"))


def test_placements_of_the_family_are_ordinary_placements():
    plan = make_plan(load(memplan_examples.PATH / "gpt2.json"), "shared_objects_by_breadth")
    reference.assert_sound(
        make_problem(plan.problem.start[:60], plan.problem.end[:60], plan.problem.size[:60], alignment=64),
        plan.offsets[:60].tolist(),
    )
    assert validate_plan(replace(plan, objects=None)).valid
