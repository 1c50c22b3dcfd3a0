"""Problems for Hypothesis to draw: mixed lifetimes and alignments, gaps with windows, fixed offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from memplan_engine.problem import FREE, Gap, Problem, make_problem
from tests.support import reference

ALIGNMENTS = st.sampled_from([1, 1, 2, 3, 4, 8])


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    least: int = 0,
    most: int = 12,
    steps: int = 10,
    largest: int = 20,
    gaps: bool = True,
    fixed: bool = True,
    alignments: st.SearchStrategy[int] = ALIGNMENTS,
) -> Problem:
    """A problem of `least` to `most` buffers of 0 to `largest` bytes over `steps` steps.

    With `fixed`, some buffers have the offsets that some valid placement gave them, so that they never
    collide.
    """
    n = draw(st.integers(least, most))
    start = [draw(st.integers(0, steps - 1)) for _ in range(n)]
    end = [draw(st.integers(begin + 1, steps)) for begin in start]
    size = [draw(st.integers(0, largest)) for _ in range(n)]
    alignment = [draw(alignments) for _ in range(n)]
    cut = {
        b: draw(_gaps(start[b], end[b], size[b])) for b in range(n) if gaps and draw(st.integers(0, 3)) == 0
    }
    spare = draw(st.integers(0, 2))
    problem = make_problem(start, end, size, alignment=alignment, gaps=cut, steps=steps + spare)
    if not fixed or not draw(st.booleans()):
        return problem
    order = draw(st.permutations(range(n)))
    placed = reference.place(problem, order, draw(st.sampled_from(["first", "top"])))
    kept = [offset if draw(st.booleans()) else FREE for offset in placed]
    return make_problem(start, end, size, alignment=alignment, gaps=cut, steps=steps + spare, fixed=kept)


@st.composite
def _gaps(draw: st.DrawFn, start: int, end: int, size: int) -> tuple[Gap, ...]:
    """Gaps inside `[start, end)`: with and without a window, touching, at the edges, over the whole."""
    edges = sorted(draw(st.lists(st.integers(start, end), min_size=2, max_size=6, unique=True)))
    found = []
    for begin, finish in pairwise(edges):
        if draw(st.booleans()):
            low = draw(st.integers(0, size))
            found.append(Gap(begin, finish, low, draw(st.integers(low, size))))
    return tuple(found)
