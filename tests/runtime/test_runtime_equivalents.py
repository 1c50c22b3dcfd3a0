"""Every operator that is written in place by another one gives the same bits, in the slab, with no memory
of its own; and the `out` overloads that are not to be trusted are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from memplan_engine import load_program, make_plan
from memplan_engine.runtime.slab.insert_slab import insert_slab, slab_report
from memplan_engine.runtime.slab.out_calls import FOLDS, native_out
from memplan_engine.runtime.slab.out_equivalents import EQUIVALENTS
from memplan_engine.runtime.slab.slab_report import Way
from tests.support.runtime import Calls, same_bits

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def images(dtype: torch.dtype) -> list[torch.Tensor]:
    image = rand(2, 8, 9, 7, dtype=dtype)
    return [image, image.contiguous(memory_format=torch.channels_last), image[:1]]


def norm(x: torch.Tensor, training: bool) -> torch.Tensor:
    statistics = [torch.linspace(0.5, 2, x.shape[1], dtype=x.dtype) for _ in range(4)]
    return aten.batch_norm.default(x, *statistics, training, 0.1, 1e-5, False)


def plain_norm(x: torch.Tensor) -> torch.Tensor:
    statistics = [torch.linspace(0.5, 2, x.shape[1], dtype=x.dtype) for _ in range(4)]
    return aten._native_batch_norm_legit_no_training.default(x, *statistics, 0.1, 1e-5)[0]


def convolution(x: torch.Tensor) -> torch.Tensor:
    weight = torch.linspace(-1, 1, 288, dtype=x.dtype).reshape(4, 8, 3, 3)
    return aten.conv2d.default(x, weight, weight[:, 0, 0, 0], [1, 1], [1, 0])


def any_convolution(x: torch.Tensor) -> torch.Tensor:
    weight = torch.linspace(-1, 1, 288, dtype=x.dtype).reshape(4, 8, 3, 3)
    return aten.convolution.default(x, weight, None, [1, 1], [0, 1], [1, 1], False, [0, 0], 1)


def linears(dtype: torch.dtype) -> list[tuple[torch.Tensor, ...]]:
    weight, bias = rand(5, 33, dtype=dtype), rand(5, dtype=dtype)
    rows = [rand(*shape, 33, dtype=dtype) for shape in ((7,), (2, 9), (1, 1), (2, 3, 4))]
    across = rand(33, 4, 3, dtype=dtype).permute(2, 1, 0)
    return [(x, weight, bias) for x in (*rows, across)] + [(rows[1], weight), (across, weight)]


Inputs = Callable[[torch.dtype], list[Any]]
"""Arguments of one type: tensors, or tuples of several."""


def rows(dtype: torch.dtype) -> list[Any]:
    return [rand(3, 6, dtype=dtype), rand(6, 3, dtype=dtype).t(), rand(2, 3, 4, dtype=dtype)]


def vectors(dtype: torch.dtype) -> list[tuple[torch.Tensor, ...]]:
    return [(rand(n, dtype=dtype), rand(4, n, dtype=dtype).t()) for n in (1, 6, 33)]


CASES: dict[str, tuple[Callable[..., Any], Inputs]] = {
    "linear": (aten.linear.default, linears),
    "matmul": (torch.matmul, vectors),
    "slice_scatter": (lambda x: torch.slice_scatter(x + 1, x[:, :1] * 2, 1, 1, 2), rows),
    "select_scatter": (lambda x: torch.select_scatter(x + 1, x[:, 0] * 2, 1, 0), rows),
    "diagonal_scatter": (lambda x: torch.diagonal_scatter(x + 1, x.diagonal() * 2), rows),
    "copy": (lambda x: aten.copy.default(x + 1, x[:1]), rows),
    "relu": (torch.relu, rows),
    "batch_norm": (lambda x: (norm(x, False), norm(x, True)), images),
    "_native_batch_norm_legit_no_training": (plain_norm, images),
    "max_pool2d": (lambda x: torch.max_pool2d(x, [3, 2], [2, 1], [1, 0]), images),
    "adaptive_avg_pool2d": (
        lambda x: (aten.adaptive_avg_pool2d(x, [1, 1]), aten.adaptive_avg_pool2d(x, [3, 2])),
        images,
    ),
    "embedding": (
        lambda table: aten.embedding.default(table, torch.tensor([[0, 2], [1, 0]])),
        lambda dtype: [rand(3, 6, dtype=dtype), rand(6, 3, dtype=dtype).t()],
    ),
    "softmax": (lambda x: (x.softmax(-1), x.softmax(0)), rows),
    "log_softmax": (lambda x: (x.log_softmax(-1), x.log_softmax(0)), rows),
    "conv2d": (convolution, images),
    "convolution": (any_convolution, images),
    "pad": (lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=-2.0), rows),
    "constant_pad_nd": (lambda x: (aten.constant_pad_nd(x, [0, 1]), aten.constant_pad_nd(x, [0, 0])), rows),
    "__and__": (lambda x: aten.__and__.Tensor(x > 0, x < 1), rows),
    "__or__": (lambda x: aten.__or__.Tensor(x > 0, x < 1), rows),
    "__xor__": (lambda x: aten.__xor__.Tensor(x > 0, x < 1), rows),
    "min": (lambda x: torch.min(x, x.flip(0)), rows),
    "max": (lambda x: torch.max(x, x.flip(0)), rows),
    "add": (lambda x: aten.add.Scalar(x, 1.7), rows),
    "sub": (lambda x: aten.sub.Scalar(x, 1.7), rows),
    "mul": (lambda x: aten.mul.Scalar(x, 1.7), rows),
    "div": (lambda x: aten.div.Scalar(x, 1.7), rows),
    "rsub": (lambda x: aten.rsub.Scalar(x, 1.7), rows),
    "where": (
        lambda x: (aten.where.ScalarOther(x > 0, x, -2.5), aten.where.ScalarSelf(x > 0, 0.1, x)),
        rows,
    ),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 0.3), rows),
    "index_put": (lambda x: torch.index_put(x, (torch.tensor([1, 0]),), x[:1] * 2), rows),
    "arange": (lambda x: torch.arange(1, 9, 0.3, dtype=x.dtype) + torch.arange(27).to(x.dtype), rows),
    "contiguous": (lambda x: x.transpose(0, 1).contiguous(), rows),
    "clone": (lambda x: x.clone(), rows),
    "_to_copy": (lambda x: aten._to_copy.default(x, dtype=torch.float16), rows),
    "to": (lambda x: x.to(torch.int32), rows),
    "type_as": (lambda x: x.type_as(torch.ones(1, dtype=torch.float16)), rows),
    "reshape": (lambda x: x.transpose(0, 1).reshape(-1), rows),
    "flatten": (lambda x: x.transpose(0, 1).flatten(), rows),
    "ones": (lambda x: torch.ones(3), rows),
    "new_ones": (lambda x: x.new_ones(3), rows),
    "ones_like": (lambda x: torch.ones_like(x, dtype=torch.bool), rows),
    "zeros": (lambda x: torch.zeros(3), rows),
    "new_zeros": (lambda x: x.new_zeros(3), rows),
    "zeros_like": (lambda x: torch.zeros_like(x), rows),
    "full": (lambda x: torch.full([3], 0.1, dtype=x.dtype), rows),
    "new_full": (lambda x: x.new_full([3], 0.1), rows),
    "full_like": (lambda x: torch.full_like(x, 0.1), rows),
}
UNTRACED = {"_unsafe_view", "lift_fresh_copy", "scalar_tensor"}
"""Which torch.export makes by itself: constants in the cases above, and reshapes of products below."""


def test_every_entry_of_the_table_has_a_case() -> None:
    assert {name.removeprefix("aten::") for name in EQUIVALENTS} == set(CASES) | UNTRACED


@pytest.mark.parametrize("name", sorted(CASES))
def test_equivalents_give_the_same_bits(name: str) -> None:
    """The op's results are read by one more op, so that they are planned."""
    function, inputs = CASES[name]

    def model(linear: Any, cases: list[tuple[torch.Tensor, ...]]) -> Any:
        results = []
        for args in cases:
            made = function(*args)
            results += [torch.cat([part, part]) for part in (made if isinstance(made, tuple) else (made,))]
        return results

    given = [one if isinstance(one, tuple) else (one,) for dtype in FLOATS for one in inputs(dtype)]
    program = load_program(Calls(model).eval(), (given,))
    module = insert_slab(program, make_plan(program.graph, "greedy_by_size"))
    assert same_bits(program.with_module(module).run((given,)), program.interpret((given,)))
    made = [made for made in slab_report(module).made if made.kind == f"aten.{name}"]
    assert Way.EQUIVALENT in {one.way for one in made}


class Folding(torch.nn.Module):
    """Products of a weight with batches: not even their last digits may depend on who holds the result."""

    def __init__(self, gradients: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 192).requires_grad_(gradients)
        with torch.no_grad():
            self.linear.weight.copy_(rand(192, 64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        across = self.linear(x.transpose(0, 1))
        product = torch.matmul(self.linear.weight, x.transpose(1, 2))
        # A view of a weight wants gradients as the weight does.
        part = aten.linear.default(x.transpose(0, 1), self.linear.weight.split(96)[0], self.linear.bias[:96])
        return torch.cat([across, across]), torch.cat([product, product]), torch.cat([part, part])


@pytest.mark.parametrize("gradients", [True, False])
def test_weights_that_want_gradients_give_the_bits_of_eager(gradients: bool) -> None:
    model, x = Folding(gradients), rand(2, 10, 64)
    program = load_program(model, (x,))
    module = insert_slab(program, make_plan(program.graph, "greedy_by_size"))
    with torch.no_grad():
        expected = model(x)
    assert same_bits(program.interpret((x,)), expected)
    assert same_bits(program.with_module(module).run((x,)), expected)
    made = {one.kind: one for one in slab_report(module).made if one.kind != "aten.cat"}
    assert {kind: one.reason for kind, one in made.items()} == {
        "aten.linear": FOLDS if gradients else "",
        "aten.matmul": FOLDS if gradients else "",
    }


def test_overloads_that_give_other_bits_or_other_memory_are_not_taken() -> None:
    assert native_out(aten.add.Tensor) is aten.add.out
    assert native_out(aten.cat.default) is aten.cat.out
    assert native_out(aten.linear.default) is aten.linear.out
    assert native_out(aten.topk.default) is aten.topk.values
    for target in (
        aten.adaptive_avg_pool2d.default,  # composite; other last digits
        aten.mse_loss.default,  # resizes what it is given
        aten.relu.default,  # generated: computes, then copies
        aten.add_.Tensor,  # in place
        aten.view.default,  # a view
        aten.layer_norm.default,  # none at all
        torch.relu,  # no operator
    ):
        assert native_out(target) is None
