"""Operators that look at the whole storage behind what they are given, or count from its beginning; storages
outside of the slab in safety mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from memplan_engine import (
    InputError,
    MemplanError,
    StaticRuntime,
    insert_slab,
    load_program,
    make_plan,
    run_safely,
)
from memplan_engine.runtime.slab.insert_slab import slab_report
from tests.support.runtime import Calls, same_bits

COUNTS = "an op counts from the beginning of its storage"


def parts(linear, x):
    """Parts written out of place: of what lies in the slab, of a view between other bytes, of one value over
    and over, and returned."""
    inner = (x * 2)[2:6, 1:3]
    one = torch.slice_scatter(inner, inner[:1] + 1, 0, 1, 2)
    two = torch.select_scatter((x + 1).t(), x[0] * 3, 1, 0)
    three = torch.diagonal_scatter(x.exp(), x.diagonal())
    spread = torch.slice_scatter((x * 2)[:1].expand(4, 16), x[:1] + 1, 0, 1, 2)
    return one + 1, two.cos(), three, spread, torch.ops.aten.copy(x + 3, x[:1])


def windows(linear, x):
    """Views that count from the beginning of a storage, inside a sub-graph as well."""
    y = linear(x)
    inside = y.as_strided((3, 4, 16), (32, 16, 1)).sum(1)
    late = torch.select_scatter((x * 2)[1:], x[0], 0, 2).as_strided((2, 3), (16, 1), 20)
    chosen = torch.cond(
        inside.sum() > 0,
        lambda z: z.as_strided((2, 2), (3, 1), 1) + 1,
        lambda z: z.as_strided((2, 2), (2, 1), 2) * 2,
        (y * 2,),
    )
    return inside, late + 1, chosen, y.relu().sum()


class Largest(TorchDispatchMode):
    """The largest storage that anything but the slab's own operators gives back."""

    def __init__(self, slab):
        super().__init__()
        self.slab, self.nbytes, self.held = slab, 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        value = func(*args, **(kwargs or {}))
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            # Kept, so that no address is that of two.
            self.held.append(storage)
            if storage.data_ptr() == self.held[0].data_ptr() or "memplan" in str(func):
                return value
            self.nbytes = max(self.nbytes, storage.nbytes())
        return value


def test_no_operator_copies_the_whole_slab():
    x = torch.randn(16, 16)
    program = load_program(Calls(parts).eval(), (x,))
    for policy in ("native", "all"):
        module = insert_slab(program, make_plan(program.graph, "naive"), policy=policy)
        slab = slab_report(module).slab_bytes
        inputs = program.inputs((x,))
        with torch.no_grad(), Largest(slab) as seen:
            module.forward(*inputs)
        assert max(s.nbytes for s in program.graph.storages) <= 1024 < slab
        assert seen.nbytes <= 1024
        assert same_bits(program.with_module(module).run((x,)), program.interpret((x,)))


def test_what_is_counted_from_the_beginning_of_a_storage_is_left_with_the_allocator():
    x = torch.randn(8, 16)
    program = load_program(Calls(windows).eval(), (x,))
    for policy in ("native", "all"):
        module = insert_slab(program, make_plan(program.graph, "greedy_by_size"), policy=policy)
        assert same_bits(program.with_module(module).run((x,)), program.interpret((x,)))
        left = {made.op for made in slab_report(module).made if made.reason == COUNTS}
        # Whatever the sub-graph is given, its condition too; `relu` lies in the slab.
        assert left == {"linear", "mul", "select_scatter", "mul_1", "gt"}


def vector(linear, x):
    return linear(x[0]).exp().sum(), (x[0] @ linear.weight).exp().sum()


def test_a_product_with_a_vector_lies_in_the_slab_without_a_word_from_torch(capfd):
    x = torch.randn(4, 16)
    program = load_program(Calls(vector).eval(), (x,))
    module = insert_slab(program, make_plan(program.graph, "greedy_by_size"))
    assert same_bits(program.with_module(module).run((x,)), program.interpret((x,)))
    assert slab_report(module).share == 1.0
    assert "resized" not in capfd.readouterr().err


def mixed(linear, x):
    """A convolution over tokens, as SegFormer has it: with one image in the batch its result has the channels
    first, whatever strides its input seems to have."""
    image = linear(x).transpose(1, 2).view(1, 16, 4, 4)
    weight = linear.weight[:, :9].reshape(16, 1, 3, 3)
    tokens = torch.nn.functional.conv2d(image, weight, padding=1, groups=16).flatten(2).transpose(1, 2)
    return linear(torch.nn.functional.gelu(tokens)).exp().sum(1)


def test_layouts_are_those_of_real_kernels():
    x = torch.randn(1, 16, 16)
    model = Calls(mixed).eval()
    program = load_program(model, (x,))
    tensors = {tensor.name: tensor for tensor in program.graph.tensors}
    assert tensors["conv2d"].strides is None
    for policy in ("native", "all"):
        module = insert_slab(program, make_plan(program.graph, "greedy_by_size"), policy=policy)
        assert same_bits(program.with_module(module).run((x,)), program.interpret((x,)))
    runtime = StaticRuntime(model, (x,))
    for _ in range(3):
        assert same_bits(runtime(x), program.interpret((x,)))


def outside(linear, x):
    """Two storages of the allocator's, and one returned."""
    y = linear(x)
    inside = y.as_strided((4, 16), (16, 1)) * 2
    z = inside.as_strided((4, 16), (16, 1)) + y
    return z.exp(), z.sum()


@pytest.fixture
def left_out():
    x = torch.randn(4, 16)
    program = load_program(Calls(outside).eval(), (x,))
    return program, make_plan(program.graph, "greedy_by_size"), (x,)


def test_an_overlap_of_what_lies_outside_of_the_slab_is_caught(left_out):
    program, plan, args = left_out
    assert same_bits(run_safely(program, plan, args).value, program.interpret(args))
    place = {name: index for index, name in enumerate(plan.problem.names)}
    offsets = np.array(plan.offsets)
    offsets[place["mul"]] = offsets[place["linear"]]
    broken = replace(plan, offsets=offsets)
    with pytest.raises(InputError):
        insert_slab(program, broken)
    with pytest.raises(MemplanError, match=r"op 'mul' .* \(256 bytes\) belong to 'linear', which is live"):
        run_safely(program, broken, args, force=True)


@pytest.mark.parametrize(
    ("column", "name", "shift", "message"),
    [
        ("start", "linear", 1, r"op 'linear' .* at step 0 makes buffer 'linear'"),
        ("end", "linear", -1, r"op '\w+' .* reads buffer 'linear', bytes 64–319"),
        (
            "end",
            "exp",
            -1,
            r"after the last op the graph returns buffer 'exp', bytes \d+–\d+, which is live",
        ),
    ],
)
def test_lifetimes_that_are_too_short_are_caught_outside_of_the_slab_and_at_the_end(
    left_out, column, name, shift, message
):
    program, plan, args = left_out
    row = list(plan.problem.names).index(name)
    values = getattr(plan.problem, column).copy()
    values[row] += shift
    broken = replace(plan, problem=replace(plan.problem, **{column: values}))
    with pytest.raises(InputError):
        insert_slab(program, broken)
    with pytest.raises(MemplanError, match=message):
        run_safely(program, broken, args, force=True)


class Attention(nn.Module):
    """In eval mode one kernel, whose second result, the weights, it does not make unless they are wanted."""

    def __init__(self, weights: bool) -> None:
        super().__init__()
        self.inner, self.weights = nn.MultiheadAttention(16, 2, batch_first=True), weights
        self.after = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended, weights = self.inner(x, x, x, need_weights=self.weights)
        return self.after(attended) if weights is None else self.after(attended) * weights.sum()


@pytest.mark.parametrize(
    "model",
    [
        Attention(False).eval(),
        Attention(True).eval(),
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(),
    ],
)
def test_a_result_that_a_kernel_does_not_make_is_given_no_memory(model):
    x = torch.randn(2, 4, 16)
    with torch.no_grad():
        expected = model(x)
    program = load_program(model, (x,))
    assert any("native_multi_head" in op.kind or "encoder_layer" in op.kind for op in program.graph.ops)
    plan = make_plan(program.graph)
    for policy in ("native", "all"):
        module = insert_slab(program, plan, policy=policy)
        assert same_bits(program.with_module(module).run((x,)), expected)
    assert same_bits(run_safely(program, plan, (x,)).value, expected)
    with torch.no_grad():
        assert same_bits(StaticRuntime(model, (x,))(x), expected)
