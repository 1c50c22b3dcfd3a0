"""Storages that CPU kernels of torch really allocate, against those planned: all sizes to the byte.

Where a new version of torch changes a kernel, or what fake tensors say of it, these tests fail; the table in
`torch_capture/torch_operators.py` is then to be measured again.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from memplan_engine import compare_run, load_program
from memplan_engine.analysis.peak import find_peak
from memplan_engine.fx_estimator import StorageAliasing, estimate_training
from memplan_engine.lifetimes import Unread, to_problem
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_operators import KERNELS, as_allocated
from memplan_engine.torch_capture.torch_run import Run
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import step_graph, trace_step
from memplan_engine.torch_capture.training.torch_training import capture_training
from tests.support.fx_measured import measure_pair
from tests.support.fx_models import trace_pair
from tests.support.measured import measure_graph_module
from tests.support.training_models import real_inputs, real_like, stitched

aten = torch.ops.aten
DTYPES = (torch.float32, torch.bfloat16)
NONE, MEAN, SUM = range(3)


def real(function, args):
    """Each tensor that `function` gives on real tensors: its place, shape, type and its storage's bytes."""
    with torch.no_grad():
        leaves = pytree.tree_leaves(function(*args))
    return {
        index: (tuple(leaf.shape), leaf.dtype, leaf.untyped_storage().nbytes())
        for index, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor)
    }


def planned(function, args):
    """The same by a re-run of the op's graph."""
    graph = torch.fx.Graph()
    names = [graph.placeholder(f"x{i}") if isinstance(a, torch.Tensor) else a for i, a in enumerate(args)]
    graph.output(graph.call_function(function, tuple(names)))
    run = Run("op")
    slots = [run.take(f"x{i}", arg) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    out = run.run(torch.fx.GraphModule({}, graph), slots)
    found = {}
    for index, name in enumerate(pytree.tree_leaves(out.names, is_leaf=lambda leaf: leaf is None)):
        if name is not None:
            tensor = run.tensors[name]
            found[index] = (tuple(tensor.shape), tensor.dtype, run.nbytes(name))
    return found


REDUCED_IN_PLACE = ("mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss")
ELEMENTWISE = (*REDUCED_IN_PLACE, "huber_loss", "l1_loss", "kl_div", "hinge_embedding_loss")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ELEMENTWISE, "binary_cross_entropy_with_logits"])
def test_losses_take_the_storages_planned(name, dtype):
    op = getattr(aten, name).default
    x, y = torch.rand(5, 8).to(dtype), torch.rand(5, 8).round().to(dtype)
    for a, b in ((x, y), (x.t(), y.t()), (x, y[:, :1].expand(5, 8)), (x[:, ::2], y[:, ::2])):
        for reduction in (NONE, MEAN, SUM):
            weight = (None, None) if name.endswith("logits") else (None,)
            weighted = name.startswith("binary")
            args = (a, b, *weight, reduction) if weighted else (a, b, reduction)
            if name == "hinge_embedding_loss":
                args = (a, b, 1.0, reduction)
            found = planned(op, args)
            assert found == real(op, args), (a.stride(), b.stride(), reduction)
            ((_, _, nbytes),) = found.values()
            in_place = reduction == NONE or name in REDUCED_IN_PLACE
            assert nbytes == dtype.itemsize * (a.numel() if in_place else 1)


def test_a_loss_of_broadcast_and_promoted_arguments_is_as_large_as_unreduced():
    args = (torch.rand(3, 1), torch.rand(1, 7, dtype=torch.float64))
    assert planned(aten.mse_loss.default, args) == real(aten.mse_loss.default, args)
    assert planned(aten.mse_loss.default, args)[0] == ((), torch.float64, 3 * 7 * 8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_of_classes_take_the_storages_planned(dtype):
    x, one, many = torch.rand(5, 8).to(dtype), torch.arange(5), torch.arange(40).reshape(5, 8) % 8
    image, pixels = torch.rand(2, 8, 3, 3).to(dtype), torch.zeros(2, 3, 3, dtype=torch.long)
    cases = [
        (aten.nll_loss_forward.default, (x, one, None, reduction, -100)) for reduction in (NONE, MEAN, SUM)
    ]
    cases += [(aten.nll_loss2d_forward.default, (image, pixels, None, r, -100)) for r in (NONE, MEAN, SUM)]
    cases += [(aten.cross_entropy_loss.default, (x, one, None, r)) for r in (NONE, MEAN, SUM)]
    if dtype == torch.float32:
        cases += [(aten.multi_margin_loss.default, (x, one, 1, 1.0, None, r)) for r in (NONE, MEAN, SUM)]
        cases += [(aten.multilabel_margin_loss_forward.default, (x, many, r)) for r in (NONE, MEAN, SUM)]
    for op, args in cases:
        assert planned(op, args) == real(op, args), (op, args[-1])


TYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]


@pytest.mark.parametrize(("dtype", "kept"), TYPES)
def test_batch_norms_take_the_storages_planned(dtype, kept):
    x, w = torch.rand(2, 4, 3, 3).to(dtype), torch.ones(4).to(kept)
    stats = (torch.zeros(4).to(kept), torch.ones(4).to(kept))
    more = (0.1, 1e-5)
    for training in (True, False):
        for op in (
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit_functional.default,
        ):
            for weight in (w, None):
                args = (x, weight, weight, *stats, training, *more)
                assert planned(op, args) == real(op, args), (op, training)
    for weight in (w, None):
        args = (x, weight, weight, True, *more)
        op = aten._native_batch_norm_legit.no_stats
        assert planned(op, args) == real(op, args)
    for op in (aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default):
        args = (x, w, w, *stats, *more)
        assert planned(op, args) == real(op, args), op


@pytest.mark.parametrize(("dtype", "kept"), TYPES)
def test_layer_and_group_norms_save_in_the_type_of_their_parameters(dtype, kept):
    """Autocast gives a layer norm bfloat16 with weights in float32."""
    x, w = torch.rand(2, 4).to(dtype), torch.ones(4).to(kept)
    for weight, bias in ((w, w), (w, None), (None, w), (None, None)):
        args = (x, [4], weight, bias, 1e-5)
        assert planned(aten.native_layer_norm.default, args) == real(aten.native_layer_norm.default, args)
        args = (x, weight, bias, 2, 4, 1, 2, 1e-5)
        assert planned(aten.native_group_norm.default, args) == real(aten.native_group_norm.default, args)


@pytest.mark.parametrize("mask", list(itertools.product((True, False), repeat=3)))
def test_a_batch_norm_gradient_that_is_not_wanted_is_not_made(mask):
    x, w = torch.rand(2, 4, 3, 3), torch.ones(4)
    args = (x, x, w, torch.zeros(4), w, torch.zeros(4), w, True, 1e-5, list(mask))
    found = planned(aten.native_batch_norm_backward.default, args)
    assert found == real(aten.native_batch_norm_backward.default, args)
    assert list(found) == [index for index in range(3) if mask[index]]
    args = (*args, torch.empty(0, dtype=torch.uint8))
    assert planned(aten.batch_norm_backward.default, args) == real(aten.batch_norm_backward.default, args)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("op", [aten._embedding_bag.default, aten._embedding_bag_forward_only.default])
def test_embedding_bags_take_the_storages_planned(op, dtype):
    weight, indices = torch.rand(10, 5).to(dtype), torch.tensor([0, 1, 2, 3, 1, 4])
    scale = torch.rand(6).to(dtype)
    for mode, scaled, padding, last in itertools.product(range(3), (False, True), (-1, 1), (False, True)):
        if scaled and mode:
            continue
        offsets = torch.tensor([0, 3, 6] if last else [0, 3])
        args = (weight, indices, offsets, False, mode, False, scale if scaled else None, last, padding)
        assert planned(op, args) == real(op, args), (mode, scaled, padding, last)


@pytest.mark.parametrize("gradients", [True, False])
def test_what_an_embedding_bag_makes_depends_on_whether_its_weight_wants_gradients(gradients):
    weight = nn.Parameter(torch.rand(10, 5), requires_grad=gradients)
    indices = torch.tensor([0, 1, 2, 3, 1, 4])
    for mode, last in itertools.product(range(3), (False, True)):
        offsets = torch.tensor([0, 3, 6] if last else [0, 3])
        args = (weight, indices, offsets, False, mode, False, None, last)
        with torch.no_grad():
            assert planned(aten.embedding_bag.default, args) == real(aten.embedding_bag.default, args), (
                mode,
                last,
            )


def test_a_scatter_copies_the_whole_storage_of_its_argument():
    whole = torch.rand(8, 4)
    part, row = whole[2:6, 1:3], torch.rand(2)
    for x in (part, part.t(), whole[:1].expand(4, 4)[:, :2]):
        for op, args in (
            (aten.slice_scatter.default, (x, x[:1] + 1, 0, 1, 2)),
            (aten.select_scatter.default, (x, x[0] + 1, 0, 1)),
            (aten.diagonal_scatter.default, (x, row)),
        ):
            assert planned(op, args) == real(op, args), (op, x.stride())
    assert planned(aten.select_scatter.default, (part, row, 0, 1))[0][2] == whole.nbytes


def test_what_is_found_once_takes_the_storages_planned():
    x, rows = torch.tensor([1.0, 2, 2, 3, 1, 1]), torch.tensor([[1, 1], [1, 1], [2, 2]])
    each = itertools.product((False, True), repeat=2)
    consecutive = aten.unique_consecutive.default
    cases = [(consecutive, (given, *asked), 3) for given in (x, rows) for asked in each]
    cases += [(aten.unique_dim.default, (rows, 0), 2), (consecutive, (rows, True, True, 0), 2)]
    for op, args, expected in cases:
        # How many there are is not known before, but mostly for how many there is room.
        ours, theirs = planned(op, args), real(op, args)
        known = [index for index in ours if isinstance(ours[index][2], int)]
        assert len(known) == expected
        assert [ours[index][2] for index in known] == [theirs[index][2] for index in known], (op, args)


def last_first(*shape):
    """A tensor whose first dimension lies last; of images their channels do."""
    at = 1 if len(shape) == 4 else 0
    order = (*range(at), *range(at + 1, len(shape)), at)
    return torch.rand([shape[each] for each in order]).movedim(-1, at)


def laid(*shape):
    return [last_first(*shape) for _ in range(2)]


INDICES = torch.arange(72).view(2, 3, 3, 4) % 16
LAID: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("mse_loss_backward", (*laid(4, 5), last_first(4, 5), NONE)),
    ("mse_loss_backward", (torch.rand(()), *laid(2, 3, 4, 4), MEAN)),
    ("smooth_l1_loss_backward", (torch.rand(()), *laid(4, 5), MEAN, 1.0)),
    ("huber_loss_backward", (torch.rand(()), *laid(2, 3, 4, 4), SUM, 1.0)),
    ("log_sigmoid_forward", (last_first(4, 5),)),
    ("_log_softmax_backward_data", (*laid(4, 5), 1, torch.float32)),
    ("channel_shuffle", (last_first(2, 4, 3, 3), 2)),
    ("max_unpool2d", (last_first(2, 3, 3, 4), INDICES, [8, 8])),
    ("max_unpool2d", (torch.rand(2, 3, 3, 4), INDICES, [8, 8])),
    ("reflection_pad2d_backward", (last_first(2, 3, 6, 6), last_first(2, 3, 4, 4), [1, 1, 1, 1])),
    ("replication_pad2d_backward", (last_first(2, 3, 6, 6), last_first(2, 3, 4, 4), [1, 1, 1, 1])),
    ("reflection_pad3d", (last_first(2, 3, 4, 4), [1, 1, 1, 1, 0, 0])),
    ("replication_pad3d", (last_first(2, 3, 4, 4), [1, 1, 1, 1, 0, 0])),
    ("reflection_pad3d_backward", (last_first(2, 3, 6, 6), last_first(2, 3, 4, 4), [1, 1, 1, 1, 0, 0])),
    ("replication_pad3d_backward", (last_first(2, 3, 6, 6), last_first(2, 3, 4, 4), [1, 1, 1, 1, 0, 0])),
)


@pytest.mark.parametrize(("name", "args"), LAID)
def test_results_lie_as_those_of_the_kernel_do(name, args):
    """What follows copies what does not lie as it needs: `max_unpool2d` in channels last, say."""
    target = getattr(aten, name).default
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        made = as_allocated(target, target(*fakes), fakes, {})
    found, expected = (
        [each.stride() for each in pytree.tree_leaves(value)] for value in (made, target(*args))
    )
    assert found == expected


def test_a_view_has_the_strides_of_a_real_one_where_there_is_one_row():
    rows = torch.rand(1, 256, 32).transpose(1, 2)
    views = (
        lambda x: aten.view.default(x, [1, 32, 16, 16]),
        lambda x: aten.reshape.default(x, [1, 1, 32, 256]),
        lambda x: aten.flatten.using_ints(x, 0, 1),
        lambda x: aten.unflatten.int(x, 2, [16, 16]),
    )
    for view in views:
        graph = torch.fx.symbolic_trace(view)
        run = Run("op")
        found = run.run(graph, [run.take("x", rows)]).value
        assert found.stride() == view(rows).stride(), graph.code


def live_bytes(problem):
    """Live bytes at each step, by hand."""
    steps = np.arange(problem.steps)[:, None]
    return (((problem.start <= steps) & (steps < problem.end)) @ problem.size).tolist()


def zeros(output):
    return torch.zeros_like(output)


LOSSES = {
    "mse": lambda output: nn.functional.mse_loss(output, zeros(output)),
    "bce": lambda output: nn.functional.binary_cross_entropy(output.sigmoid(), zeros(output)),
    "smooth_l1": lambda output: nn.functional.smooth_l1_loss(output, zeros(output)),
    "soft_margin": lambda output: nn.functional.soft_margin_loss(output, zeros(output)),
}


def step_bytes(model, args, loss, optimizer="sgd", functional=False):
    """Live bytes of a whole step, planned and measured."""
    step = trace_step(model, args, {}, Recipe(optimizer, loss), functional=functional)
    graph = step_graph(step)
    after = measure_graph_module(step.module, real_like([each.value for each in step.arguments]))
    return live_bytes(to_problem(graph, alignment=1)), [after[op.name] for op in graph.ops]


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_with_a_reduced_loss_takes_the_bytes_planned(name):
    ours, run = step_bytes(nn.Linear(8, 8), (torch.rand(500, 8),), LOSSES[name])
    assert ours == run


def test_the_peak_of_a_step_with_a_mean_square_is_four_times_its_output():
    ours, run = step_bytes(nn.Linear(8, 8), (torch.rand(500, 8),), LOSSES["mse"])
    # Output, target, unreduced loss and the output's gradient, 500 × 8 numbers each, and the tangent.
    assert max(ours) == max(run) == 4 * 16_000 + 4


QUICK = {("mse", "min_cut"), ("soft_margin", "default")}


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (each not in QUICK))
        for each in itertools.product(LOSSES, ("default", "min_cut"))
    ],
)
def test_both_halves_with_a_reduced_loss_take_the_bytes_planned(name, partition):
    made = capture_training(nn.Linear(8, 8), (torch.rand(50, 8),), loss=LOSSES[name], partition=partition)
    module, names = stitched(made)
    after = measure_graph_module(module, real_inputs(made.forward_module))
    kinds = {op.name for op in made.joint.ops}
    run = [after[node] for node, name in names.items() if name in kinds]
    assert live_bytes(to_problem(made.joint, alignment=1)) == run
    for graph, half in ((made.forward, made.forward_module), (made.backward, made.backward_module)):
        run = measure_graph_module(half, real_inputs(half))
        assert live_bytes(to_problem(graph, alignment=1)) == [run[op.name] for op in graph.ops]


class Norms(nn.Module):
    """A batch norm on the input, whose gradient nobody wants, and one behind a convolution."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize(
    ("dtype", "functional"),
    [
        (torch.float32, True),
        (torch.bfloat16, False),
        pytest.param(torch.float32, False, marks=pytest.mark.slow),
        pytest.param(torch.bfloat16, True, marks=pytest.mark.slow),
    ],
)
def test_a_step_with_batch_norms_takes_the_bytes_planned(dtype, functional):
    model, image = Norms().to(dtype), torch.rand(2, 3, 8, 8).to(dtype)
    ours, run = step_bytes(model, (image,), torch.sum, "adam", functional)
    assert ours == run


class Distance(nn.Module):
    """A model that gives its own loss."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, target):
        return (nn.functional.mse_loss(self.linear(x), target),)


@pytest.mark.parametrize("unread", Unread)
@pytest.mark.parametrize("partition", ["default", "min-cut"])
def test_the_estimate_by_storages_of_a_mean_square_is_what_a_real_run_takes(partition, unread):
    pair = trace_pair(Distance(), (torch.rand(50, 8), torch.rand(50, 8)), {}, partition)
    forward, backward, peak = measure_pair(
        pair.forward, pair.backward, pair.inputs, free_unread=unread is Unread.FREED
    )
    estimate = estimate_training(
        pair.forward.graph, pair.backward.graph, aliasing=StorageAliasing(), unread=unread
    )
    assert (list(estimate.forward), estimate.peak) == (forward, peak)
    assert [estimate.baseline + entry for entry in estimate.backward] == backward


def test_with_dynamic_shapes_the_formula_is_that_of_the_unreduced_loss():
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = ({0: batch}, {0: batch})
    graph = capture(Distance(), (torch.rand(5, 8), torch.rand(5, 8)), dynamic_shapes=shapes)
    (loss,) = (op.outputs[0] for op in graph.ops if op.kind == "aten.mse_loss")
    tensor = next(tensor for tensor in graph.tensors if tensor.name == loss)
    storage = next(storage for storage in graph.storages if storage.name == tensor.storage)
    assert (tensor.shape, tensor.nbytes) == ((), 4)
    assert (storage.nbytes, storage.formula) == (160, "32*batch")
    plain = capture(Distance(), (torch.rand(5, 8), torch.rand(5, 8)))
    assert find_peak(to_problem(plain)).nbytes == find_peak(to_problem(graph)).nbytes


def test_every_kernel_of_the_table_is_an_operator_of_torch():
    for name in KERNELS:
        assert hasattr(aten, name.removeprefix("aten::")), name


class Mixed(nn.Module):
    """A layer norm that autocast gives bfloat16."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.two(self.norm(self.one(x)))


def test_autocast_takes_the_bytes_predicted_during_every_op():
    """By hand, at the norm: two tensors of 8 × 16 bfloat16, 8 means and deviations in float32, and in
    autocast's cache the casts of the first layer's weight and bias."""
    x = torch.rand(8, 16)
    measured = compare_run(load_program(Mixed(), (x,)), (x,), eager=Mixed())
    assert measured.differing == ()
    norm = [op.kind for op in measured.graph.ops].index("aten.layer_norm")
    assert measured.predicted[norm] == 2 * 8 * 16 * 2 + 2 * 8 * 4 + (16 * 16 + 16) * 2
