"""Which regions run in pieces, along which dimension and in how many, for few live bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import PRODUCED, Graph
from memplan_engine.rewrites.chunk.check_chunk import check_chunk
from memplan_engine.rewrites.chunk.chunked_graph import chunked_graph
from memplan_engine.rewrites.chunk.live import live_bytes
from memplan_engine.rewrites.chunk.region import Region, grow
from memplan_engine.rewrites.chunk.row_reads import Rows, rows_of

REACHES = (8, 48, 256)
"""How many ops before and behind the one that makes a tensor a region around it may have."""
FINEST = 64
"""Pieces that can be taken at least of one kind of region that is tried; of the other it is 2."""
SEEDS = 3
"""Of the largest tensors that are live at the peak regions are grown."""
TRIED = 4
"""Pieces with which regions are compared."""
FINALISTS = 2
"""Regions of which the number of pieces is looked for."""
MOST_PIECES = 32
"""Of a region, where no bytes are asked for."""
MOST_OPS = 60_000
REGIONS = 64
LEAST_SAVED = 0.02
"""Of the live bytes around it, which a region saves, or twice as many pieces do."""


@dataclass(frozen=True, slots=True)
class ChunkedRegion:
    """`ops`, by name, run in `pieces` along the dimension `dim` of the tensor `along`, which has `size`
    rows."""

    ops: tuple[str, ...]
    pieces: int
    along: str
    dim: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Chunked:
    """`graph` with `regions` that run in pieces; `peak_bytes` are live at its worst op, and were
    `before_bytes`."""

    graph: Graph
    regions: tuple[ChunkedRegion, ...]
    before_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a region was grown: from a tensor of an op of this kind, along this dimension."""

    kind: str
    dim: int
    reach: tuple[int, int]
    least: int


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """`score` is the least that is better: live bytes at the worst op of the graph and of the region, ops."""

    rows: Rows
    region: Region
    recipe: _Recipe
    seed: str
    score: tuple[int, int, int]


def chunk_graph(
    graph: Graph, live: int | None = None, stopped: Callable[[], bool] = lambda: False
) -> Chunked | None:
    """`graph` with regions around its peak in pieces, one after another, until at most `live` bytes are live,
    or while that saves something; None where nothing does. Pieces are as few as will do. `stopped` ends it
    with what is there.

    Raises
    ------
    InputError: sizes that are symbols; a rewrite that its checker refuses.
    """
    if graph.symbols:
        expected = "plain numbers: give the symbols values"
        raise InputError(graph.name, "sizes", f"the symbol {graph.symbols[0].name!r}", expected)
    return _Search(graph, live, stopped).run()


class _Search:
    def __init__(self, graph: Graph, live: int | None, stopped: Callable[[], bool]) -> None:
        self.original, self.target, self.stopped = graph, live, stopped
        self.own = {op.name for op in graph.ops}
        self.recipes: dict[_Recipe, None] = {}

    def run(self) -> Chunked | None:
        graph, regions = self.original, list[ChunkedRegion]()
        before = peak = int(live_bytes(graph).max(initial=0))
        lowest: Chunked | None = None
        while len(regions) < REGIONS and not self.stopped() and peak > (self.target or 0):
            every = [(*self._in_pieces(found), found.recipe) for found in self._next(graph)]
            if not every:
                break
            _, graph, region, recipe = min(every, key=lambda each: each[0])
            self.recipes[recipe] = None
            regions.append(region)
            peak = int(live_bytes(graph).max())
            if peak < (lowest.peak_bytes if lowest else before):
                lowest = Chunked(graph, tuple(regions), before, peak)
        if lowest is not None and (wrong := check_chunk(self.original, lowest.graph)):
            raise InputError(graph.name, "chunks", wrong[0], "a region that can run in pieces")
        return lowest

    def _next(self, graph: Graph) -> list[_Found]:
        """The best regions around the peak; one that is grown as those before it, where that does."""
        rows = rows_of(graph, {op.name for op in graph.ops} - self.own)
        live = live_bytes(graph)
        step, peak = int(np.argmax(live)), int(live.max())
        enough = (1 - LEAST_SAVED) * peak
        seeds = self._seeds(rows, step)
        known: set[tuple[int, ...]] = set()
        again = (
            found
            for recipe in self.recipes
            for seed in seeds
            if self._kind(rows, seed) == recipe.kind and recipe.dim < len(rows.tensors[seed].shape)
            for found in self._tried(rows, seed, recipe, peak, known)
        )
        alike = next((found for found in again if found.score[1] < enough), None)
        if alike is not None:
            return [alike]
        every = (
            found
            for seed in seeds
            for recipe in self._ways(rows, seed)
            for found in self._tried(rows, seed, recipe, peak, known)
        )
        good = (found for found in every if found.score[1] < enough)
        return sorted(good, key=lambda found: found.score)[:FINALISTS]

    def _seeds(self, rows: Rows, step: int) -> list[str]:
        """The largest tensors that are live at `step` and that ops of the graph make."""
        last: dict[str, int] = {}
        for index, op in enumerate(rows.graph.ops):
            for name in (*op.inputs, *op.mutates, *op.outputs):
                last[rows.tensors[name].storage] = index
        roles = {each.name: each for each in rows.graph.storages}
        seen: dict[str, str] = {}
        for op in rows.graph.ops[: step + 1]:
            for name in op.outputs if op.name in self.own else ():
                storage = rows.tensors[name].storage
                if last[storage] >= step and roles[storage].role in PRODUCED:
                    seen.setdefault(storage, name)
        return sorted(seen.values(), key=lambda name: -rows.tensors[name].nbytes)[:SEEDS]

    @staticmethod
    def _kind(rows: Rows, seed: str) -> str:
        return rows.graph.ops[rows.maker[seed]].kind

    def _ways(self, rows: Rows, seed: str) -> Iterator[_Recipe]:
        kind = self._kind(rows, seed)
        for dim, size in enumerate(rows.tensors[seed].shape):
            for least in {2, min(size, FINEST)} if size > 1 else ():
                for before in REACHES:
                    for behind in REACHES:
                        yield _Recipe(kind, dim, (before, behind), least)

    def _tried(
        self, rows: Rows, seed: str, recipe: _Recipe, peak: int, known: set[tuple[int, ...]]
    ) -> Iterator[_Found]:
        """The region of one way, where it is one that was not tried, in a few pieces."""
        home = rows.maker[seed]
        window = (home - recipe.reach[0], home + recipe.reach[1])
        region = grow(rows, seed, recipe.dim, window, recipe.least)
        if region is None or self.stopped():
            return
        sign = (region.split.get(seed, -1), *region.ops)
        if sign in known:
            return
        known.add(sign)
        count = min(TRIED, region.units)
        if len(rows.graph.ops) + count * len(region.ops) > MOST_OPS:
            return
        graph = chunked_graph(rows, region, count)
        live = live_bytes(graph)
        around = _around(graph, rows)
        score = (max(int(live.max()), self.target or 0), int(live[around].max()), len(graph.ops))
        if score[0] <= peak:
            yield _Found(rows, region, recipe, seed, score)

    def _in_pieces(self, found: _Found) -> tuple[tuple[int, int, int], Graph, ChunkedRegion]:
        """The region in as few pieces as bring it below what is asked for, or what is live elsewhere; in more
        for as long as they save something. First what it is worth, as `_Found.score` is."""
        rows, graph = found.rows, found.rows.graph
        region, best, chosen, low = found.region, graph, 1, 0
        most = region.units if self.target is not None else min(region.units, MOST_PIECES)
        count = 2
        while True:
            count = min(count, most)
            if len(graph.ops) + count * len(region.ops) > MOST_OPS:
                break
            made = chunked_graph(rows, region, count)
            live = live_bytes(made)
            inside = _around(made, rows)
            local = int(live[inside].max())
            if chosen > 1 and local > (1 - LEAST_SAVED) * low:
                break
            best, chosen, low = made, count, local
            elsewhere = int(max(live[: inside.start].max(initial=0), live[inside.stop :].max(initial=0)))
            if local <= max(self.target or 0, elsewhere) or count == most or self.stopped():
                break
            count *= 2
        names = tuple(graph.ops[index].name for index in region.ops)
        dim = region.split[found.seed]
        chunked = ChunkedRegion(names, chosen, found.seed, dim, rows.tensors[found.seed].shape[dim])
        peak = max(int(live_bytes(best).max()), self.target or 0)
        return (peak, max(low, self.target or 0), len(best.ops)), best, chunked


def _around(graph: Graph, rows: Rows) -> slice:
    """The steps of `graph`, with a region of `rows` in pieces, from the first op of these to the last."""
    own = {op.name for op in rows.graph.ops}
    new = [place for place, op in enumerate(graph.ops) if op.name not in own]
    return slice(new[0], new[-1] + 1)
