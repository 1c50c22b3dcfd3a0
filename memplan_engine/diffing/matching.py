"""Which buffer, or op, of one side stands for which of the other, however they are numbered.

Names are tried first, order second, and what matches more is believed: names that a tracer numbers shift as
soon as one op is inserted, names that people give do not. What is left is matched by ever weaker evidence,
always within the stretch between two matches that keep the order. The anchors within a stretch are what is
there once on both sides (Cohen's patience diff), then a longest common subsequence (Myers) settles the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.diffing.traits import Flags, Things, Traits, buffers_of, compare_traits, fold, has_origin
from memplan_engine.kernels.alignment import NOBODY, align_stretches, longest_increasing
from memplan_engine.problem import Ints, Problem

MOST_EDITS = 1_000
"""Two stretches that differ by more than this many insertions and deletions are not aligned any further."""
MOST_ROUNDS = 4
"""How often what is there once is looked for again between what was found."""
RELATED = 0.25
"""Below this share of matches two problems are called unrelated."""


class How(StrEnum):
    """What a match rests on: the first of these that holds."""

    NAME = "same name"
    ALIKE = "same module, op and shape"
    RESIZED = "same module and op"
    RETYPED = "same module and op in another dtype"
    RENAMED = "same op"


HOWS = tuple(How)


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """`head_of[b]` is the head's row that stands for row b of the base, NOBODY if none does; `base_of` is the
    other way round; `how[b]` is the place in HOWS of what the match rests on, NOBODY without a match."""

    head_of: Ints
    base_of: Ints
    how: Ints

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """The rows that are matched, of base and of head, in the base's order."""
        base = np.flatnonzero(self.head_of != NOBODY)
        return base, self.head_of[base]

    @property
    def rows(self) -> tuple[Ints, Ints]:
        """A row of base and one of head for all that there is, NOBODY for none: the pairs, then what only
        base has, then what only head has."""
        base, head = self.pairs
        removed, added = np.flatnonzero(self.head_of == NOBODY), np.flatnonzero(self.base_of == NOBODY)
        return (
            np.concatenate([base, removed, np.full(len(added), NOBODY)]),
            np.concatenate([head, np.full(len(removed), NOBODY), added]),
        )

    @property
    def share(self) -> float:
        """The share of all that have a match, both sides taken together; 1.0 when there is nothing at all."""
        every = len(self.head_of) + len(self.base_of)
        return 2 * int((self.head_of != NOBODY).sum()) / every if every else 1.0

    def counts(self) -> dict[How, int]:
        """How many matches rest on what."""
        counts = np.bincount(self.how[self.how != NOBODY], minlength=len(HOWS)).tolist()
        return {how: count for how, count in zip(HOWS, counts, strict=True) if count}


def values_of(values: Ints, rows: Ints) -> Ints:
    """The values of these rows, 0 where there is none."""
    chosen: Ints = np.where(rows == NOBODY, 0, np.append(values, 0)[rows])
    return chosen


def match_buffers(base: Problem, head: Problem) -> Matching:
    """The buffers of `head` that stand for those of `base`.

    Where one side has neither graph nor callers, what the other's know is no help: names, sizes and order
    decide.
    """
    with_origin = has_origin(base) and has_origin(head)
    return match_things(buffers_of(base, with_origin), buffers_of(head, with_origin))


def match_things(base: Things, head: Things) -> Matching:
    """The things of `head` that stand for those of `base`: O(n log n)."""
    traits = compare_traits(base, head)
    mate = _search(traits).mate
    at = np.flatnonzero(mate != NOBODY)
    head_of, how = np.full((2, len(base.rows)), NOBODY, dtype=np.int64)
    base_of = np.full(len(head.rows), NOBODY, dtype=np.int64)
    head_of[base.rows[at]] = head.rows[mate[at]]
    base_of[head.rows[mate[at]]] = base.rows[at]
    how[base.rows[at]] = _reasons(traits, at, mate[at])
    for column in (head_of, base_of, how):
        column.flags.writeable = False
    return Matching(head_of, base_of, how)


def _reasons(traits: Traits, base: Ints, head: Ints) -> Ints:
    """The place in HOWS of what each match rests on."""
    equal = {
        name: column[base] == column[traits.split + head]
        for name, column in (
            ("name", traits.name),
            ("same", traits.same),
            ("kind", traits.kind),
            ("module", traits.module),
            ("call", traits.call),
        )
    }
    alike = equal["kind"] & equal["module"]
    rules = (
        (How.NAME, equal["name"] & alike),
        (How.ALIKE, equal["same"]),
        (How.RESIZED, alike),
        (How.RETYPED, equal["call"] & ~equal["kind"]),
    )
    return np.select(
        [rule for _, rule in rules], [HOWS.index(how) for how, _ in rules], HOWS.index(How.RENAMED)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Matches so far, by place in time: the mate of each thing of the base, and whether each of the head is
    taken."""

    mate: Ints
    paired: Flags

    def add(self, base: Ints, head: Ints) -> _Matches:
        """These matches, too."""
        mate, paired = self.mate.copy(), self.paired.copy()
        mate[base], paired[head] = head, True
        return _Matches(mate, paired)

    def anchors(self) -> tuple[Ints, Ints]:
        """As many matches as possible that keep the order, of base and of head."""
        base = np.flatnonzero(self.mate != NOBODY)
        increasing = longest_increasing(self.mate[base])
        return base[increasing], self.mate[base[increasing]]

    @property
    def complete(self) -> bool:
        """Whether one side has nothing left to match."""
        return bool((self.mate != NOBODY).all() or self.paired.all())


def _search(traits: Traits) -> _Matches:
    matches = _first(traits)
    if matches.complete:
        return matches
    alike = fold(traits.same, traits.stem)
    matches = _in_order(matches, alike)
    matches = _in_equal_number(matches, alike, traits.has_op | traits.telling)
    # Without an op a stem says little: then its name has to be telling, or its lifetime the same.
    matches = _in_order(matches, fold(traits.op, traits.stem), traits.has_op | traits.telling)
    matches = _in_equal_number(matches, fold(traits.op, traits.name, traits.context), ~traits.has_op)
    # Names that hold a line number are new when a line was added above: then size and lifetime tell more.
    matches = _in_order(matches, fold(traits.same, traits.context), traits.has_op)
    matches = _in_order(matches, traits.op, traits.in_module)
    matches = _in_order(matches, fold(traits.kind, traits.shape, traits.size), traits.has_op)
    matches = _in_equal_number(matches, fold(traits.kind, traits.name), traits.telling)
    return _in_order(matches, fold(traits.call, traits.stem), traits.has_op)


def _first(traits: Traits) -> _Matches:
    """The best of three ways to begin: by names, by what is alike in order, by ops in order of any size."""
    matches = _by_name(traits)
    best = _score(matches, traits)
    if best == 3 * min(len(matches.mate), len(matches.paired)):
        return matches
    alike = fold(traits.same, traits.stem), None
    ops = fold(traits.op, traits.stem), traits.has_op | traits.telling
    for stages in ((alike, ops), (ops,)):
        other = _nothing(traits)
        for codes, mask in stages:
            other = _in_order(other, fold(codes, traits.context), mask)
        for codes, mask in stages:
            other = _in_order(other, codes, mask)
        score = _score(other, traits)
        if score > best:
            matches, best = other, score
    return matches


def _by_name(traits: Traits) -> _Matches:
    """What kept its name: first what is the same in all else, too, then what is still of the same op, or has
    a name that says enough."""
    matches = _in_equal_number(_nothing(traits), fold(traits.same, traits.name))
    named = fold(traits.kind, traits.module, traits.name)
    return _in_equal_number(matches, named, traits.has_op | traits.telling)


def _nothing(traits: Traits) -> _Matches:
    nobody = np.full(traits.split, NOBODY, dtype=np.int64)
    return _Matches(nobody, np.zeros(len(traits.name) - traits.split, dtype=np.bool_))


def _score(matches: _Matches, traits: Traits) -> int:
    """How many matches, those in the same context and those of the same size counted once more for each."""
    base = np.flatnonzero(matches.mate != NOBODY)
    head = traits.split + matches.mate[base]
    columns = (traits.context, traits.same)
    return len(base) + sum(int((column[base] == column[head]).sum()) for column in columns)


def _in_order(matches: _Matches, codes: Ints, mask: Flags | None = None) -> _Matches:
    """Match what has equal `codes`, in order, between the anchors there are; only of those `mask`."""
    for _ in range(MOST_ROUNDS):
        base, head = _once_on_both_sides(_stretches(matches, codes, mask))
        if not len(base):
            break
        increasing = longest_increasing(head)
        matches = matches.add(base[increasing], head[increasing])
    unmatched = _stretches(matches, codes, mask)
    stretches = int(max(unmatched.base_stretch.max(initial=-1), unmatched.head_stretch.max(initial=-1))) + 1
    every = np.arange(stretches + 1)
    place = align_stretches(
        unmatched.base_codes,
        unmatched.head_codes,
        np.searchsorted(unmatched.base_stretch, every),
        np.searchsorted(unmatched.head_stretch, every),
        MOST_EDITS,
    )
    matched = np.flatnonzero(place != NOBODY)
    return matches.add(unmatched.base[matched], unmatched.head[place[matched]])


def _in_equal_number(matches: _Matches, codes: Ints, mask: Flags | None = None) -> _Matches:
    """Match what is there equally often on both sides, wherever it stands: the first with the first …"""
    unmatched = _unmatched(matches, codes, mask)
    sides = unmatched.base_codes, unmatched.head_codes
    room = max(int(codes.max(initial=-1)) + 1, 1)
    often = [np.bincount(side, minlength=room) for side in sides]
    equal = (often[0] == often[1]) & (often[0] > 0)
    base, head = (
        rows[order[equal[side[order]]]]
        for rows, side in zip((unmatched.base, unmatched.head), sides, strict=True)
        for order in (np.argsort(side, kind="stable"),)
    )
    return matches.add(base, head)


@dataclass(frozen=True, slots=True, eq=False)
class _Unmatched:
    """What has no match yet, of both sides: its places, its codes, and the stretch between two anchors in
    which it lies, ascending."""

    base: Ints
    head: Ints
    base_codes: Ints
    head_codes: Ints
    base_stretch: Ints
    head_stretch: Ints


def _unmatched(matches: _Matches, codes: Ints, mask: Flags | None) -> _Unmatched:
    split = len(matches.mate)
    free = [matches.mate == NOBODY, ~matches.paired]
    if mask is not None:
        free = [free[0] & mask[:split], free[1] & mask[split:]]
    base, head = map(np.flatnonzero, free)
    nowhere = np.zeros(0, dtype=np.int64)
    return _Unmatched(base, head, codes[:split][base], codes[split:][head], nowhere, nowhere)


def _stretches(matches: _Matches, codes: Ints, mask: Flags | None) -> _Unmatched:
    """What is left, the stretches numbered without those that are empty on one side."""
    unmatched, (base, head) = _unmatched(matches, codes, mask), matches.anchors()
    base_stretch, head_stretch = np.searchsorted(base, unmatched.base), np.searchsorted(head, unmatched.head)
    in_base, in_head = np.isin(base_stretch, head_stretch), np.isin(head_stretch, base_stretch)
    shared = base_stretch[in_base]
    shared = shared[np.diff(shared, prepend=-1) > 0]
    return _Unmatched(
        unmatched.base[in_base],
        unmatched.head[in_head],
        unmatched.base_codes[in_base],
        unmatched.head_codes[in_head],
        np.searchsorted(shared, base_stretch[in_base]),
        np.searchsorted(shared, head_stretch[in_head]),
    )


def _once_on_both_sides(unmatched: _Unmatched) -> tuple[Ints, Ints]:
    """What has a code that is there once in its stretch, on either side; in the base's order."""
    split = len(unmatched.base)
    stretch = np.concatenate([unmatched.base_stretch, unmatched.head_stretch])
    codes = fold(stretch, np.concatenate([unmatched.base_codes, unmatched.head_codes]))
    room = max(int(codes.max(initial=-1)) + 1, 1)
    once = (np.bincount(codes[:split], minlength=room) == 1) & (
        np.bincount(codes[split:], minlength=room) == 1
    )
    base, head = np.flatnonzero(once[codes[:split]]), np.flatnonzero(once[codes[split:]])
    row_of = np.zeros(room, dtype=np.int64)
    row_of[codes[split:][head]] = head
    return unmatched.base[base], unmatched.head[row_of[codes[:split][base]]]
