"""Results that wait on the host: by hand, against all copies of small random graphs, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from memplan_engine import InputError, find_peak, to_problem
from memplan_engine.graph import Graph, Op, Role, check_graph
from memplan_engine.kernels.offload.transfers import better_gaps, cover, transfers
from memplan_engine.op_kinds.copies import is_copy
from memplan_engine.rewrites.offload.check_offload import check_offload, wrong_copies
from memplan_engine.rewrites.offload.offload_bound import most_of_an_op, offload_bound, window
from memplan_engine.rewrites.offload.offload_problem import offload_problem
from memplan_engine.rewrites.offload.offloaded import Offloaded, offload
from memplan_engine.rewrites.offload.offloaded_graph import (
    Away,
    copied_like,
    offloaded_graph,
    without_copies,
)
from memplan_engine.rewrites.recompute.recomputed import Recomputation
from memplan_engine.strategies.base import SolveLimits
from tests.rewrites.order_graphs import random_graph
from tests.rewrites.recompute_graphs import least_extra
from tests.rewrites.test_recompute import NS, US, chain, times
from tests.support.graphs import make_graph

TIMES = times(5 * US, 7 * US, 9 * US, US, US, US)
SLOW = 2e6
"""Bytes a second: 10 bytes take 5 µs."""


def moved(capacity: int, bandwidth: float = SLOW) -> Offloaded | None:
    return offload(chain(), TIMES, capacity, bandwidth)


def test_a_chain_by_hand() -> None:
    """a0 goes behind f1, and comes back for b0: within 21 bytes f2 waits for the copy, 5 µs, and b0 for the
    way back, as long, since beside b1 there is no room for it."""
    found = moved(21)
    assert found is not None
    names = [op.name for op in found.graph.ops]
    assert names == ["f0", "f1", "a0_away_to_host", "a0_away_on_host", "f2", "b2", "b1", "a0_away_back", "b0"]
    assert (found.peak_bytes, found.copied_bytes, round(found.extra_seconds / NS)) == (21, 10, 10 * US)
    check_graph(found.graph)
    assert find_peak(to_problem(found.graph)).nbytes == 21


@pytest.mark.parametrize(
    ("capacity", "bandwidth", "extra"),
    [(31, SLOW, 0), (30, SLOW, 4 * US), (22, SLOW, 9 * US), (21, 10e6, 2 * US), (21, 1e12, 2)],
)
def test_how_long_ops_wait_by_hand(capacity: int, bandwidth: float, extra: int) -> None:
    """Within 30 bytes it leaves beside f2, and its way back begins beside b1, 4 µs too late for b0. Within 22
    f2 has to wait for its copy, too. The others wait for both ways."""
    found = moved(capacity, bandwidth)
    assert found is not None
    assert found.peak_bytes <= capacity
    assert round(found.extra_seconds / NS) == extra


def test_what_is_needed_at_once_cannot_wait_elsewhere() -> None:
    assert moved(20) is not None
    assert moved(19) is None


def test_views_come_back_in_one_storage() -> None:
    ops = (
        Op("f", "mix", ("x",), ("a",)),
        Op("early", "aten.select", ("a",), ("v",)),
        Op("mid", "mix", ("v",), ("b",)),
        Op("long", "mix", ("b",), ("c",)),
        Op("late", "aten.select", ("a",), ("w",)),
        Op("last", "mix", ("c", "w", "v"), ("y",)),
    )
    sizes = {"x": 1, "a": 10, "b": 8, "c": 8, "y": 1}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=("y",), views={"v": "a", "w": "a"})
    found = offload(graph, times(US, US, US, US, US, US), 19, 1e12)
    assert found is not None
    back = next(op for op in found.graph.ops if op.name == "a_away_back")
    home = {tensor.name: tensor.storage for tensor in found.graph.tensors}
    assert len(back.outputs) == 2
    assert {home[name] for name in (*back.outputs, "w")} == {"a_away_back"}
    plain = without_copies(found.graph)
    assert replace(plain, ops=()) == replace(graph, ops=())
    assert [(op.name, op.outputs) for op in plain.ops] == [(op.name, op.outputs) for op in graph.ops]
    # a and v show the same: which of them is read does not matter.
    assert plain.ops[-1].inputs in (("c", "w", "v"), ("c", "w", "a"))
    assert copied_like(graph, found.graph) == found.graph


def _all_copies(graph: Graph, seconds: list[float], capacity: int, bandwidth: float) -> int | None:
    """The least ns that ops wait, over all copies of all gaps, by the checker's own clock."""
    problem = offload_problem(graph, seconds, bandwidth)
    nanoseconds = {op.name: round(each / NS) for op, each in zip(graph.ops, seconds, strict=True)}
    gaps = list(zip(problem.names, problem.gaps.begin.tolist(), problem.gaps.end.tolist(), strict=True))
    ways = []
    for name, begin, end in gaps:
        places = [(left, back) for left in range(begin + 1, end + 1) for back in range(left, end + 1)]
        ways.append([None, *(Away(name, begin, left, back, end) for left, back in places)])
    best: int | None = None
    for chosen in product(*ways):
        rewritten = offloaded_graph(graph, [each for each in chosen if each])
        low, high = 0, 10**6 if best is None else best
        if check_offload(graph, rewritten, nanoseconds, bandwidth, capacity, high - (best is not None)):
            continue
        while low < high:
            middle = (low + high) // 2
            if check_offload(graph, rewritten, nanoseconds, bandwidth, capacity, middle):
                low = middle + 1
            else:
                high = middle
        best = high
    return best


@pytest.mark.parametrize("seed", range(40))
def test_all_copies_of_small_graphs(seed: int) -> None:
    """None waits for less long than is proved; where nothing was found, there is nothing."""
    random = Random(seed)
    graph = random_graph(seed, 5)
    seconds = [random.randint(1, 9) * NS for _ in graph.ops]
    again = Recomputation(graph, seconds)
    capacity = random.randint(again.peak_bytes // 2, again.peak_bytes)
    bandwidth = random.choice([0.5, 2.0, 8.0]) / NS
    found = offload(graph, seconds, capacity, bandwidth)
    best = _all_copies(graph, seconds, capacity, bandwidth)
    bound = offload_bound(again, capacity, bandwidth, SolveLimits(5))
    if found is None:
        assert best is None
        return
    assert best is not None
    assert bound <= best * NS + 1e-15
    assert round(found.extra_seconds / NS) >= best
    assert wrong_copies(graph, found.graph) == []
    assert without_copies(found.graph).ops == graph.ops


def test_most_small_graphs_wait_for_the_least_time() -> None:
    equal = total = 0
    for seed in range(40):
        random = Random(seed)
        graph = random_graph(1000 + seed, 5)
        seconds = [random.randint(1, 9) * NS for _ in graph.ops]
        capacity = int(0.8 * Recomputation(graph, seconds).peak_bytes)
        found = offload(graph, seconds, capacity, 4 / NS)
        if found is not None and found.copied_bytes:
            total += 1
            equal += round(found.extra_seconds / NS) == _all_copies(graph, seconds, capacity, 4 / NS)
    assert total >= 5
    assert equal >= 0.8 * total


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_is_above_what_recomputation_takes(seed: int) -> None:
    """Every schedule of the cheapest recomputation is one of those that the bound speaks of."""
    random = Random(seed)
    graph = random_graph(seed, 6)
    seconds = [random.randint(1, 9) * NS for _ in graph.ops]
    again = Recomputation(graph, seconds)
    capacity = int(0.7 * again.peak_bytes)
    least = least_extra(graph, [round(each / NS) for each in seconds], capacity)
    # So slow that nothing is ever copied.
    bound = offload_bound(again, capacity, 1e-3, SolveLimits(5))
    if least is not None:
        assert bound <= least * NS + 1e-15
    needed, op = most_of_an_op(again)
    assert op in {each.name for each in graph.ops}
    assert capacity >= needed or (least is None and moved_nowhere(graph, seconds, needed - 1))


def moved_nowhere(graph: Graph, seconds: list[float], capacity: int) -> bool:
    """Whether no copies at all let `graph` run within `capacity`."""
    return offload(graph, seconds, capacity, 1e30) is None


def test_the_window_of_a_chain() -> None:
    """Before b2 the three layers have run, 21 µs, and behind it b2, b1 and b0 run, 3 µs."""
    assert window(chain(), TIMES, "b2") == pytest.approx(3 * US * NS)
    assert window(chain(), TIMES, "f1") == pytest.approx(5 * US * NS)


def test_a_bound_by_hand() -> None:
    """Before b2 31 bytes are needed, with its own. At a byte a µs 3 and e come back, in the 3 µs of the
    backward pass and e µs more; within 21 bytes the other 7 − e are at least as many parts of f0's 10 in its
    5 µs: e = 7/3 µs, of which halving the range finds 2."""
    again = Recomputation(chain(), TIMES)
    bound = offload_bound(again, 21, 1e6, SolveLimits(5))
    assert 1.9 * US * NS < bound <= 7 / 3 * US * NS


def _changed(graph: Graph, name: str, **changes: object) -> Graph:
    ops = tuple(replace(op, **changes) if op.name == name else op for op in graph.ops)  # type: ignore[arg-type]
    return replace(graph, ops=ops)


def _without(graph: Graph, name: str) -> Graph:
    return replace(graph, ops=tuple(op for op in graph.ops if op.name != name))


def _swapped(graph: Graph, first: str, second: str) -> Graph:
    by_name = {op.name: op for op in graph.ops}
    other = {first: second, second: first}
    return replace(graph, ops=tuple(by_name[other.get(op.name, op.name)] for op in graph.ops))


BROKEN = {
    "no wait": lambda graph: _without(graph, "a0_away_on_host"),
    "another order": lambda graph: _swapped(graph, "f2", "b2"),
    "back too early": lambda graph: _swapped(graph, "a0_away_back", "a0_away_to_host"),
    "reads what went": lambda graph: _changed(graph, "b0", inputs=("a0", "g1")),
    "another op": lambda graph: _changed(graph, "b0", kind="other"),
    "makes bytes": lambda graph: replace(
        graph,
        storages=tuple(
            replace(each, nbytes=1) if each.name.endswith("to_host") else each for each in graph.storages
        ),
    ),
    "another size": lambda graph: replace(
        graph,
        storages=tuple(
            replace(each, nbytes=9) if each.name.endswith("back") else each for each in graph.storages
        ),
    ),
    "another form": lambda graph: replace(
        graph,
        tensors=tuple(
            replace(each, shape=(5,), nbytes=5) if each.name.endswith("back.0") else each
            for each in graph.tensors
        ),
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_the_checker_refuses(broken: str) -> None:
    found = moved(21)
    assert found is not None
    nanoseconds = {op.name: round(each / NS) for op, each in zip(chain().ops, TIMES, strict=True)}
    given = (nanoseconds, SLOW, 21, 10 * US)
    assert check_offload(chain(), found.graph, *given) == []
    assert check_offload(chain(), BROKEN[broken](found.graph), *given) != []
    assert "are live" in check_offload(chain(), found.graph, nanoseconds, SLOW, 20, 10 * US)[0]
    assert "ops wait" in check_offload(chain(), found.graph, nanoseconds, SLOW, 21, 10 * US - 1)[0]


def test_a_copy_that_something_has_written_behind_is_refused() -> None:
    ops = (
        Op("f", "mix", ("x",), ("a",)),
        Op("g", "mix", ("a",), ("b",)),
        Op("h", "mix", ("b",), ("c",)),
        Op("write", "aten.add_", ("a", "c"), ("d",), ("a",)),
        Op("last", "mix", ("a",), ("y",)),
    )
    sizes = {"x": 1, "a": 10, "b": 8, "c": 8, "y": 1}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=("y",), views={"d": "a"})
    right = offloaded_graph(graph, [Away("a", 1, 2, 3, 3)])
    assert wrong_copies(graph, right) == []
    late = offloaded_graph(graph, [Away("a", 1, 2, 4, 4)])
    assert wrong_copies(graph, late) != []


def test_what_is_returned_comes_back() -> None:
    ops = (
        Op("f", "mix", ("x",), ("a",)),
        Op("g", "mix", ("x",), ("b",)),
        Op("h", "mix", ("b",), ("c",)),
        Op("i", "mix", ("a", "c"), ("y",)),
    )
    sizes = {"x": 1, "a": 10, "b": 8, "c": 8, "y": 1}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=("a", "y"))
    found = offload(graph, times(US, US, US, US), 19, 1e12)
    assert found is not None
    roles = {storage.name: storage.role for storage in found.graph.storages}
    assert found.graph.outputs == ("a_away_back.0", "y")
    assert roles["a_away_back"] is Role.OUTPUT
    assert roles["a"] is Role.ACTIVATION


@pytest.mark.parametrize(
    ("seconds", "bandwidth", "said"),
    [([1.0], 1e9, "a time for each of 6 ops"), ([-1.0] * 6, 1e9, "not negative"), (TIMES, 0.0, "above 0")],
)
def test_bad_input(seconds: list[float], bandwidth: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        offload(chain(), seconds, 21, bandwidth)


def test_the_kernels_do_the_same_in_python_and_compiled() -> None:
    for seed in range(20):
        random = Random(seed)
        graph = random_graph(seed, 12)
        problem = offload_problem(graph, [random.randint(1, 9) * NS for _ in graph.ops], 2 / NS)
        capacity = int(0.7 * problem.live.max())
        found = []
        for run in (False, True):
            chosen = np.zeros(len(problem.names), np.bool_)
            worth = problem.gaps.size
            given = (problem.live, problem.cost, problem.gaps)
            if run:
                cover.compiled(problem.live, problem.gaps, worth, capacity, chosen)
                total = better_gaps.compiled(*given, chosen, capacity, 30, seed, np.zeros(1, np.bool_))
                how = transfers.compiled(*given, chosen, capacity)
            else:
                cover.function(problem.live, problem.gaps, worth, capacity, chosen)
                total = better_gaps.function(*given, chosen, capacity, 30, seed, np.zeros(1, np.bool_))
                how = transfers.function(*given, chosen, capacity)
            found.append((chosen.tolist(), total, how.left.tolist(), how.back.tolist(), how.total, how.over))
        assert found[0] == found[1]


def test_only_copies_are_copies() -> None:
    assert is_copy("memplan::to_host")
    assert not is_copy("aten.copy_")
