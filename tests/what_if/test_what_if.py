"""Edits of a problem, undo and redo, in an address and in a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
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
    apply,
    make_plan,
    make_problem,
)
from memplan_engine.formats.memplan_json.edits_format import load_edits, write_edits
from memplan_engine.what_if.apply import apply_edits
from memplan_engine.what_if.edits import edits_text, parse_edits
from tests.support import drawn, reference, tight

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
        ([Drop("b"), Drop("b")], "edit 2 (drop 'b'), field buffer: no such buffer"),
        ([Split("b", 2), Drop("b")], "edit 2 (drop 'b'), field buffer: no such buffer"),
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
        ("drop:a=1", "edit 1 (drop): found '1', expected a name only"),
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
