"""The examples: every claim in a teaching graph's header is checked, the optimum by brute force."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from memplan_examples import PATH
from memplan_examples.make_unet_csv import buffers

from memplan_engine import FREE, Graph, Problem, load, lower_bound, make_plan, to_problem
from memplan_engine.formats.about import read_about
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.greedy import GREEDY
from memplan_engine.strategies.constructive.orders import FitRule

ORDER_FITS = {strategy.name: strategy for strategy in GREEDY}

TEACHING = sorted(PATH.glob("teaching_*"))


def problem(name: str) -> Problem:
    (path,) = PATH.glob(f"teaching_{name}.*")
    loaded = load(path)
    return to_problem(loaded) if isinstance(loaded, Graph) else loaded  # type: ignore[return-value]


def arena(name: str, strategy: str) -> int:
    return make_plan(problem(name), strategy, limits=SolveLimits()).arena_bytes


Box = tuple[int, int, int, int]


def boxes(problem: Problem, row: int) -> list[Box]:
    """What a buffer takes, as (start, end, low, high), one step at a time."""
    buffer = problem[row]
    found = []
    for step in range(buffer.start, buffer.end):
        windows = [(gap.low, gap.high) for gap in buffer.gaps if gap.start <= step < gap.end]
        low, high = windows[0] if windows else (0, buffer.size)
        found.append((step, step + 1, low, high))
    return found


def optimum(problem: Problem) -> int:
    """The smallest arena by trying every order: in some order lowest-first placement gives an optimum,
    namely in that of an optimum's own offsets, each buffer then pushed down as far as it goes."""
    pieces = [boxes(problem, row) for row in range(len(problem))]

    @cache
    def lowest(row: int, placed: frozenset[tuple[int, int]]) -> int:
        offset = 0
        while any(
            step == other_step and offset + low < at + other_high and at + other_low < offset + high
            for step, _, low, high in pieces[row]
            for other, at in placed
            for other_step, _, other_low, other_high in pieces[other]
        ):
            offset += int(problem.alignment[row])
        return offset

    best = int(problem.size.sum() + problem.alignment.sum())
    seen = set()
    fixed = frozenset((row, int(at)) for row, at in enumerate(problem.fixed) if at != FREE)
    todo = [(fixed, max((int(at + problem.size[row]) for row, at in fixed), default=0))]
    while todo:
        placed, top = todo.pop()
        if len(placed) == len(problem):
            best = min(best, top)
            continue
        for row in set(range(len(problem))) - {other for other, _ in placed}:
            at = lowest(row, placed)
            state = placed | {(row, at)}
            end = max(top, at + int(problem.size[row]))
            if end < best and state not in seen:
                seen.add(state)
                todo.append((state, end))
    return best


@pytest.mark.parametrize("path", TEACHING, ids=lambda path: path.stem)
def test_every_teaching_graph_says_what_it_shows_and_its_optimum(path: Path) -> None:
    about = read_about(path)
    assert about.title
    assert about.shows
    assert about.why
    made = problem(path.stem.removeprefix("teaching_"))
    assert 4 <= len(made) <= 12
    if max(made.size) < 100:
        assert about.optimum == f"{optimum(made)} bytes"


def test_there_are_nine_of_them() -> None:
    assert [path.stem.removeprefix("teaching_") for path in TEACHING] == [
        "alignment", "best_fit", "first_fit", "gaps", "greedy_by_size", "linear_scan", "no_way_out",
        "order", "view",
    ]  # fmt: skip


def test_greedy_by_size_fails_and_breadth_does_not() -> None:
    assert arena("greedy_by_size", "greedy_by_size") == 11
    assert arena("greedy_by_size", "greedy_by_breadth") == 7 == lower_bound(problem("greedy_by_size")).nbytes


def test_best_fit_loses_to_first_fit() -> None:
    made = problem("best_fit")
    assert make_plan(made, replace(ORDER_FITS["greedy_by_size"], fit=FitRule.BEST)).arena_bytes == 12
    lowest = make_plan(made, replace(ORDER_FITS["greedy_by_size"], fit=FitRule.FIRST))
    assert lowest.arena_bytes == 10 == lower_bound(made).nbytes


def test_first_fit_loses_to_best_fit() -> None:
    made = problem("first_fit")
    assert make_plan(made, replace(ORDER_FITS["first_fit_by_start"], fit=FitRule.FIRST)).arena_bytes == 10
    assert (
        make_plan(made, replace(ORDER_FITS["first_fit_by_start"], fit=FitRule.BEST)).arena_bytes
        == 7
        == lower_bound(made).nbytes
    )
    assert (arena("first_fit", "first_fit_by_start"), arena("first_fit", "linear_scan")) == (10, 7)


def test_no_way_out_is_above_its_bound() -> None:
    made = problem("no_way_out")
    assert lower_bound(made).nbytes == 5
    assert optimum(made) == 6 == arena("no_way_out", "auto")


def test_linear_scan_is_fragmented() -> None:
    assert arena("linear_scan", "linear_scan") == 12
    assert arena("linear_scan", "greedy_by_size") == 7


def test_alignment_lifts_the_bound() -> None:
    made = problem("alignment")
    bound = lower_bound(made)
    assert (bound.nbytes, bound.unit, bound.step) == (11, 4, 1)
    assert sum(made[row].size for row in range(4) if made[row].start <= 1 < made[row].end) == 9


def test_the_gap_is_used() -> None:
    plan = make_plan(problem("gaps"), "greedy_by_size")
    assert plan.arena_bytes == 7 == plan.bound.nbytes
    at = dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True))
    assert at["c"] == 0
    assert at["a"] < at["b"] < at["a"] + 4


def test_the_view_keeps_its_base() -> None:
    made = problem("view")
    assert {made[row].name: (made[row].start, made[row].end) for row in range(4)} == {
        "hidden": (0, 5), "wide": (2, 4), "total": (3, 5), "y": (4, 5),
    }  # fmt: skip
    # Largest first: hidden 8 KiB at 0, wide at 8, total at 14; y fits below total, at 8.
    assert optimum_by_load(made) == 16384 == arena("view", "greedy_by_size")
    assert read_about(PATH / "teaching_view.json").optimum == "16384 bytes"


def optimum_by_load(made: Problem) -> int:
    """The live bytes at the busiest step, which no placement can stay below."""
    return max(
        sum(made[row].size for row in range(len(made)) if made[row].start <= step < made[row].end)
        for step in range(made.steps)
    )


def test_the_unet_list_is_what_its_script_makes() -> None:
    made = load(PATH / "unet_training.csv")
    assert isinstance(made, Problem)
    rows = [(made[row].name, made[row].start, made[row].end, made[row].size) for row in range(len(made))]
    assert rows == buffers()
    assert 300 <= len(made) <= 1000
    assert set(made.alignment.tolist()) == {64}


def test_every_example_is_small_and_opens() -> None:
    files = [path for path in PATH.iterdir() if path.suffix in {".csv", ".json", ".onnx"}]
    assert len(files) >= 10
    for file in files:
        assert file.stat().st_size < 2**20, file.name
        load(file)
