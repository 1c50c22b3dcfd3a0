"""ExecutorchPlanner on hand-made specs, nodes and modules, as ExecuTorch has them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import PlanError
from memplan_engine.executorch.executorch_planner import ExecutorchPlanner


@dataclass(eq=False)
class Spec:
    """Of `nbytes`, from one node to another, both in it."""

    nbytes: int
    lifetime: list[int | None]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    alignment: int = 1

    @property
    def allocated_memory(self) -> int:
        return -(-self.nbytes // self.alignment) * self.alignment

    def realign(self, new_alignment: int) -> int:
        self.alignment = new_alignment
        return self.allocated_memory


@dataclass(eq=False)
class Node:
    spec: Any = None
    op: str = "call_function"
    target: Any = None
    args: tuple[Any, ...] = ()

    @property
    def meta(self) -> dict[str, Any]:
        return {"spec": self.spec}


class Module:
    """Nodes, and modules by the names that `get_attr` nodes give them."""

    def __init__(self, nodes: list[Node], **called: Module) -> None:
        self.graph = SimpleNamespace(nodes=nodes)
        self.meta: dict[str, Any] = {}
        self.input_mem_buffer_sizes: list[int] = []
        self.__dict__.update(called)


def named(name: str) -> Any:
    return SimpleNamespace(__name__=name)


def plan(planner: ExecutorchPlanner, module: Module, specs: list[Spec], alignment: int = 16) -> Any:
    """The places by spec, and the sizes; noted as ExecuTorch notes them."""
    places, sizes = planner.place(alignment, specs, module)
    module.meta["non_const_buffer_sizes"] = sizes
    assert len({id(spec) for spec, _, _ in places}) == len(places)
    return {spec: (memory, offset) for spec, memory, offset in places}, sizes


def chain(count: int) -> Module:
    return Module([Node() for _ in range(count)])


def test_lifetimes_are_inclusive_and_each_memory_is_planned_by_itself() -> None:
    a, b, c = Spec(100, [0, 1]), Spec(60, [1, 2]), Spec(100, [2, 3])
    other, far = Spec(20, [0, 3], mem_id=3), Spec(30, [0, 3], mem_id=3)
    planner = ExecutorchPlanner()
    places, sizes = plan(planner, chain(4), [a, b, c, other, far])
    # a and c share 112 bytes, b of 64 is there with either; the other memory has 32 and 32, memory 2 none.
    assert sizes == [0, 176, 0, 64]
    assert places[a] == places[c]
    assert {places[other], places[far]} == {(3, 0), (3, 32)}
    assert [(each.arena_bytes, each.optimal) for each in planner.plans] == [(176, True), (64, True)]


def test_padding_is_behind_each_memory_and_nothing_is_planned_of_nothing() -> None:
    places, sizes = ExecutorchPlanner().place(16, [], chain(2))
    assert (places, sizes) == ([], [0, 0])
    assert ExecutorchPlanner().place(16, [Spec(8, [0, 0])], chain(1), 64)[1] == [0, 16 + 64]


def test_what_lies_in_another_is_there_with_it_and_holds_it() -> None:
    base = Spec(64, [0, 1])
    part = Spec(16, [1, 3], storage_base=base, storage_base_offset=32, mem_id=7)
    deep = Spec(16, [3, 4], storage_base=part)
    late = Spec(64, [4, 5])
    places, sizes = plan(ExecutorchPlanner(), chain(6), [deep, part, late, base])
    memory, offset = places[base]
    # Also in the memory of its base, whatever it asks for.
    assert places[part] == places[deep] == (memory, offset + 32)
    assert sizes == [0, 128]
    free, _ = plan(ExecutorchPlanner(), chain(6), [base, part, Spec(64, [4, 5])])
    assert len(set(free.values())) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Spec(16, [None, None]), "without a lifetime"),
        (Spec(16, [0, 1], storage_base=Spec(16, [0, 1])), "one that is not planned"),
    ],
)
def test_what_cannot_be_planned_is_refused(spec: Spec, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ExecutorchPlanner().place(16, [spec], chain(2))


@pytest.mark.parametrize("offset", [8, 64, -16])
def test_what_has_no_room_in_another_is_refused(offset: int) -> None:
    base = Spec(64, [0, 1])
    inner = Spec(16, [0, 1], storage_base=base, storage_base_offset=offset)
    with pytest.raises(PlanError, match="a tensor within another: found 16 bytes at byte"):
        ExecutorchPlanner().place(16, [base, inner], chain(2))


def branch(planner: ExecutorchPlanner, temporary: int, output: int) -> tuple[Module, Spec, Spec]:
    """A branch that makes a temporary, then its output."""
    scratch, made = Spec(temporary, [0, 1]), Spec(output, [1, 2])
    module = Module([Node(scratch), Node(made), Node([made], "output")])
    plan(planner, module, [scratch, made])
    return module, scratch, made


def with_calls(*called: tuple[list[Module], Spec], kind: str = "cond", more: int = 1) -> Module:
    """A module whose nodes call others, each with an output, and `more` nodes behind."""
    nodes: list[Node] = []
    modules: dict[str, Module] = {}
    for number, (each, output) in enumerate(called):
        names = [f"m{number}_{row}" for row in range(len(each))]
        modules |= dict(zip(names, each, strict=True))
        attributes = [Node(None, "get_attr", name) for name in names]
        nodes.append(Node([output], target=named(kind), args=(None, *attributes, [])))
    module = Module([*nodes, *(Node() for _ in range(more))], **modules)
    module.input_mem_buffer_sizes = [0, 1]
    return module


def test_branches_and_their_cond_share_the_bytes_of_the_output() -> None:
    planner = ExecutorchPlanner()
    yes, yes_scratch, yes_made = branch(planner, 160, 32)
    no, no_scratch, no_made = branch(planner, 96, 32)
    assert [each.arena_bytes for each in planner.plans] == [192, 128]
    output = Spec(32, [0, 1])
    places, sizes = plan(planner, with_calls(([yes, no], output)), [output])
    assert places[output] == places[yes_made] == places[no_made]
    # While a branch runs, its temporary is there beside the output; those of the other are not.
    assert sizes == [0, 192]
    assert places[yes_scratch][1] < 32 or places[yes_scratch] == (1, 32)
    assert no_scratch in places
    # The plans of the branches are in that of what calls them.
    assert [each.arena_bytes for each in planner.plans] == [192]


def test_the_output_of_a_cond_outlives_the_branches_of_the_next() -> None:
    planner = ExecutorchPlanner()
    first, second = Spec(32, [0, 2]), Spec(32, [1, 2])
    conds = [([branch(planner, 160, 32)[0], branch(planner, 160, 32)[0]], each) for each in (first, second)]
    module = with_calls(*conds)
    places, sizes = plan(planner, module, [first, second])
    assert sizes == [0, 160 + 32 + 32]
    kept = places[first][1]
    for call in conds[1][0]:
        for node in call.graph.nodes[:2]:
            begin = places[node.spec][1]
            assert begin + node.spec.allocated_memory <= kept or kept + 32 <= begin


def test_an_output_that_two_return_or_none_makes_is_held() -> None:
    planner = ExecutorchPlanner()
    # Both outputs of the first branch are one tensor, and the second passes on what is outside of it.
    made, copied = Spec(32, [0, 1]), Spec(32, [0, 1])
    yes = Module([Node(made), Node([made, made], "output")])
    plan(planner, yes, [made])
    outside = Spec(32, [0, 0])
    no = Module([Node(copied), Node([copied, Spec(32, [0, 1])], "output")])
    plan(planner, no, [copied])
    one, two = Spec(32, [0, 1]), Spec(32, [0, 2])
    attributes = [Node(None, "get_attr", "yes"), Node(None, "get_attr", "no")]
    call = Node([one, two], target=named("cond"), args=(None, *attributes, [Node(outside)]))
    module = Module([call, Node(), Node()], yes=yes, no=no)
    module.input_mem_buffer_sizes = [0, 1]
    late = Spec(32, [2, 2])
    places, _ = plan(planner, module, [outside, one, two, late])
    for held in (made, outside, two):
        assert places[held] != places[late]


def test_a_loop_holds_its_output_while_it_runs() -> None:
    planner = ExecutorchPlanner()
    body, scratch, made = branch(planner, 64, 32)
    output = Spec(32, [0, 1])
    places, sizes = plan(planner, with_calls(([body], output), kind="map_impl"), [output])
    # The output is filled row by row: beside all that the body has at a time.
    assert sizes == [0, 64 + 32 + 32]
    assert len({places[each] for each in (scratch, made, output)}) == 3


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.integers(0, 7), st.integers(0, 4), st.sampled_from([None, 1, 2])),
        min_size=1,
        max_size=12,
    )
)
def test_no_two_that_are_there_at_a_node_share_a_byte(drawn: list[tuple[int, int, int, int | None]]) -> None:
    specs = [Spec(size, [start, start + more], mem_id=memory) for size, start, more, memory in drawn]
    places, sizes = plan(ExecutorchPlanner("greedy_by_size"), chain(12), specs)
    for node in range(12):
        there = [spec for spec in specs if spec.lifetime[0] <= node <= spec.lifetime[1]]  # type: ignore[operator]
        taken = [
            (places[spec][0], byte)
            for spec in there
            for byte in range(places[spec][1], places[spec][1] + spec.allocated_memory)
        ]
        assert len(set(taken)) == len(taken)
        assert all(byte < sizes[memory] for memory, byte in taken)
    assert all(offset % 16 == 0 for _, offset in places.values())
