"""What eager mode does with real CPU tensors where it would do something else with fake ones.

Python and composite operators choose by the kind of tensor before the dispatcher is reached: an LSTM is one
oneDNN call a layer on real tensors, hundreds of small ops on fake ones. And the state of the random generator
is no tensor of the trace, so that what a checkpoint runs again would draw other numbers. While a step is
traced, these stand in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from memplan_engine.torch_capture.torch_fake import patched
from memplan_engine.torch_capture.training.torch_packed import pad_packed_sequence

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

ONEDNN_LSTM = 2
"""The kind of recurrent layer, by oneDNN's numbers."""


@cache
def own_ops() -> Any:
    """Our own operators: the state of the random generator read, written and made of a seed, and oneDNN's
    LSTM layer as it runs while gradients are recorded."""
    import torch

    @torch.library.custom_op("memplan::get_rng_state", mutates_args=(), schema="() -> Tensor")
    def get_rng_state() -> torch.Tensor:
        return torch.default_generator.get_state()

    @torch.library.custom_op("memplan::set_rng_state", mutates_args=(), schema="(Tensor state) -> ()")
    def set_rng_state(state: torch.Tensor) -> None:
        # It reads from the beginning of the storage: a copy has one of its own.
        torch.default_generator.set_state(state.clone())

    # Seeds go up to 2^64, numbers of a graph do not.
    @torch.library.custom_op("memplan::manual_seed", mutates_args=(), schema="(str seed) -> ()")
    def manual_seed(seed: str) -> None:
        torch.default_generator.manual_seed(int(seed))

    layer = torch.ops.aten.mkldnn_rnn_layer.default
    schema = str(layer._schema).removeprefix(layer._schema.name)

    @torch.library.custom_op("memplan::mkldnn_rnn_layer", mutates_args=(), schema=schema)
    def mkldnn_rnn_layer(*args: Any, **kwargs: Any) -> Any:
        # Without it the kernel makes no workspace for its gradient.
        with torch.enable_grad():
            return layer(*args, **kwargs)

    def fake_layer(*args: Any, **kwargs: Any) -> Any:
        *outputs, _ = layer(*args, **kwargs)
        shapes = tuple(tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg for arg in args)
        nbytes = workspace_bytes(shapes[:7], *shapes[7:8], *shapes[9:], args[0].dtype)
        return *outputs, args[0].new_empty(nbytes, dtype=torch.uint8)

    product = torch.ops.aten._grouped_mm.default
    schema = str(product._schema).removeprefix(product._schema.name)

    @torch.library.custom_op("memplan::grouped_mm", mutates_args=(), schema=schema)
    def grouped_mm(*args: Any, **kwargs: Any) -> torch.Tensor:
        return product(*args, **kwargs)  # type: ignore[no-any-return]

    grouped_mm.register_fake(_fake_product)
    mkldnn_rnn_layer.register_fake(fake_layer)
    nbytes = torch.default_generator.get_state().numel()
    get_rng_state.register_fake(lambda: torch.empty(nbytes, dtype=torch.uint8))
    set_rng_state.register_fake(lambda state: None)
    manual_seed.register_fake(lambda seed: None)
    for written in (torch.ops.memplan.set_rng_state, torch.ops.memplan.manual_seed):
        torch.fx.node.has_side_effect(written.default)
    return torch.ops.memplan


@cache
def workspace_bytes(shapes: tuple[tuple[int, ...], ...], reverse: bool, *rest: Any) -> int:
    """How large a workspace oneDNN makes for an LSTM layer of these shapes; only oneDNN knows, so it is
    asked, with zeros."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    *options, dtype = rest
    with _disable_current_modes(), unset_fake_temporarily(), torch.enable_grad():
        zeros = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        outputs = torch.ops.aten.mkldnn_rnn_layer(*zeros, reverse, [], *options)
    return int(outputs[3].numel())


def with_own_ops(module: GraphModule) -> None:
    """Have the LSTM layers in a traced step make the workspaces that its backward pass reads, and grouped
    products be such that fake tensors of any type can take them."""
    import torch

    aten, own = torch.ops.aten, own_ops()
    layer, product = aten.mkldnn_rnn_layer.default, aten._grouped_mm.default
    for target, ours in ((layer, own.mkldnn_rnn_layer), (product, own.grouped_mm)):
        for node in module.graph.find_nodes(op="call_function", target=target):
            node.target = ours.default
    module.recompile()


@contextmanager
def as_eager() -> Iterator[None]:
    """With what eager mode takes, for what is traced on fake tensors that claim to lie on the CPU."""
    import torch
    import torch.utils.checkpoint
    from torch._subclasses.fake_impls import op_implementations_dict

    ops = own_ops()

    def seeded(seed: Any) -> Any:
        ops.manual_seed.default(str(int(seed)))
        return torch.default_generator

    gradient, product = torch.ops.aten.mkldnn_rnn_layer_backward.default, torch.ops.aten._grouped_mm.default
    functions: Any = torch._VF
    functions.lstm, functions._pad_packed_sequence = _lstm, pad_packed_sequence
    op_implementations_dict[gradient] = _fake_gradient
    op_implementations_dict[product] = _fake_product_in
    try:
        with patched(
            *((module, "get_rng_state", ops.get_rng_state.default) for module in (torch, torch.random)),
            *((module, "set_rng_state", ops.set_rng_state.default) for module in (torch, torch.random)),
            (torch.random, "_manual_seed_impl", seeded),
            (torch, "ctc_loss", partial(_ctc_loss, torch.ctc_loss)),
            (torch.nn.functional, "one_hot", _one_hot),
            # Under a tracer selective checkpoints keep every result, for a compiler to choose from.
            (torch.utils.checkpoint, "_is_compiling", lambda *args: False),
        ):
            yield
    finally:
        del functions.lstm, functions._pad_packed_sequence
        del op_implementations_dict[gradient], op_implementations_dict[product]


def _fake_gradient(mode: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """That of an LSTM layer on fake tensors. Were the gradients of both biases one tensor, as torch has it,
    autograd would copy them. There are gradients of biases also for the zeros that stand for them."""
    biases = (3, 4)
    shapes = [args[1].shape[:1] if place in biases else args[place].shape for place in range(7)]
    with mode:
        return tuple(arg.new_empty(shape) for arg, shape in zip(args, shapes, strict=False))


def _fake_product_in(mode: Any, product: Any, *args: Any, **kwargs: Any) -> Any:
    """As `_fake_product`, for fake tensors of `mode`."""
    with mode:
        return _fake_product(*args, **kwargs)


def _fake_product(
    left: torch.Tensor, right: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    """A grouped product of fake tensors. Torch's own says no to all but bfloat16, as GPUs do; the CPU does
    not. Groups are rows of the first, columns of the second, or both, what they add up over."""
    groups = [len(offs)] if offs is not None and left.dim() == right.dim() == 2 else []
    batch = [left.shape[0]] if left.dim() == right.dim() == 3 else groups
    return left.new_empty([*batch, left.shape[-2], right.shape[-1]], dtype=out_dtype or left.dtype)


def _lstm(*args: Any) -> Any:
    """As `aten::lstm` on CPU tensors (aten/src/ATen/native/RNN.cpp and mkldnn/RNN.cpp, torch 2.13): oneDNN's
    layer where it takes these, the decomposed loop elsewhere."""
    import torch

    if not (isinstance(args[3], bool) and _taken_by_onednn(args[0], args[1], args[2], args[3])):
        return torch._C._VariableFunctions.lstm(*args)
    return _onednn_lstm(*args)


def _ctc_loss(
    loss: Any,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Return `loss`, which is `torch.ctc_loss`, with lengths that are numbers. For a mean C++ writes these
    into memory that fake tensors do not have (aten/src/ATen/native/LossCTC.cpp)."""
    import torch

    lengths = input_lengths, target_lengths
    is_mean = reduction == 1 and not isinstance(target_lengths, torch.Tensor)
    each: torch.Tensor = loss(log_probs, targets, *lengths, blank, 0 if is_mean else reduction, zero_infinity)
    if not is_mean:
        return each
    divisors = torch.tensor(target_lengths, dtype=each.dtype, device=each.device).clamp_min_(1)
    return (each / divisors).mean()


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Return `torch.nn.functional.one_hot` as C++ makes it of real tensors
    (aten/src/ATen/native/Onehot.cpp); of fake ones it compares each with every class."""
    import torch

    if not tensor.numel() and num_classes > 0:
        return torch.empty((*tensor.shape, num_classes), dtype=tensor.dtype, device=tensor.device)
    if tensor.device.type == "cpu":
        # It looks whether these are classes.
        tensor.min()
    if num_classes < 0:
        num_classes = int(tensor.max().item()) + 1
    elif tensor.device.type == "cpu":
        tensor.max()
    result = torch.zeros((*tensor.shape, num_classes), dtype=tensor.dtype, device=tensor.device)
    return result.scatter_(-1, tensor.unsqueeze(-1), 1)


def _four_weights(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The weights of a layer with zeros for the biases that it has not, of the shapes that C++ takes, made in
    its order."""
    import torch

    if len(weights) == 4:
        return list(weights)
    own, recurrent = weights
    zeros = [torch.zeros(weight.shape, dtype=weight.dtype) for weight in (recurrent, own)]
    return [own, recurrent, *reversed(zeros)]


def _taken_by_onednn(
    data: torch.Tensor, state: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], biases: bool
) -> bool:
    """Whether oneDNN takes an LSTM of these: on the CPU, in a type that it knows, without projections."""
    import torch

    tensors = (data, *state, *weights)
    projected = state[0].shape[-1] != state[1].shape[-1]
    onednn: Any = torch.backends.mkldnn
    if not onednn.is_available() or not onednn.enabled or projected:
        return False
    if any(tensor.device.type != "cpu" for tensor in tensors) or not data.numel():
        return False
    supported: dict[torch.dtype, bool] = {
        torch.float32: True,
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
        # It has no backward pass for float16.
        torch.float16: not torch.is_grad_enabled() and torch.ops.mkldnn._is_mkldnn_fp16_supported(),
    }
    return supported.get(data.dtype, False)


def _onednn_lstm(
    data: torch.Tensor,
    state: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    # Held to the end, as in C++.
    _held = data = (data.transpose(0, 1) if batch_first else data).contiguous()
    hidden, cell = (tensor.contiguous() for tensor in state)
    directions, each = 1 + bidirectional, 4 if biases else 2
    last: list[tuple[torch.Tensor, torch.Tensor]] = []
    # Those of a layer are held until the next one has its own, as in C++.
    outputs: list[Any] = [None] * directions
    for layer in range(layers):
        for direction in range(directions):
            place = layer * directions + direction
            state_of = hidden.select(0, place), cell.select(0, place)
            outputs[direction], *ends, _ = torch.ops.aten.mkldnn_rnn_layer(
                data, *_four_weights(weights[each * place : each * (place + 1)]), *state_of, bool(direction),
                [], ONEDNN_LSTM, hidden.shape[2], layers, biases, bidirectional, batch_first, train,
            )  # fmt: skip
            last.append((ends[0], ends[1]))
        data = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer < layers - 1:
            data = torch.dropout(data, dropout, train=True)
    ends_of = [torch.stack(tensors, 0) for tensors in zip(*last, strict=True)]
    return data.transpose(0, 1) if batch_first else data, ends_of[0], ends_of[1]
