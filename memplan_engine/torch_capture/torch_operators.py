"""What operators do beyond what fake tensors and schemas say: what they write in place, whether they can
write into memory that they are given, and what the CPU kernels of torch allocate.

A fake result lies in a storage of just its size; some kernels allocate more, others less. All facts here were
measured on the CPU with the torch that `torch_fake.MEASURED` names, real results against fake ones;
tests/torch_capture/test_torch_kernels.py fails where torch changes. Those that hold on CUDA, too, are
ON_ANY_DEVICE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memplan_engine.torch_capture.torch_fake import tensors_of

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

WRITES_UNSAID = {
    "aten::batch_norm": ("running_mean", "running_var"),
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::instance_norm": ("running_mean", "running_var"),
    "aten::mkldnn_rnn_layer_backward": ("workspace",),
}
"""Arguments written in training although the operator's schema does not say so."""
Arguments = Mapping[str, Any]
"""What an operator was called with, by the names of its schema; defaults included."""
TRAINING_FLAGS = ("training", "train", "use_input_stats")
"""Arguments that say whether an operator is in training."""
NO_REDUCTION = 0


def written_values(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stand_ins: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
) -> Iterator[Any]:
    """The arguments that the operator `target` writes, called with these; with `stand_ins`, which has the
    form of `(args, kwargs)`, what stands for them there. Of what has no schema none are known."""
    said, unsaid, flags = _written_places(target)
    if unsaid and any(_given(place, args, kwargs) is True for place in flags):
        said += unsaid
    for place in said:
        if _given(place, args, kwargs) is not _ABSENT:
            value = _given(place, *(stand_ins or (args, kwargs)))
            if value is not _ABSENT:
                yield value


_ABSENT = object()
Place = tuple[int, str]
"""Of an argument: its place in the schema, and its name."""


def _given(place: Place, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    at, name = place
    return args[at] if at < len(args) else kwargs.get(name, _ABSENT)


@lru_cache(maxsize=4096)
def _written_places(target: Any) -> tuple[tuple[Place, ...], tuple[Place, ...], tuple[Place, ...]]:
    """The arguments of an operator that its schema says to be written; those that are written in training
    although it does not say so; and those that say whether that is."""
    schema = getattr(target, "_schema", None)
    places = [] if schema is None else [(at, each.name) for at, each in enumerate(schema.arguments)]
    marks = [] if schema is None else [each.alias_info for each in schema.arguments]
    written = [place for place in places if marks[place[0]] is not None and marks[place[0]].is_write]
    unsaid = WRITES_UNSAID.get(schema.name, ()) if schema is not None else ()
    rest = tuple(place for place in places if place[1] in unsaid and place not in written)
    return tuple(written), rest, tuple(place for place in places if place[1] in TRAINING_FLAGS)


def arguments_of(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], defaults: bool = False
) -> dict[str, Any]:
    """The arguments of a call of the operator `target` by the names of its schema; with `defaults` also those
    that were not given. Of what has no schema only `kwargs` are known."""
    schema = getattr(target, "_schema", None)
    arguments = [] if schema is None else schema.arguments
    unsaid = {
        argument.name: argument.default_value
        for argument in arguments
        if defaults and argument.has_default_value()
    }
    return {**unsaid, **dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}


def gives_views(target: Any) -> bool:
    """Whether the schema of the operator `target` says that it returns an argument or a view of one."""
    schema = getattr(target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def is_repeatable(target: Any) -> bool:
    """Whether the operator `target` gives the same for the same arguments: nothing random, and no memory
    whose content nobody knows."""
    import torch

    schema = getattr(target, "_schema", None)
    return (
        schema is not None
        and "empty" not in schema.name
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def written_nodes(node: Node) -> Iterator[Node]:
    """The nodes whose results `node` writes in place."""
    import torch

    for value in written_values(node.target, node.args, node.kwargs):
        nodes: list[Node] = []
        torch.fx.node.map_arg(value, nodes.append)
        yield from nodes


def out_variant_of(target: Any) -> bool | None:
    """Whether the operator that a node calls has a native `out` overload with the same arguments.

    Overloads are matched by name and type of every argument: `cat.out` and `cat.names_out` both write into
    `out`, and only one of them takes what `cat.default` takes. Overloads that PyTorch generates compute as
    ever and then copy, so they do not count. None for what is no operator (a Python function).
    """
    import torch

    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return out_overload(target, generated=False) is not None


def out_overload(target: Any, generated: bool) -> torch._ops.OpOverload | None:
    """The overload that takes the arguments of the operator `target`, by name and type of every one, and one
    to write into for each thing that it returns: torch's own or, `generated`, one that computes as ever and
    then copies. None where there is none, and for what makes no memory: in place, a view, no operator."""
    import torch

    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema, packet = target._schema, target.overloadpacket
    if not schema.returns or any(argument.alias_info is not None for argument in schema.arguments):
        return None
    signature = [(argument.name, str(argument.type)) for argument in schema.arguments]
    for name in packet.overloads():
        overload: torch._ops.OpOverload = getattr(packet, name)
        arguments = overload._schema.arguments
        written = [argument for argument in arguments if argument.is_out]
        candidate = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        right_kind = (torch.Tag.generated in overload.tags) is generated
        if right_kind and candidate == signature and len(written) == len(schema.returns):
            return overload
    return None


def as_allocated(target: Any, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return `value`, which the operator `target` gave under fake tensors for these arguments, as the kernel
    of its device makes it: the same values in storages of the sizes that it allocates, in the types that it
    chooses, and None for what it leaves out. To be called in the mode in which `value` was made: sizes stay
    symbolic there. On accelerators this is done for operators ON_ANY_DEVICE only."""
    schema = getattr(target, "_schema", None)
    name = "" if schema is None else schema.name
    kernel = KERNELS.get(name)
    if kernel is None:
        return value
    if name not in ON_ANY_DEVICE and any(
        leaf.device.type not in ("cpu", "meta") for leaf in tensors_of(value)
    ):
        return value
    return kernel(target, value, arguments_of(target, args, kwargs, defaults=True))


def _reduced_in_place(target: Any, value: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """The kernel writes the loss of every element into its result and reduces that in place: a mean or a sum
    is a scalar in a storage as large as the unreduced loss."""
    if arguments["reduction"] == NO_REDUCTION:
        return value
    unreduced: torch.Tensor = target(**{**arguments, "reduction": NO_REDUCTION})
    return unreduced.as_strided((), ())


def _saved_by_parameters(target: Any, value: Any, arguments: Arguments) -> Any:
    """The mean and the inverse deviation that are saved (outputs 1 and 2) have the type of the first of
    weight, bias and running statistics that there is, else of the input; what the functional forms return as
    new running statistics (the last two of five or more outputs) has the type of the old ones."""
    parameters = (arguments.get(name) for name in ("weight", "bias", "running_mean", "running_var", "input"))
    saved = next(tensor for tensor in parameters if tensor is not None).dtype
    outputs = list(value)
    outputs[1:3] = [_typed(output, saved) for output in outputs[1:3]]
    if len(outputs) >= 5:
        outputs[-2:] = [_typed(output, arguments["running_mean"].dtype) for output in outputs[-2:]]
    return tuple(outputs)


def _batch_norm(target: Any, value: Any, arguments: Arguments) -> Any:
    """As `_saved_by_parameters`; what is normalized (output 0) lies as the input where that is dense, be it
    with its channels last, and is row-major otherwise."""
    result, *others = _saved_by_parameters(target, value, arguments)
    return _dense_like(arguments["input"], result), *others


def _batch_norm_gradient(target: Any, value: Any, arguments: Arguments) -> Any:
    """As `_only_wanted`; the gradient of the input (output 0) lies as the input does, or is row-major."""
    gradient, *others = _only_wanted(target, value, arguments)
    name = "input" if "input" in arguments else "self"
    return gradient if gradient is None else _dense_like(arguments[name], gradient), *others


def _dense_like(source: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value` in the order of memory that torch suggests for tensors like `source`."""
    import torch

    suggested = torch._prims_common.suggest_memory_format(source)
    if value.is_contiguous(memory_format=suggested):
        return value
    return torch.empty_like(value, memory_format=suggested)


def _row_major(target: Any, value: Any, arguments: Arguments) -> Any:
    """Results are row-major, however the input lies."""
    if isinstance(value, tuple):
        return tuple([_row_major(target, each, arguments) for each in value])
    return value if value.is_contiguous() else value.new_empty(value.shape)


def _as_suggested(target: Any, value: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """The result has its channels last where those of `self` are."""
    return _dense_like(arguments["self"], value)


def _by_gradient_first(target: Any, value: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """Where both arguments lie differently, the kernel's result lies as the gradient does; that of fake
    tensors as the other."""
    first = arguments["grad_output"]
    second = next(arguments[name] for name in ("self", "self_or_result") if name in arguments)
    strides = (first + second).stride()
    return value if value.stride() == strides else value.new_empty_strided(value.shape, strides)


def _rolled(target: Any, value: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """The kernel joins two parts of each dimension that is rolled, and lies as what is joined does."""
    import torch

    result = arguments["self"]
    if not result.numel():
        return value
    for shift, dim in zip(arguments["shifts"], arguments["dims"], strict=False):
        size = result.shape[dim]
        begin = -shift % size
        parts = result.narrow(dim, begin, size - begin), result.narrow(dim, 0, begin)
        result = torch.cat(parts, dim)
    strides = result.stride()
    return value if value.stride() == strides else value.new_empty_strided(value.shape, strides)


def _typed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return tensor if tensor.dtype == dtype else torch.empty_like(tensor, dtype=dtype)


def _only_wanted(target: Any, value: Any, arguments: Arguments) -> Any:
    """A gradient that `output_mask` does not ask for is not made."""
    return tuple(
        output if needed else None for output, needed in zip(value, arguments["output_mask"], strict=True)
    )


def _dense_gradient(target: Any, value: Any, arguments: Arguments) -> Any:
    """The gradient of the input (output 0) is row-major, however the input lies."""
    gradient = value[0]
    if gradient is None or gradient.is_contiguous():
        return value
    return (gradient.new_empty(gradient.shape), *value[1:])


def _embedding_bag(target: Any, value: Any, arguments: Arguments) -> Any:
    """The place of each index's bag (output 1) is empty for a plain sum in float32, float16 or bfloat16, and
    has room for one number more otherwise. The sizes of the bags (output 2) have room for as many numbers as
    there are offsets, the last included. Without gradients, a sum gives both of them, and the maxima's places
    (output 3), for all offsets."""
    import torch

    weight, scale, offsets = arguments["weight"], arguments["per_sample_weights"], arguments["offsets"]
    summed = arguments["mode"] == 0
    fast = weight.dtype in (torch.float32, torch.float16, torch.bfloat16) and weight.stride(1) == 1
    padded = arguments.get("padding_idx", -1)
    plain = summed and fast and (padded is None or padded < 0) and (scale is None or scale.stride(0) == 1)
    result, places, sizes, maxima = value
    number = arguments["indices"].shape[0]
    places = places.new_empty(0) if plain else places.new_empty(number + 1)[:number]
    if arguments["include_last_offset"]:
        every, bags = offsets.shape[0], offsets.shape[0] - 1
        forward_only = target._schema.name == "aten::_embedding_bag_forward_only"
        if target._schema.name == "aten::embedding_bag":
            forward_only = not weight.requires_grad
        whole = summed and forward_only
        sizes = sizes.new_empty(every)[: every if whole else bags]
        maxima = maxima.new_empty(every) if whole else maxima
    return result, places, sizes, maxima


def _col2im(target: Any, value: Any, arguments: Arguments) -> Any:
    """The result is made in a storage as large as the columns, where these are more."""
    columns = arguments["self"].numel()
    return value if columns <= value.numel() else value.new_empty(columns)[: value.numel()].view(value.shape)


def _copied_storage(target: Any, value: Any, arguments: Arguments) -> Any:
    """The result lies in a copy of the whole storage that `self` shows, where `self` lies in that one; where
    elements of `self` share memory, in a storage of its own."""
    source = arguments["self"]
    if value.storage_offset() != source.storage_offset() or value.stride() != source.stride():
        return value
    whole = source.new_empty(source.untyped_storage().nbytes() // source.dtype.itemsize)
    return whole.as_strided(value.shape, value.stride(), value.storage_offset()).copy_(value)


def shrunk(value: torch.Tensor, count: Any) -> torch.Tensor:
    """Return `value` at the beginning of a storage with room for `count` numbers. It is copied there so that
    what is known of its values stays known."""
    return value.new_empty(count).as_strided(value.shape, value.stride()).copy_(value)


def _unique_consecutive(target: Any, value: Any, arguments: Arguments) -> Any:
    """As many numbers as the input has are allocated for what is found (output 0), and for how often
    (output 2), where that is asked for. Along a dimension, `unique_dim` says."""
    source, dim = arguments["self"], arguments["dim"]
    if dim is not None and source.dim() != 1:
        return _unique_dim(target, value, arguments)
    found, inverse, counts = value
    counts = shrunk(counts, source.numel()) if arguments["return_counts"] else counts
    return shrunk(found, source.numel()), inverse, counts


def _unique_dim(target: Any, value: Any, arguments: Arguments) -> Any:
    """There is room for as many counts (output 2) as there are slices; they are made, asked for or not."""
    *found, counts = value
    return *found, shrunk(counts, arguments["self"].shape[arguments["dim"]])


def _least_squares(target: Any, value: Any, arguments: Arguments) -> Any:
    """The solution (output 0) is the first rows of what the right side is copied into, where equations are
    more than unknowns."""
    solution, *others = value
    rows, columns = arguments["self"].shape[-2:]
    if rows <= columns or not solution.numel():
        return value
    return shrunk(solution, solution.numel() // columns * rows), *others


def _as_viewed(target: Any, value: Any, arguments: Arguments) -> Any:
    """What shows the same bytes in another shape has other strides than fake tensors say in dimensions of
    size 1. Whether an image counts as one with its channels last, and so how a convolution of it lies,
    depends on these."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    source = arguments["self"]
    sizes = (*source.shape, *source.stride(), *value.shape)
    if 1 not in value.shape or source.is_contiguous() or not all(type(size) is int for size in sizes):
        return value
    with unset_fake_temporarily():
        meta = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device="meta")
        strides = target(**{**arguments, "self": meta}).stride()
    return value if strides == value.stride() else value.as_strided(value.shape, strides)


def _lstm_gradients(target: Any, value: Any, arguments: Arguments) -> Any:
    """The gradients of both biases (outputs 3 and 4) are tensors of their own. oneDNN makes all gradients in
    float32, whatever type the layer has."""
    import torch

    apart = (*value[:4], value[4].new_empty(value[4].shape), *value[5:])
    return tuple(_typed(each, torch.float32) for each in apart)


def _group_norm_gradients(target: Any, value: Any, arguments: Arguments) -> Any:
    """Each has the type of what it is the gradient of: under autocast weights have another one."""
    of = (arguments["input"], arguments["weight"], arguments["weight"])
    return tuple(
        each if each is None or owner is None else _typed(each, owner.dtype)
        for each, owner in zip(value, of, strict=True)
    )


def _weight_norm(target: Any, value: Any, arguments: Arguments) -> Any:
    """Norms of weights in half precision (output 1) are in float32."""
    import torch

    half = arguments["v"].dtype in (torch.float16, torch.bfloat16)
    return value[0], _typed(value[1], torch.float32) if half else value[1]


REDUCED_IN_PLACE = (
    "aten::binary_cross_entropy",
    "aten::mse_loss",
    "aten::smooth_l1_loss",
    "aten::soft_margin_loss",
)
VIEWS = ("aten::view", "aten::reshape", "aten::flatten", "aten::unflatten")
SCATTERS = ("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter")
KERNELS: dict[str, Callable[[Any, Any, Arguments], Any]] = {
    **dict.fromkeys(REDUCED_IN_PLACE, _reduced_in_place),
    **dict.fromkeys(
        (
            "aten::native_batch_norm",
            "aten::_native_batch_norm_legit",
            "aten::_native_batch_norm_legit_functional",
            "aten::_batch_norm_with_update",
            "aten::_batch_norm_with_update_functional",
        ),
        _batch_norm,
    ),
    **dict.fromkeys(("aten::native_layer_norm", "aten::native_group_norm"), _saved_by_parameters),
    **dict.fromkeys(("aten::native_batch_norm_backward", "aten::batch_norm_backward"), _batch_norm_gradient),
    **dict.fromkeys(
        (
            "aten::elu_backward",
            "aten::hardswish_backward",
            "aten::softplus_backward",
            "aten::logit_backward",
        ),
        _by_gradient_first,
    ),
    **dict.fromkeys(
        (
            "aten::mse_loss_backward",
            "aten::smooth_l1_loss_backward",
            "aten::huber_loss_backward",
            "aten::log_sigmoid_forward",
            "aten::_log_softmax_backward_data",
        ),
        _row_major,
    ),
    **dict.fromkeys(
        (
            "aten::channel_shuffle",
            "aten::max_unpool2d",
            "aten::reflection_pad2d_backward",
            "aten::reflection_pad3d",
            "aten::reflection_pad3d_backward",
            "aten::replication_pad2d_backward",
            "aten::replication_pad3d",
            "aten::replication_pad3d_backward",
        ),
        _as_suggested,
    ),
    "aten::roll": _rolled,
    "aten::native_layer_norm_backward": _dense_gradient,
    "aten::col2im": _col2im,
    "aten::unique_consecutive": _unique_consecutive,
    **dict.fromkeys(("aten::unique_dim", "aten::unique_dim_consecutive"), _unique_dim),
    "aten::linalg_lstsq": _least_squares,
    "aten::native_group_norm_backward": _group_norm_gradients,
    "aten::mkldnn_rnn_layer_backward": _lstm_gradients,
    "aten::_weight_norm_interface": _weight_norm,
    **dict.fromkeys(VIEWS, _as_viewed),
    **dict.fromkeys(SCATTERS, _copied_storage),
    **dict.fromkeys(
        ("aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only"), _embedding_bag
    ),
}
"""Operators by name → what makes the fake result the real one."""
ON_ANY_DEVICE = frozenset((*REDUCED_IN_PLACE, *VIEWS, *SCATTERS, "aten::col2im", "aten::linalg_lstsq"))
"""Those whose results torch allocates on CUDA as on the CPU. Its functions for `mse_loss`, `smooth_l1_loss`,
`soft_margin_loss`, `lstsq`, views and scatters are the same on both (`native_functions.yaml`); of
`binary_cross_entropy` and `col2im` aten/src/ATen/native/cuda/Loss.cu and Col2Im.cu were read."""
