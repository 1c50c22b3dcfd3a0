"""Cases in which reuse once went wrong."""

from __future__ import annotations

import pytest

from memplan_engine import InputError, Op, Schedule, Tensor, Unread, check_graph, find_peak
from memplan_engine.graph import Graph, Role, Storage
from memplan_engine.rewrites.reuse import check_reuse, place_concats, reuse, reused_problem
from tests.support.graphs import make_graph


def tensor(name: str, *shape: int, storage: str = "", offset: int = 0) -> Tensor:
    elements = 1
    for size in shape:
        elements *= size
    return Tensor(name, shape, "float32", 4 * elements, storage or name, None, offset)


def graph(tensors: list[Tensor], ops: list[Op], output: str) -> Graph:
    sizes: dict[str, int] = {}
    for each in tensors:
        sizes[each.storage] = max(sizes.get(each.storage, 0), each.nbytes)
    roles = {"x": Role.INPUT, output: Role.OUTPUT}
    storages = tuple(Storage(name, size, roles.get(name, Role.ACTIVATION)) for name, size in sizes.items())
    return check_graph(Graph("net", storages, tuple(tensors), tuple(ops), ("x",), (output,)))


def test_a_concatenation_knows_of_values_that_are_held() -> None:
    """`v`, a view of `a` that nobody reads, holds `a` to the end: inside `c` it would hold all of `c`."""
    net = graph(
        [
            tensor("x", 1, 6), tensor("a", 1, 6), tensor("v", 6, storage="a"), tensor("b", 4, 6),
            tensor("c", 5, 6), tensor("big", 5, 6), tensor("big2", 5, 6), tensor("d", 1),
        ],
        [
            Op("o1", "aten.mm", ("x",), ("a",)), Op("o2", "aten.view", ("a",), ("v",)),
            Op("o3", "aten.mm", ("x",), ("b",)), Op("o4", "aten.cat", ("a", "b"), ("c",)),
            Op("o5", "aten.mm", ("c",), ("big",)), Op("o6", "aten.mm", ("big",), ("big2",)),
            Op("o7", "aten.mm", ("big2",), ("d",)),
        ],
        "d",
    )  # fmt: skip
    for unread in Unread:
        before = find_peak(
            reused_problem(reuse(net, in_place=False, concat=False), alignment=1, unread=unread)
        )
        made = place_concats(net, alignment=1, unread=unread)
        after = find_peak(reused_problem(made, alignment=1, unread=unread))
        assert after.nbytes <= before.nbytes, unread
        # Freed, a may lie in c: it is gone before big2 is there. Held, it would keep all of c.
        assert bool(made.concats) == (unread is Unread.FREED) or after.nbytes == before.nbytes


def test_an_empty_slice_of_an_empty_tensor_touches_nothing() -> None:
    empty = Tensor("e", (0, 4), "float32", 0, "e")
    beyond = Tensor("s", (0, 2), "float32", 0, "e", (4, 1), 8)
    net = graph(
        [tensor("x", 4), empty, beyond, tensor("y", 4)],
        [
            Op("make", "aten.mm", ("x",), ("e",)),
            Op("cut", "aten.slice", ("e",), ("s",)),
            Op("relu", "aten.relu", ("x",), ("y",)),
        ],
        "y",
    )
    assert check_reuse(net, reuse(net).graph) == ()


def test_both_together_are_never_worse_than_concatenations_alone() -> None:
    """The sigmoid would write into what the convolution made, which cannot lie inside the concatenation."""
    net = graph(
        [tensor("x", 1, 4), tensor("a", 1, 16), tensor("b", 1, 16), tensor("c", 1, 16), tensor("y", 1, 32)],
        [
            Op("conv", "aten.conv2d", ("x",), ("a",), out_variant=False),
            Op("sigmoid", "aten.sigmoid", ("a",), ("b",), out_variant=True),
            Op("mm", "aten.mm", ("x",), ("c",), out_variant=True),
            Op("cat", "aten.cat", ("b", "c"), ("y",)),
        ],
        "y",
    )
    peaks = {
        (in_place, concat): find_peak(
            reused_problem(reuse(net, in_place=in_place, concat=concat, alignment=1), alignment=1)
        ).nbytes
        for in_place in (False, True)
        for concat in (False, True)
    }
    assert peaks[True, True] == min(peaks.values()) < peaks[True, False]


def test_reuse_wants_a_schedule_that_can_run() -> None:
    net = make_graph(
        [Op("f", "f", ("x",), ("a",)), Op("g", "g", ("a",), ("b",))],
        {"x": 1, "a": 1, "b": 1},
        inputs=("x",),
        outputs=("b",),
    )
    with pytest.raises(InputError, match="op 'g': found step 0, but 'f'"):
        reuse(net, Schedule((1, 0), 2))
