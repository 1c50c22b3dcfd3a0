"""Building problems: what is refused, with names; what is kept; equality."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from memplan_engine.errors import InputError
from memplan_engine.problem import FREE, Buffer, Gap, make_problem


def build(**changes):
    columns = {"start": [0, 1], "end": [2, 3], "size": [10, 20], "names": ["a", "b"], "name": "net"}
    return make_problem(**{**columns, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"end": [2]}, "net: column end: found 1 values, expected 2, as many as start has"),
        ({"names": ["a"]}, "net: column names: found 1 values, expected 2, as many as start has"),
        ({"alignment": [4]}, "net: column alignment: found 1 values, expected 2, as many as start has"),
        ({"names": ["a", "a"]}, "net: buffer 'a': found the name twice, expected unique names"),
        ({"start": [0, -1]}, "net: buffer 'b': found start -1, expected 0 or more"),
        (
            {"start": [0, 3]},
            "net: buffer 'b': found end 3 (half-open) with start 3, expected an end after the start",
        ),
        ({"size": [-7, 20]}, "net: buffer 'a': found size -7, expected 0 or more bytes"),
        ({"alignment": 0}, "net: buffer 'a': found alignment 0, expected 1 or more"),
        ({"fixed": [FREE, -2]}, "net: buffer 'b': found offset -2, expected 0 or more bytes"),
        (
            {"fixed": [FREE, 12], "alignment": 8},
            "net: buffer 'b': found offset 12, expected a multiple of alignment 8",
        ),
        ({"steps": 2}, "net: steps: found 2, expected at least 3, the last end"),
        ({"gaps": {2: (Gap(0, 1),)}}, "net: gaps: found buffer 2, expected an index below 2"),
        ({"gaps": {-1: (Gap(0, 1),)}}, "net: gaps: found buffer -1, expected an index below 2"),
    ],
)
def test_what_is_refused_is_named(changes, message):
    with pytest.raises(InputError) as caught:
        build(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "values",
    [[0.5, 1], ["x", "y"], [2**63, 1], [-(2**63) - 1, 1], [None, 1], [True, False], [[1, 2], [3, 4]]],
)
def test_columns_that_are_no_64_bit_integers_are_refused(values):
    with pytest.raises(InputError, match=r"column size: found values that are not 64-bit integers"):
        build(size=values)


def test_unsigned_numbers_past_the_limit_are_refused_and_do_not_turn_negative():
    assert build(size=np.array([1, 2], dtype=np.uint64)).size.tolist() == [1, 2]
    with pytest.raises(InputError, match="column start: found values that are not 64-bit"):
        build(start=np.array([2**63, 2], dtype=np.uint64))


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (Gap(0, 3), "buffer 'a': found gap 0-3, expected gaps inside the lifetime 2-9"),
        (Gap(4, 10), "buffer 'a': found gap 4-10"),
        (Gap(5, 5), "buffer 'a': found gap 5-5"),
        (Gap(4, 6, 3, 11), "buffer 'a': found gap window 3:11, expected a window within 0:10"),
        (Gap(4, 6, 5, 4), "buffer 'a': found gap window 5:4"),
        (Gap(4, 6, -1, 4), "buffer 'a': found gap window -1:4"),
    ],
)
def test_a_gap_that_leaves_its_buffer_is_named(gap, message):
    with pytest.raises(InputError, match=message):
        make_problem([2], [9], [10], names=["a"], gaps={0: (gap,)})


def test_gaps_that_overlap_are_refused():
    with pytest.raises(
        InputError, match="found gap 4-6, expected gaps inside the lifetime 0-9 that do not overlap"
    ):
        make_problem([0], [9], [10], gaps={0: (Gap(2, 5), Gap(4, 6))})


@pytest.mark.parametrize(
    ("size", "alignment", "fixed", "sound"),
    [
        ([2**62, 2**62 - 3], 1, None, True),
        ([2**62, 2**62 - 2], 1, None, False),
        ([2**63 - 3], 2, None, True),
        ([2**63 - 3], 3, None, False),
        ([1, 1], 1, [2**63 - 5, FREE], True),
        ([1, 1], 1, [2**63 - 4, FREE], False),
    ],
)
def test_sums_are_exact_up_to_the_last_byte_below_2_to_the_63(size, alignment, fixed, sound):
    n = len(size)
    if sound:
        assert make_problem([0] * n, [1] * n, size, alignment=alignment, fixed=fixed).total_bytes == sum(size)
        return
    with pytest.raises(
        InputError, match=r"column size: found sizes, alignments and offsets that sum to 92233720"
    ):
        make_problem([0] * n, [1] * n, size, alignment=alignment, fixed=fixed)


def test_a_sum_that_floats_would_round_to_less_than_the_limit_is_refused():
    sizes = [2**61 + 255] * 3 + [2**61 - 700]
    assert sum(sizes) > 2**63 > sum(map(float, sizes))
    with pytest.raises(InputError, match="that sum to 9223372036854775877, expected a sum below"):
        make_problem([0] * 4, [1] * 4, sizes)


def test_rows_read_back():
    gaps = {1: (Gap(4, 5), Gap(2, 3, 1, 2))}
    problem = build(end=[2, 9], alignment=[4, 1], fixed=[8, FREE], gaps=gaps, steps=12)
    assert len(problem) == 2
    assert problem[0] == Buffer("a", 0, 2, 10, 4, 8, ())
    assert problem[1] == Buffer("b", 1, 9, 20, 1, None, (Gap(2, 3, 1, 2), Gap(4, 5)))
    assert (problem.steps, problem.total_bytes) == (12, 30)


def test_defaults():
    problem = make_problem([0, 4], [2, 7], [1, 2])
    assert problem.names == ("0", "1")
    assert problem.alignment.tolist() == [1, 1]
    assert problem.fixed.tolist() == [FREE, FREE]
    assert (problem.steps, problem.gaps, problem.origin) == (7, {}, None)
    assert make_problem([], [], []).steps == 0


def test_one_number_is_an_alignment_for_all_of_any_integer_type():
    for alignment in (8, np.int64(8), np.uint8(8)):
        assert build(alignment=alignment).alignment.tolist() == [8, 8]


def test_the_columns_are_copies_that_nobody_can_write():
    size = np.array([10, 20])
    problem = build(size=size)
    size[0] = 99
    assert problem.size.tolist() == [10, 20]
    for column in (problem.start, problem.end, problem.size, problem.alignment, problem.fixed):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_the_gaps_are_a_copy():
    gaps = {0: (Gap(0, 1),)}
    problem = build(gaps=gaps)
    gaps[1] = (Gap(1, 2),)
    assert list(problem.gaps) == [0]


def test_equality_looks_at_everything_but_name_and_origin():
    same = build(name="other")
    assert same == build()
    assert hash(same) == hash(build())
    assert same.fingerprint == build().fingerprint
    gap = {0: (Gap(0, 1),)}
    different = [
        {"start": [1, 1]},
        {"end": [2, 4]},
        {"size": [10, 21]},
        {"names": ["a", "c"]},
        {"alignment": 2},
        {"fixed": [0, FREE]},
        {"steps": 4},
        {"gaps": gap},
        {"gaps": {0: (Gap(0, 1, 2, 3),)}},
    ]
    fingerprints = {build(**changes).fingerprint for changes in different}
    assert len(fingerprints) == len(different)
    assert build().fingerprint not in fingerprints
    assert build() != "net"


def test_gaps_of_numpy_integers_are_the_same_gaps():
    gap = Gap(*(np.int64(value) for value in (0, 1, 2, 3)))
    assert build(gaps={np.int64(0): (gap,)}).fingerprint == build(gaps={0: (Gap(0, 1, 2, 3),)}).fingerprint


def test_a_problem_travels_to_another_process():
    problem = build(gaps={0: (Gap(0, 1),)})
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert copy.deepcopy(problem) == problem
