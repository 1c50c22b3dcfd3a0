"""The slab pass: the same bits from planned bytes, an order that holds, and plans that are refused."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from memplan_engine import (
    InputError,
    MemplanError,
    Plan,
    Program,
    capture,
    check_order,
    insert_slab,
    load_program,
    make_plan,
    make_problem,
    slab_report,
)
from memplan_engine.runtime.slab.slab_report import Way
from tests.support.runtime import Blocks, Calls, Counts, Pixels, same_bits

memplan = torch.ops.memplan
POLICIES = ("native", "all")
X = torch.linspace(-2, 2, 64).reshape(4, 16)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def planned(program: Program, alignment: int = 64) -> Plan:
    return make_plan(program.graph, "greedy_by_size", alignment=alignment)


@pytest.fixture(scope="module")
def blocks() -> tuple[Blocks, Program, Plan]:
    model = Blocks()
    program = load_program(model, (X,), name="blocks")
    return model, program, planned(program)


def nodes_of(module: GraphModule, target: Any) -> list[Node]:
    return module.graph.find_nodes(op="call_function", target=target)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("functional_form", [False, True])
def test_the_same_bits_in_the_planned_bytes(policy: str, functional_form: bool) -> None:
    """Every view that a run makes of the slab lies where the plan says, and is as large as it says."""
    model = Blocks()
    program = load_program(model, (X,), functional=functional_form)
    plan = planned(program)
    module = insert_slab(program, plan, policy=policy)
    places: dict[str, tuple[int, int]] = {}

    class Looks(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.target is memplan.allocate_slab.default:
                self.base = value.data_ptr()
                assert value.nbytes == -(-plan.arena_bytes // 64) * 64
            if n.target is memplan.allocate_tensor.default and "memplan_writes" in n.meta:
                places[n.meta["memplan_writes"]] = (value.data_ptr() - self.base, value.nbytes)
            return value

    with torch.no_grad():
        Looks(module).run(*program.inputs((X,)))
    offsets = dict(zip(plan.problem.names, zip(plan.offsets, plan.problem.size, strict=True), strict=True))
    assert places
    assert places == {name: offsets[name] for name in places}
    assert same_bits(program.with_module(module).run((X,)), model(X))
    made = {made.storage for made in slab_report(module).made if made.way is not Way.LEFT}
    assert set(places) == made
    if policy == "all":
        assert made == set(plan.problem.names)


def test_what_is_where_and_why() -> None:
    program = load_program(Calls(lambda linear, x: functional.layer_norm(linear(x), [16]).relu().exp()), (X,))
    plan = planned(program)
    report = slab_report(insert_slab(program, plan))
    assert [(made.storage, made.way, made.reason) for made in report.made] == [
        ("linear", Way.NATIVE, ""),
        ("layer_norm", Way.LEFT, "no out overload with its arguments"),
        ("relu", Way.EQUIVALENT, ""),
        ("exp", Way.LEFT, "returned by the graph"),
    ]
    assert [made.nbytes for made in report.made] == [256] * 4
    assert report.share == pytest.approx(2 / 3)
    assert report.nbytes == {
        Way.NATIVE: 256,
        Way.EQUIVALENT: 256,
        Way.GENERATED: 0,
        Way.COPIED: 0,
        Way.LEFT: 512,
    }
    assert (report.views, report.in_place, report.slab_bytes) == (0, 0, plan.arena_bytes)
    assert "66.7% of the bytes written in place" in str(report)
    assert "aten.layer_norm: no out overload with its arguments, 256 B" in str(report)
    ways = [made.way for made in slab_report(insert_slab(program, plan, policy="all")).made]
    assert ways == [Way.NATIVE, Way.COPIED, Way.EQUIVALENT, Way.NATIVE]
    with pytest.raises(InputError, match="expected a graph that insert_slab made"):
        slab_report(program.module)


def test_the_printed_graph() -> None:
    """`sin` does not read `cos`, but takes the bytes of its input over."""
    model = Calls(lambda linear, x: linear(x).exp().cos() + x.sin().tanh())
    program = load_program(model, (X,))
    code = insert_slab(program, planned(program)).code
    lines = [line.split(";")[0].strip() for line in code.splitlines() if " = " in line]
    view, form = "torch.ops.memplan.allocate_tensor.default", "[4, 16], [16, 1], torch.float32"
    token = "memplan_engine_runtime_slab_operators_done"
    assert lines == [
        "slab = torch.ops.memplan.allocate_slab.default(768, 64, device(type='cpu'))",
        f"linear_memory = {view}(slab, 0, {form})",
        "linear = torch.ops.aten.linear.out(args_0, p_linear_weight, p_linear_bias, out = linear_memory)",
        f"exp_memory = {view}(slab, 256, {form})",
        "exp = torch.ops.aten.exp.out(linear, out = exp_memory)",
        f"cos_memory = {view}(slab, 0, {form})",
        "cos = torch.ops.aten.cos.out(exp, out = cos_memory)",
        f"cos_done = {token}(cos)",
        f"sin_memory = {view}(slab, 256, {form}, [cos_done])",
        "sin = torch.ops.aten.sin.out(args_0, out = sin_memory)",
        f"tanh_memory = {view}(slab, 512, {form})",
        "tanh = torch.ops.aten.tanh.out(sin, out = tanh_memory)",
        "add = torch.ops.aten.add.Tensor(cos, tanh)",
        f"add_done = {token}(add)",
        "released = torch.ops.memplan.release_slab.default(slab, [add_done])",
    ]


def slices(linear: Any, x: torch.Tensor) -> torch.Tensor:
    y = linear(x).exp()
    z = y.clone()
    z[:, 2:5] = x[:, :3]
    return z + y


def several(linear: Any, x: torch.Tensor) -> torch.Tensor:
    values, places = linear(x).topk(4, dim=1)
    left, right = x.sin().split(8, dim=1)
    return torch.cat([linear(x).gather(1, places) + values, left * right], dim=1)


MODELS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "in place": (lambda linear, x: linear(x).relu_().add_(1).mul_(x) * 2, (X,)),
    "mutated input": (lambda linear, x: (x.add_(1), linear(x).sigmoid() * x)[1], (X,)),
    "outputs that share": (
        lambda linear, x: (lambda y: (y.view(2, 32), y[:, 3:5], y))(linear(x).exp()),
        (X,),
    ),
    "the input itself": (lambda linear, x: (x, x.t()), (X,)),
    "several results": (several, (X,)),
    "slices": (slices, (X,)),
    "branches": (
        lambda linear, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (linear(x),)) * 2,
        (X,),
    ),
    "gradients on": (lambda linear, x: with_gradients(linear, x), (X,)),
    "types": (lambda linear, x: (linear(x).double() + x).half().to(torch.bfloat16) * 2, (X,)),
    "channels last": (
        lambda linear, image: functional.max_pool2d(functional.relu(image * 2), 2).contiguous() + 1,
        (IMAGE.contiguous(memory_format=torch.channels_last),),
    ),
    "loss": (lambda linear, x: functional.mse_loss(linear(x).tanh(), x) * 2, (X,)),
    "constants": (lambda linear, x: linear(x)[torch.tensor([2, 0])] * torch.tensor(3.0), (X,)),
    "nothing": (lambda linear, x: x.expand(2, 4, 16), (X,)),
    "no elements": (lambda linear, x: torch.cat([x[:0], linear(x)]) * torch.zeros(0, 16).sum(), (X,)),
    "resized": (lambda linear, x: linear(x).exp_().unsqueeze_(0) * 2, (X,)),
}


def with_gradients(linear: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        y = (linear(x) * 2).exp()
    return y.relu() * 2


@pytest.mark.parametrize("name", MODELS)
def test_models_of_all_kinds(name: str) -> None:
    """With the plan of another capture, from the program and from its bare graph, and from a copy."""
    function, args = MODELS[name]
    model = Calls(function)

    def fresh() -> tuple[torch.Tensor, ...]:
        return tuple(arg.clone() for arg in args)

    program = load_program(model, fresh())
    plan = make_plan(capture(model, fresh()), "greedy_by_size")
    given, expected = fresh(), None
    expected = program.interpret(given)
    with torch.no_grad():
        assert same_bits(expected, model(*fresh()))
    for policy in POLICIES:
        module = insert_slab(program, plan, policy=policy)
        for made in (module, insert_slab(program.module, plan, policy=policy), copy.deepcopy(module)):
            check_order(made)
            left = fresh()
            assert same_bits(program.with_module(made).run(left), expected)
            assert same_bits(left, given)


def test_batch_norm_in_training_and_channels_last() -> None:
    for train in (False, True):
        model = Pixels().train(train)
        image = IMAGE.contiguous(memory_format=torch.channels_last)
        twin = copy.deepcopy(model)
        program = load_program(model, (image,))
        module = insert_slab(program, planned(program))
        with torch.no_grad():
            assert same_bits(program.with_module(module).run((image,)), twin(image))
        assert same_bits(model.state_dict(), twin.state_dict())
        kinds = {made.kind for made in slab_report(module).left_out}
        assert kinds <= {"aten.conv2d", "aten.linear"}


def test_buffers_and_inputs_are_written_as_forward_would() -> None:
    for functional_form in (False, True):
        model = Counts()
        program = load_program(model, (torch.ones(3, 4),), functional=functional_form)
        x = torch.ones(3, 4)
        result = program.with_module(insert_slab(program, planned(program), policy="all")).run((x,))
        assert model.calls == 1
        assert result["calls"] == 1
        assert torch.equal(x, torch.full((3, 4), 2.0))


def test_it_runs_with_gradients_on(blocks: tuple[Blocks, Program, Plan]) -> None:
    model, program, plan = blocks
    module = insert_slab(program.module, plan)
    weights = list(model.parameters())
    assert torch.is_grad_enabled()
    assert weights[0].requires_grad
    total = module(*weights, X)[0]
    assert torch.is_grad_enabled()
    assert not total.requires_grad
    assert same_bits(total, model(X)["total"].detach())


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_that_is_returned_lies_in_the_slab(
    blocks: tuple[Blocks, Program, Plan], policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slab is overwritten when it is released: the results do not mind."""
    model, program, plan = blocks
    module = insert_slab(program, plan, policy=policy)

    class Overwrites(Interpreter):
        def run_node(self, n: Node) -> Any:
            if n.target is memplan.release_slab.default:
                self.env[n.args[0]].fill_(255)  # type: ignore[index]
            return super().run_node(n)

    inputs = program.inputs((X,))
    with torch.no_grad():
        result = program.outputs(Overwrites(module).run(*inputs), inputs)
    assert same_bits(result, model(X))


def test_it_is_copied_but_not_pickled(blocks: tuple[Blocks, Program, Plan]) -> None:
    _, program, plan = blocks
    module = insert_slab(program, plan)
    for copied in (copy.copy(module), copy.deepcopy(module)):
        assert same_bits(program.with_module(copied).run((X,)), program.interpret((X,)))
        assert slab_report(copied) == slab_report(module)
    with pytest.raises(MemplanError, match="save the plan, and insert the slab again"):
        torch.save(module, io.BytesIO())


def test_large_alignments() -> None:
    program = load_program(Blocks(), (X,))
    plan = planned(program, alignment=4096)
    module = insert_slab(program, plan)
    seen = []

    class Looks(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.target is memplan.allocate_tensor.default:
                seen.append(value.data_ptr() % 4096)
            return value

    with torch.no_grad():
        Looks(module).run(*program.inputs((X,)))
    assert set(seen) == {0}


# The order


@given(st.randoms(use_true_random=False))
def test_any_order_that_keeps_dependencies_keeps_the_result(random: Any) -> None:
    """A pure graph, shuffled: any topological order gives the same bits, because bytes that are taken over
    wait for those who had them; the checker sees that it is not the order planned."""
    program = shuffled_program()
    module = copy.deepcopy(insert_slab(program, planned(program)))
    before = [node.name for node in module.graph.nodes]
    shuffle(module, random)
    after = [node.name for node in module.graph.nodes]
    assert same_bits(program.with_module(module).run((X,)), program.interpret((X,)))
    if before != after:
        with pytest.raises(InputError, match=r"order: graph: found '\w+' before '\w+'"):
            check_order(module)


@cache
def shuffled_program() -> Program:
    return load_program(Calls(wide), (X,))


def wide(linear: Any, x: torch.Tensor) -> torch.Tensor:
    parts = [torch.exp(x + n).sin() * linear(x) for n in range(4)]
    return torch.stack([part.relu().cos() for part in parts]).sum(0) + x.tanh().sin()


def shuffle(module: GraphModule, random: Any) -> None:
    nodes = list(module.graph.nodes)
    output, waiting = nodes[-1], nodes[:-1]
    placed: set[Any] = set()
    order = []
    while waiting:
        ready = [node for node in waiting if placed.issuperset(node.all_input_nodes)]
        ready = [node for node in ready if node.op == "placeholder"][:1] or ready
        node = random.choice(ready)
        order.append(node)
        placed.add(node)
        waiting.remove(node)
    for node in order:
        output.prepend(node)
    module.recompile()


def test_the_checker_names_what_was_moved_added_or_lost(blocks: tuple[Blocks, Program, Plan]) -> None:
    _, program, plan = blocks
    made = insert_slab(program, plan)
    check_order(made)
    with pytest.raises(InputError, match="no recorded order"):
        check_order(program.module)
    module = copy.deepcopy(made)
    check_order(module)
    nodes = {node.name: node for node in module.graph.nodes}
    nodes["relu"].prepend(nodes["linear_1"])
    with pytest.raises(InputError, match="found 'linear_1' before 'relu', expected 'relu' before 'linear_1'"):
        check_order(module)
    module = copy.deepcopy(made)
    with module.graph.inserting_before(module.graph.output_node()):
        module.graph.call_function(torch.ops.aten.neg.default, (next(iter(module.graph.nodes)),), name="late")
    with pytest.raises(InputError, match="node 'late': found a node that was added"):
        check_order(module)
    module = copy.deepcopy(made)
    module.graph.erase_node(nodes_of(module, memplan.release_slab.default)[0])
    with pytest.raises(InputError, match="node 'released': no such node"):
        check_order(module)


def test_dead_code_elimination_leaves_the_graph_alone(blocks: tuple[Blocks, Program, Plan]) -> None:
    model, program, plan = blocks
    module = copy.deepcopy(insert_slab(program, plan))
    module.graph.eliminate_dead_code()
    module.recompile()
    check_order(module)
    assert same_bits(program.with_module(module).run((X,)), model(X))


# Plans that are refused


def moved(plan: Plan, buffer: str, offset: int) -> Plan:
    offsets = plan.offsets.copy()
    offsets[plan.problem.names.index(buffer)] = offset
    return replace(plan, offsets=offsets)


def with_columns(plan: Plan, **columns: Any) -> Plan:
    problem = plan.problem
    kept = {key: getattr(problem, key) for key in ("start", "end", "size", "alignment")}
    made = make_problem(**(kept | columns), names=problem.names, steps=problem.steps, origin=problem.origin)
    return replace(plan, problem=made)


def test_plans_that_do_not_fit_are_refused(blocks: tuple[Blocks, Program, Plan]) -> None:
    _, program, plan = blocks
    problem = plan.problem
    other = planned(load_program(Calls(wide), (X,)))
    smaller = planned(load_program(Blocks(), (X[:2],)))
    row = problem.names.index("relu")
    ends = problem.end.copy()
    ends[row] -= 1
    sizes = problem.size.copy()
    sizes[row] -= 4
    floor = plan.offsets[problem.names.index("linear")]
    cases = [
        (other, "one for 'Calls': op 0 is 'linear' here and 'add' there"),
        (smaller, r"op 'linear' reads float32\[4, 16\] .* here and float32\[2, 16\] .* there"),
        (moved(plan, "layer_norm", floor), "layer_norm and linear overlap|linear and layer_norm overlap"),
        (moved(plan, "relu", -64), "offset -64"),
        (moved(plan, "relu", 2**63 - 64), "with size 256, expected 0 ≤ offset, offset \\+ size < 2\\^63"),
        (moved(plan, "relu", 2**62), "found an arena of 4 EiB, expected at most"),
        (
            moved(with_columns(plan, alignment=1), "relu", 2**20 + 2),
            "a multiple of 4, the item size of float32",
        ),
        (with_columns(plan, end=ends), "'relu' live during steps .*, expected live during steps"),
        (with_columns(plan, size=sizes), "found 252 bytes for buffer 'relu', expected 256 bytes"),
        (make_plan(make_problem([0], [1], [64])), "no buffer that is a storage of the graph"),
    ]
    for refused, message in cases:
        with pytest.raises(InputError, match=message) as raised:
            insert_slab(program, refused)
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="policy: found 'some', expected one of native, all"):
        insert_slab(program, plan, policy="some")


def test_graphs_without_recorded_values_and_of_modules_are_refused(
    blocks: tuple[Blocks, Program, Plan],
) -> None:
    _, program, plan = blocks
    module = copy.deepcopy(program.module)
    next(iter(module.graph.find_nodes(op="placeholder"))).meta.clear()
    with pytest.raises(InputError, match="node p_first_weight: found no recorded"):
        insert_slab(module, plan)
    with pytest.raises(InputError, match=r"by torch\.export or make_fx"):
        insert_slab(torch.fx.symbolic_trace(Blocks()), plan)
    with pytest.raises(InputError, match="call_module, expected a flat graph of operators"):
        insert_slab(torch.export.export(Blocks(), (X,)).module(), plan)
    with pytest.raises(InputError, match="a dynamic size, expected a graph captured with plain sizes"):
        insert_slab(make_fx(lambda x: x.exp().sin(), tracing_mode="symbolic")(X), plan)


# The operators


def test_the_operators_by_themselves() -> None:
    slab = memplan.allocate_slab(1000, 64, "cpu")
    assert (slab.dtype, slab.shape) == (torch.uint8, (1024,))
    made = memplan.allocate_tensor(slab, 64, [2, 3], [3, 1], torch.float32)
    assert (made.data_ptr() - slab.data_ptr(), made.stride()) == (64, (3, 1))
    assert memplan.release_slab(slab) is None
    page = memplan.allocate_slab(8192, 4096, "cpu")
    assert page.data_ptr() % 4096 == 0
    assert len(page) == 8192
    with torch._subclasses.FakeTensorMode():
        fake = memplan.allocate_tensor(memplan.allocate_slab(10**15, 64, "cpu"), 64, [2], [1], torch.int8)
        assert fake.shape == (2,)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(-64, [2], [1]), (3, [2], [1]), (0, [300], [1]), (2**62, [2], [1]), (0, [2**40, 2**40], [2**40, 1])],
)
@pytest.mark.parametrize("alignment", [64, 4096])
def test_views_outside_of_the_slab_are_refused(
    offset: int, size: list[int], stride: list[int], alignment: int
) -> None:
    slab = memplan.allocate_slab(1000, alignment, "cpu")
    with pytest.raises(InputError, match="within 1024 bytes"):
        memplan.allocate_tensor(slab, offset, size, stride, torch.float32)


def test_views_that_leave_a_slab_at_the_start_of_a_larger_allocation_are_refused() -> None:
    """So it lies where the allocation happens to begin at the alignment."""
    slab = torch.empty(5120, dtype=torch.uint8)[:1024]
    assert memplan.allocate_tensor(slab, 0, [256], [1], torch.float32).shape == (256,)
    with pytest.raises(InputError, match="within 1024 bytes"):
        memplan.allocate_tensor(slab, 0, [257], [1], torch.float32)


@pytest.mark.parametrize(
    ("nbytes", "alignment"), [(-1, 64), (64, 0), (2**63 - 1, 64), (2**63 - 64, 4096), (2**60, 64)]
)
def test_slabs_that_cannot_be(nbytes: int, alignment: int) -> None:
    with pytest.raises(MemplanError, match=r"slab: .*bytes"), redirect_stdout(io.StringIO()):
        memplan.allocate_slab(nbytes, alignment, "cpu")
