"""Edits of a problem, undo and redo, and the smallest changes that make it fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import drawn
import numpy as np
import pytest
import reference
import tight
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import (
    FREE,
    Align,
    Drop,
    Gap,
    InputError,
    Pin,
    Resize,
    Scenario,
    Shorten,
    Split,
    Verdict,
    apply,
    fit_into,
    make_plan,
    make_problem,
)
from memplan_engine.strategies.budget import Budget
from memplan_engine.what_if import cover
from memplan_engine.what_if.apply import apply_edits
from memplan_engine.what_if.cover import smallest_cover
from memplan_engine.what_if.files import load_edits, write_edits
from memplan_engine.what_if.greedy import Live, greedy_cover, least_losses
from memplan_engine.what_if.shortage import Member, Stretch, find_shortage
from memplan_engine.what_if.suggest import Kind
from memplan_engine.what_if.text import edits_text, parse_edits

#   steps   0   1   2   3   4
#   a (100) ├───────────┤
#   b  (50)     ├───────────┤
#   c (120)             ├───────┤     live: 100, 150, 150, 170, 120
ABC = make_problem([0, 1, 3], [3, 4, 5], [100, 50, 120], names=["a", "b", "c"])
WINDOWS = make_problem(
    [0, 0], [6, 6], [100, 7], alignment=[16, 1], names=["x", "y"], gaps={0: (Gap(1, 3, 20, 60), Gap(4, 5))}
)


def rows(problem):
    return [(b.name, b.start, b.end, b.size) for b in map(problem.__getitem__, range(len(problem)))]


# Edits.


def test_each_edit_by_hand():
    assert apply(ABC, [Pin("b", 7)]).fixed.tolist() == [FREE, 7, FREE]
    assert apply(ABC, [Pin("b", 7), Pin("b", None)]) == ABC
    assert apply(ABC, [Resize("b", 51)]).size.tolist() == [100, 51, 120]
    assert apply(ABC, [Align("c", 64)]).alignment.tolist() == [1, 1, 64]
    assert rows(apply(ABC, [Drop("b")])) == [("a", 0, 3, 100), ("c", 3, 5, 120)]
    assert rows(apply(ABC, [Shorten("b", 2, 3)]))[1] == ("b", 2, 3, 50)
    assert apply(ABC, [Drop("c")]).steps == 5
    assert apply(ABC, []) is ABC


def test_parts_stand_where_the_whole_was_and_can_be_edited_in_turn():
    made = apply_edits(ABC, [Split("b", 3), Drop("b#2"), Resize("b#3", 1), Split("b#1", 2)])
    assert rows(made.problem) == [
        ("a", 0, 3, 100), ("b#1#1", 1, 4, 8), ("b#1#2", 1, 4, 8), ("b#3", 1, 4, 1), ("c", 3, 5, 120),
    ]  # fmt: skip
    assert made.source.tolist() == [0, 1, 1, 1, 2]


def test_parts_are_whole_units_and_keep_their_windows_and_their_place():
    made = apply(WINDOWS, [Split("x", 3)])
    assert made.size.tolist() == [32, 32, 36, 7]
    assert made.gaps == {
        0: (Gap(1, 3, 20, 32), Gap(4, 5)),
        1: (Gap(1, 3, 0, 28), Gap(4, 5)),
        2: (Gap(1, 3), Gap(4, 5)),
    }
    pinned = apply(WINDOWS, [Pin("x", 160), Split("x", 3)])
    assert pinned.fixed.tolist() == [160, 192, 224, FREE]


def test_gaps_follow_size_and_lifetime():
    assert apply(WINDOWS, [Resize("x", 40)]).gaps == {0: (Gap(1, 3, 20, 40), Gap(4, 5))}
    assert apply(WINDOWS, [Resize("x", 10)]).gaps == {0: (Gap(1, 3), Gap(4, 5))}
    assert apply(WINDOWS, [Shorten("x", 2, 4)]).gaps == {0: (Gap(2, 3, 20, 60),)}
    assert apply(WINDOWS, [Shorten("x", 5, 6)]).gaps == {}


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([Drop("b"), Drop("b")], "edit 2 (drop 'b'), field buffer: found no such buffer"),
        ([Split("b", 2), Drop("b")], "edit 2 (drop 'b'), field buffer: found no such buffer"),
        ([Pin("b", -1)], "edit 1 (pin 'b'), field offset: found -1, expected 0 or more bytes"),
        ([Align("b", 64), Pin("b", 65)], "edit 2 (pin 'b'), field offset: found 65, expected a multiple of"),
        ([Pin("b", 65), Align("b", 64)], "field alignment: found 64, expected one that divides the fixed"),
        ([Align("b", 0)], "field alignment: found 0, expected 1 or more bytes"),
        ([Resize("b", -5)], "edit 1 (resize 'b'), field nbytes: found -5, expected 0 or more bytes"),
        ([Shorten("b", 0, 3)], "edit 1 (lifetime 'b'), field start: found 0:3, expected steps within the"),
        ([Shorten("b", 2, 5)], "field end: found 2:5, expected steps within the lifetime 1:4"),
        ([Shorten("b", 2, 2)], "field end: found 2:2"),
        ([Split("b", 1)], "edit 1 (split 'b'), field parts: found 1, expected 2 to 4096"),
        ([Split("b", 51)], "field parts: found 51, expected at most 50"),
        ([Resize("b", 2**62), Resize("a", 2**62)], "column size: found sizes, alignments and offsets"),
    ],
)
def test_what_cannot_be_names_the_edit_and_the_field(edits, told):
    with pytest.raises(InputError) as raised:
        apply(ABC, edits)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_part_may_not_take_the_name_of_another_buffer():
    twins = make_problem([0, 0], [1, 1], [4, 4], names=["b", "b#2"])
    with pytest.raises(InputError, match=r"field parts: found 'b#2', expected a name that no other buffer"):
        apply(twins, [Split("b", 2)])


@st.composite
def edits_of(draw, problem):
    """One edit that `problem` can bear."""
    row = draw(st.integers(0, len(problem) - 1))
    b = problem[row]
    step = draw(st.integers(b.start, b.end - 1))
    choices = [Drop(b.name), Resize(b.name, draw(st.integers(0, 20))), Pin(b.name, None)]
    choices += [Shorten(b.name, step, draw(st.integers(step + 1, b.end)))]
    choices += [Align(b.name, draw(st.integers(1, 4)))] if b.fixed is None else []
    units = -(-b.size // b.alignment)
    choices += [Split(b.name, draw(st.integers(2, units)))] if units > 1 else []
    return draw(st.sampled_from(choices))


@given(data=st.data(), problem=drawn.problems(least=1, most=8))
@settings(max_examples=60, deadline=None)
def test_edits_keep_problems_sound_and_undo_gives_the_original(data, problem):
    scenario, seen = Scenario(), [problem]
    for _ in range(data.draw(st.integers(1, 4))):
        if not len(seen[-1]):
            break
        scenario = scenario.add(data.draw(edits_of(seen[-1])))
        seen.append(scenario.of(problem))
    made = apply_edits(problem, scenario.edits)
    assert made.problem == seen[-1]
    assert (np.diff(made.source) >= 0).all()
    assert parse_edits(edits_text(scenario.edits)) == scenario.edits
    plan = make_plan(made.problem, "greedy_by_size") if not (made.problem.fixed != FREE).any() else None
    if plan is not None:
        reference.assert_sound(made.problem, plan.offsets.tolist())
    back = scenario
    for before in reversed(seen[:-1]):
        back = back.undo()
        assert back.of(problem) == before
    for after in seen[1:]:
        back = back.redo()
        assert back.of(problem) == after
    assert (back, back.redo()) == (scenario, scenario)


def test_a_split_keeps_the_live_bytes():
    for problem in tight.many(tight.drawn, 20, seed=3):
        whole = replace(problem, alignment=np.ones_like(problem.alignment))
        large = problem.names[int(np.argmax(problem.size))]
        if problem.size.max() > 1:
            assert reference.load(apply(whole, [Split(large, 2)])) == reference.load(whole)


def test_a_scenario_is_a_value():
    one = Scenario().add(Drop("a"), Drop("b"))
    assert one.undo() == Scenario((Drop("a"),), (Drop("b"),))
    assert one.undo().add(Drop("c")) == Scenario((Drop("a"), Drop("c")))
    assert one.without(0) == Scenario((Drop("b"),))
    assert Scenario().undo() == Scenario() == Scenario().redo()


# Text and JSON.

EVERY = (
    Pin("a=b;c%3D", 7), Pin("é ", None), Resize("x", 0), Split("x:y", 3), Drop("d/e[0]"),
    Shorten("z", 0, 2**62), Align("w", 64),
)  # fmt: skip


def test_edits_go_into_an_address_and_into_a_file_and_back(tmp_path):
    text = edits_text(EVERY)
    assert text.startswith("pin:a%3Db%3Bc%253D=7;pin:é =free;resize:x=0;split:x:y=3;drop:d/e[0];")
    assert parse_edits(text) == EVERY
    assert parse_edits("") == ()
    write_edits(EVERY, tmp_path / "edits.json")
    assert load_edits(tmp_path / "edits.json") == EVERY


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "edits: edit 1: found 'nonsense', expected KIND:NAME"),
        ("drop:a;grow:b=1", "edits: edit 2: found 'grow:b=1'"),
        ("drop:", "edit 1: found 'drop:'"),
        ("drop:a=1", "edit 1 (drop): found '1', expected a name alone"),
        ("resize:a", "edit 1 (resize): found '', expected a whole number"),
        ("resize:a=-1", "found '-1', expected a whole number"),
        ("resize:a=٣", "expected a whole number"),
        ("pin:a=x", "found 'x', expected a whole number or free"),
        ("lifetime:a=3", "found '3', expected START:END in steps"),
        ("lifetime:a=3:x", "found 'x', expected START:END"),
        ("resize:a=" + "9" * 5000, "expected a whole number"),
        (";" * 300, "found 301 edits, expected at most 200"),
    ],
)
def test_nonsense_in_an_address_is_explained(text, told):
    with pytest.raises(InputError) as raised:
        parse_edits(text)
    assert told in str(raised.value)


HEAD = '{"format": "memplan/edits", "version": 1, "edits": '


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"format": "memplan/plan", "version": 1}', "field format: found 'memplan/plan'"),
        ('{"format": "memplan/edits", "version": 2}', "field version: found '2'"),
        (HEAD + '[{"kind": "drop"}]}', "edits[0]"),
        (HEAD + '[{"kind": "x", "buffer": "a"}]}', "edits[0]"),
        (HEAD + '[{"kind": "pin", "buffer": "a", "offset": 1.5}]}', "offset"),
        ("{", "broken JSON"),
    ],
)
def test_nonsense_in_a_file_is_explained(tmp_path, content, told):
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(InputError) as raised:
        load_edits(tmp_path / "e.json")
    assert told.replace("'2'", "2") in str(raised.value).replace("'2'", "2")


# Does it fit?


def found(problem, capacity, **budget):
    fit = fit_into(make_plan(problem, budget=Budget(2)), capacity, budget=Budget(5, **budget), seconds=10)
    assert fit.complete
    for each in fit.suggestions:
        plan = make_plan(apply(problem, each.edits), budget=Budget(2))
        assert plan.arena_bytes <= capacity
        reference.assert_sound(plan.problem, plan.offsets.tolist())
    return fit


def test_what_fits_needs_no_change():
    fit = found(ABC, 170)
    assert (fit.decision.verdict, fit.shortage, fit.suggestions) == (Verdict.FITS, None, ())


def test_the_shortage_by_hand():
    short = find_shortage(ABC, 140)
    assert (short.nbytes, short.step) == (30, 3)
    assert short.stretches == (Stretch(1, 4, 170),)
    assert short.members == (Member(1, 50, 3), Member(0, 100, 2), Member(2, 120, 1))
    assert (short.steps, short.single) == (3, (1,))
    assert find_shortage(ABC, 170) is None
    # At steps 1 and 2 ten bytes are too many, and x has its window of 40 alive; at step 4 it has nothing.
    windowed = find_shortage(WINDOWS, 37)
    assert windowed.single == (0,)
    assert windowed.stretches == (Stretch(0, 4, 107), Stretch(5, 6, 107))
    assert find_shortage(WINDOWS, 6).single == ()
    assert find_shortage(WINDOWS, 6).stretches == (Stretch(0, 6, 107),)


def test_the_smallest_change_of_each_kind_by_hand():
    kinds = {each.kind: each for each in found(ABC, 140).suggestions}
    assert [each.nbytes for each in found(ABC, 140).suggestions] == [30, 50]
    assert kinds[Kind.SHRINK].edits == (Resize("b", 20),)
    assert kinds[Kind.DROP].edits == (Drop("b"),)
    # b is there from the first overfull step on: its end cannot be cut, nor that of anything smaller.
    assert Kind.CUT not in kinds
    assert all(each.proved for each in kinds.values())
    cut = {each.kind: each for each in found(ABC, 160).suggestions}[Kind.CUT]
    assert (cut.edits, cut.nbytes, cut.arena_bytes, cut.proved) == ((Shorten("b", 1, 3),), 50, 150, True)


def test_no_single_drop_then_the_fewest():
    # Two peaks of three buffers each: one of each must go, and the smallest that is enough.
    problem = make_problem([0, 0, 0, 5, 5, 5], [2, 2, 2, 7, 7, 7], [10, 4, 6, 3, 8, 9], names=list("abcdef"))
    fit = found(problem, 14)
    by_kind = {each.kind: each for each in fit.suggestions}
    assert set(by_kind) == {Kind.DROP_SEVERAL, Kind.SHRINK_SEVERAL}
    dropped, shrunk = by_kind[Kind.DROP_SEVERAL], by_kind[Kind.SHRINK_SEVERAL]
    assert (dropped.edits, dropped.nbytes, dropped.proved) == ((Drop("c"), Drop("e")), 14, True)
    assert {each.buffer: each.nbytes for each in shrunk.edits} == {"c": 0, "e": 2}
    assert (shrunk.nbytes, shrunk.proved) == (12, False)
    assert fit.shortage.single == ()


def test_where_only_packing_stands_in_the_way_one_byte_is_enough_and_proved():
    problem = make_problem(*tight.NO_WAY_OUT.T, names=list("abcdefghi"))
    fit = found(problem, 5)
    assert fit.decision.verdict is Verdict.DOES_NOT_FIT
    assert fit.shortage is None
    kinds = {each.kind: each for each in fit.suggestions}
    assert kinds[Kind.DROP].nbytes == 1
    assert kinds[Kind.DROP].proved
    assert all(each.nbytes <= 2 for each in kinds.values())
    # With one byte fewer than the live bytes, one byte is too many there as well.
    assert find_shortage(problem, 4).nbytes == 1


def test_offsets_and_alignments_that_are_in_the_way_are_relaxed_first():
    pinned = make_problem([0, 0], [1, 1], [4, 2], fixed=[10, FREE], names=["p", "q"])
    assert found(pinned, 6).suggestions[0].edits == (Pin("p", None),)
    aligned = make_problem([0, 0, 0], [1, 1, 1], [5, 5, 5], alignment=[1, 1, 8], names=list("xyz"))
    assert find_shortage(aligned, 15) is None
    assert found(aligned, 15).decision.verdict is Verdict.FITS
    two = make_problem([0, 0], [1, 1], [5, 5], alignment=8, names=["x", "y"])
    fit = found(two, 10)
    assert fit.suggestions[0].kind is Kind.RELAX
    assert fit.suggestions[0].nbytes == 0


def least_drops(problem, capacity):
    """By brute force on live bytes: the fewest buffers, then the fewest bytes."""
    for count in range(len(problem) + 1):
        sums = [
            sum(int(problem.size[row]) for row in rows)
            for rows in combinations(range(len(problem)), count)
            if reference.load(apply(problem, [Drop(problem.names[row]) for row in rows])) <= capacity
        ]
        if sums:
            return count, min(sums)
    raise AssertionError


@given(problem=drawn.problems(least=1, most=7, fixed=False), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_cover_is_the_smallest_there_is(problem, share):
    capacity = int(reference.load(problem) * share)
    found = smallest_cover(problem, capacity)
    assert found.exact
    greedy = greedy_cover(problem, Live.of(problem), capacity, lambda: False)
    for rows in (found.rows, greedy):
        assert reference.load(apply(problem, [Drop(problem.names[row]) for row in rows])) <= capacity
    for row in greedy:
        rest = [Drop(problem.names[each]) for each in greedy if each != row]
        assert reference.load(apply(problem, rest)) > capacity
    size = int(problem.size[list(found.rows)].sum())
    assert (len(found.rows), size) == least_drops(problem, capacity)
    losses = least_losses(problem, found.rows, capacity)
    edits = [Resize(problem.names[row], int(problem.size[row]) - loss) for row, loss in losses.items()]
    assert reference.load(apply(problem, edits)) <= capacity


def test_a_cover_that_is_too_large_for_the_exact_search_says_so(monkeypatch):
    monkeypatch.setattr(cover, "MOST_LOOKS", 0)
    # Steps 1 to 3 hold 150, 150 and 170: without c, a at its two steps is as good as b at three.
    found = smallest_cover(ABC, 99)
    assert (found.rows, found.exact) == ((0, 2), False)
    assert smallest_cover(ABC, 99, stop=lambda: True) is None


@given(
    problem=drawn.problems(
        least=1, most=6, steps=5, largest=6, fixed=False, gaps=False, alignments=st.sampled_from([1, 1, 2])
    ),
    less=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_suggestions_fit_and_nothing_smaller_does_where_that_is_proved(problem, less):
    capacity = reference.least_arena(problem) - less
    if capacity < 0:
        return
    fit = found(problem, capacity)
    assert fit.decision.verdict is Verdict.DOES_NOT_FIT
    size = problem.size.tolist()

    def works(*edits):
        return reference.least_arena(apply(problem, edits)) <= capacity

    for each in [each for each in fit.suggestions if each.proved]:
        if each.kind is Kind.SHRINK:
            for name, nbytes in zip(problem.names, size, strict=True):
                assert not works(Resize(name, max(0, nbytes - each.nbytes + 1)))
        elif each.kind is Kind.DROP:
            smaller = [n for n, nbytes in zip(problem.names, size, strict=True) if nbytes < each.nbytes]
            assert not any(works(Drop(name)) for name in smaller)
        elif each.kind is Kind.CUT:
            for row, name in enumerate(problem.names):
                ends = range(int(problem.start[row]) + 1, int(problem.end[row]))
                if size[row] < each.nbytes:
                    assert not any(works(Shorten(name, int(problem.start[row]), end)) for end in ends)
    # Where one buffer is enough by itself, that is found.
    single = any(works(Drop(name)) for name in problem.names)
    assert single == any(each.kind is Kind.DROP for each in fit.suggestions)
