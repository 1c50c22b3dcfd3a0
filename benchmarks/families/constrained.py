"""Instances with alignments, gaps and fixed offsets, which not every packer can be told.

Those that are cut out of a perfect packing have a known optimum, LOAD; that of the others is not known.
"""

from __future__ import annotations

from random import Random

import numpy as np

from benchmarks.families import perfect
from benchmarks.families.instance import Instance, Rectangle
from memplan_engine.problem import FREE, Gap, make_problem

ALIGNMENTS = (1, 16, 64, 256, 4096)
"""Bytes: none, a vector, a cache line, a CUDA allocation, a page."""
COARSEST = 64 * 1024
"""Bytes: no buffer of a perfect packing is aligned to more, however round its offset is."""
UNIT = 64

Cut = tuple[Rectangle, tuple[Gap, ...]]
"""A buffer of a perfect packing with its gaps."""


def aligned(count: int, seed: int) -> Instance:
    """One buffer made at each step, of 16 bytes to 64 KiB, any number of them, with any of ALIGNMENTS; a
    fifth live up to the end, the others 8 steps or so."""
    random = np.random.default_rng(seed)
    size = np.exp2(random.uniform(4, 16, count)).astype(np.int64)
    start, end = _lives(count, 0.2, random)
    name = f"aligned/drawn-{count}-s{seed}"
    return Instance(
        name, make_problem(start, end, size, alignment=random.choice(ALIGNMENTS, count), name=name)
    )


def aligned_perfect(count: int, seed: int) -> Instance:
    """A perfect packing in which each buffer is aligned to the largest power of two that divides its offset
    there, COARSEST at most: the optimum is LOAD."""
    whole = perfect.guillotine(count, seed)
    plain, offsets = whole.problem, whole.witness
    assert offsets is not None
    alignment = np.where(offsets == 0, COARSEST, np.minimum(offsets & -offsets, COARSEST))
    name = f"aligned/perfect-{count}-s{seed}"
    problem = make_problem(plain.start, plain.end, plain.size, alignment=alignment, name=name)
    return Instance(name, problem, whole.optimum, offsets)


def gapped(count: int, seed: int) -> Instance:
    """One buffer made at each step, 64 bytes to 4 MiB, a fifth of them long-lived; of those that live 6 steps
    or more, half have one to three gaps in which they need nothing."""
    random = np.random.default_rng(seed)
    size = UNIT * np.exp2(random.uniform(0, 16, count)).astype(np.int64)
    start, end = _lives(count, 0.2, random)
    gaps = {}
    for row in np.flatnonzero((end - start >= 6) & (random.random(count) < 0.5)).tolist():
        most = min(3, int(end[row] - start[row] - 2) // 2)
        inside = np.arange(start[row] + 1, end[row])
        edges = np.sort(random.choice(inside, 2 * random.integers(1, most + 1), replace=False))
        gaps[row] = tuple(Gap(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))
    name = f"gaps/drawn-{count}-s{seed}"
    return Instance(name, make_problem(start, end, size, gaps=gaps, name=name))


def gapped_perfect(count: int, seed: int) -> Instance:
    """A perfect packing in which a third of the buffers have a gap, and two others fill it: the optimum is
    LOAD."""
    return _cut_up(f"gaps/perfect-{count}-s{seed}", count, seed, windows=False)


def windowed_perfect(count: int, seed: int) -> Instance:
    """The same with gaps in which half of the buffer or so stays: another one fills the rest."""
    return _cut_up(f"windows/perfect-{count}-s{seed}", count, seed, windows=True)


def windowed(count: int, seed: int) -> Instance:
    """A few buffers of 1 to 12 units over a few steps, most with a gap in which they need some of their
    bytes: so small that a packer can try everything, and few do."""
    random = Random(seed)
    rows, gaps = [], {}
    for row in range(count):
        length = random.randint(1, count)
        start = random.randint(0, count - length)
        size = random.randint(1, 12)
        rows.append((start, start + length, UNIT * size))
        if length >= 3 and size >= 2:
            first, last = sorted(random.sample(range(start, start + length + 1), 2))
            low, high = sorted(random.sample(range(size + 1), 2))
            gaps[row] = (Gap(first, last, UNIT * low, UNIT * high),)
    name = f"windows/drawn-{count}-s{seed}"
    start_column, end_column, size_column = np.array(rows, dtype=np.int64).T
    return Instance(name, make_problem(start_column, end_column, size_column, gaps=gaps, name=name))


def fixed(count: int, seed: int, share: float = 0.1) -> Instance:
    """A perfect packing in which a `share` of the buffers is fixed where it lies: the optimum is LOAD."""
    whole = perfect.guillotine(count, seed)
    plain, offsets = whole.problem, whole.witness
    chosen = np.random.default_rng(seed).permutation(count)[: max(1, round(share * count))]
    places = np.full(count, FREE)
    assert offsets is not None
    places[chosen] = offsets[chosen]
    name = f"fixed/perfect-{count}-s{seed}"
    problem = make_problem(plain.start, plain.end, plain.size, fixed=places, name=name)
    return Instance(name, problem, whole.optimum, offsets)


def _lives(count: int, long_lived: float, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    start = np.arange(count)
    length = random.geometric(1 / 8, count)
    kept = random.random(count) < long_lived
    length[kept] = random.integers(1, count, count)[kept]
    return start, np.minimum(start + length, count)


def _cut_up(name: str, count: int, seed: int, *, windows: bool) -> Instance:
    """A perfect packing in which pieces are opened until there are `count`: what is left of one is a buffer
    with a gap, what was taken out are one or two more."""
    random = Random(seed)
    more = 1 if windows else 2
    opened = count // (2 + more)
    whole = perfect.guillotine(count - more * opened, seed)
    columns = (whole.problem.start, whole.problem.end, whole.witness, whole.problem.size)
    pieces = [tuple(row) for row in np.array(columns).T.tolist()]
    wide = [piece for piece in pieces if piece[1] - piece[0] >= 3 and piece[3] >= 2 * perfect.UNIT]
    chosen = set(random.sample(wide, opened))
    rows: list[Cut] = []
    for piece in pieces:
        rows += _open(piece, random, windows) if piece in chosen else [(piece, ())]
    random.shuffle(rows)
    start, end, offset, size = np.array([piece for piece, _ in rows], dtype=np.int64).T
    gaps = {row: own for row, (_, own) in enumerate(rows) if own}
    return Instance(name, make_problem(start, end, size, gaps=gaps, name=name), whole.optimum, offset)


def _open(piece: Rectangle, random: Random, window: bool) -> list[Cut]:
    start, end, offset, size = piece
    first, last = sorted(random.sample(range(start + 1, end), 2)) if end - start > 3 else (start + 1, end - 1)
    low = perfect.UNIT * random.randrange(1, size // perfect.UNIT)
    lower, upper = (first, last, offset, low), (first, last, offset + low, size - low)
    if not window:
        return [(piece, (Gap(first, last),)), (lower, ()), (upper, ())]
    stays = random.random() < 0.5
    kept = Gap(first, last, low, size) if stays else Gap(first, last, 0, low)
    return [(piece, (kept,)), (lower if stays else upper, ())]
