"""The smallest changes that make a problem fit into a capacity."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import (
    FREE,
    Align,
    Drop,
    Pin,
    Resize,
    Shorten,
    Split,
    Verdict,
    apply,
    fit_into,
    make_plan,
    make_problem,
)
from memplan_engine.reporters.what_if_tables import proof_words, suggestion_words
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.what_if.suggestions import cover, suggest
from memplan_engine.what_if.suggestions.cover import (
    Member,
    Stretch,
    find_shortage,
    greedy_cover,
    least_losses,
    smallest_cover,
)
from memplan_engine.what_if.suggestions.suggest import Kind
from tests.support import drawn, reference, tight
from tests.what_if.test_what_if import ABC, WINDOWS

NODES = 5_000_000


def found(problem, capacity):
    fit = fit_into(
        make_plan(problem, limits=SolveLimits(nodes=NODES)), capacity, limits=SolveLimits(nodes=NODES)
    )
    assert fit.complete
    for each in fit.suggestions:
        plan = make_plan(apply(problem, each.edits), limits=SolveLimits(nodes=NODES))
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
    # At steps 1 and 2 ten bytes are too many, and x has its window of 40 live; at step 4 it has nothing.
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


def relaxations(fit):
    return [each.edits for each in fit.suggestions if each.kind is Kind.RELAX]


def test_every_way_to_relax_is_offered_offsets_first_then_alignments_then_splits(monkeypatch):
    # d lies at 4, e is too long for below it and would begin at 6 above it: 12 bytes. Free, d goes on top of
    # e (7); e at any byte begins at 5 (11); e in parts of 2 and 4 has both sides of d (8).
    problem = make_problem([0, 0], [1, 1], [1, 6], alignment=[1, 2], fixed=[4, FREE], names=["d", "e"])
    pin, align, split = (Pin("d", None),), (Align("e", 1),), (Split("e", 2),)
    fit = found(problem, 11)
    assert relaxations(fit) == [pin, align, split]
    assert [each.edits for each in fit.suggestions[:3]] == [pin, align, split]
    assert [suggestion_words(each, problem) for each in fit.suggestions[:3]] == [
        "free the offset of d",
        "align e to 1 B",
        "split e into 2",
    ]
    assert relaxations(found(problem, 10)) == [pin, split]
    assert relaxations(found(problem, 7)) == [pin]
    assert relaxations(found(problem, 6)) == []
    # However few buffers are tried, it is the ones that have an offset to free.
    monkeypatch.setattr(suggest, "MOST_TRIES", 1)
    assert relaxations(found(problem, 11)) == [pin, align, split]


def test_of_two_offsets_either_of_which_is_enough_the_larger_buffer_is_freed():
    # Beside p at 3 and q at 6 are 3, 2 and 2 bytes of 10, and r has 4; without p, or without q, there are 6.
    problem = make_problem([0] * 3, [1] * 3, [1, 2, 4], fixed=[3, 6, FREE], names=list("pqr"))
    assert make_plan(apply(problem, [Pin("p", None)])).arena_bytes <= 10
    assert relaxations(found(problem, 10)) == [(Pin("q", None),), (Split("r", 2),)]


def test_where_only_a_buffer_that_loses_all_its_bytes_can_do_with_less_that_is_said():
    # d lies at 2: e has 2 bytes of 5 below it and 2 above. With 3 of its 4 it has no room, but without d.
    problem = make_problem([0, 0], [1, 1], [1, 4], fixed=[2, FREE], names=["d", "e"])
    shrunk, dropped = (
        {each.kind: each for each in found(problem, 5).suggestions}[kind] for kind in (Kind.SHRINK, Kind.DROP)
    )
    assert (shrunk.edits, shrunk.nbytes) == ((Resize("e", 2),), 2)
    assert (dropped.edits, dropped.nbytes) == ((Drop("d"),), 1)
    assert (shrunk.proved, shrunk.short_of_all) == (False, True)
    assert proof_words(shrunk) == "proved: no smaller shrink of one buffer is enough, short of all its bytes"
    # With 2 bytes d has 1 left at a loss of 1, and is in the way of e still.
    both = make_problem([0, 0], [1, 1], [2, 4], fixed=[2, FREE], names=["d", "e"])
    shrunk = {each.kind: each for each in found(both, 5).suggestions}[Kind.SHRINK]
    assert (shrunk.edits, shrunk.proved, shrunk.short_of_all) == ((Resize("e", 2),), True, False)
    assert proof_words(shrunk) == "proved: no smaller shrink of one buffer is enough"


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
def test_the_cover_is_the_smallest_there_is(problem, share):
    capacity = int(reference.load(problem) * share)
    found = smallest_cover(problem, capacity)
    assert found.exact
    greedy = greedy_cover(problem, capacity, lambda: False)
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
def test_suggestions_fit_and_nothing_smaller_does_where_that_is_proved(problem, less):
    capacity = reference.least_arena(problem) - less
    if capacity < 0:
        return
    fit = found(problem, capacity)
    assert fit.decision.verdict is Verdict.DOES_NOT_FIT
    size = problem.size.tolist()

    def works(*edits):
        return reference.least_arena(apply(problem, edits)) <= capacity

    for each in [each for each in fit.suggestions if each.proved or each.short_of_all]:
        if each.kind is Kind.SHRINK:
            for name, nbytes in zip(problem.names, size, strict=True):
                least = min(1, nbytes) if each.short_of_all else 0
                assert not works(Resize(name, max(least, nbytes - each.nbytes + 1)))
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
