"""`torch.export` of a model that takes the way of eager mode where it would take another one for being
exported.

transformers makes attention masks when it is exported that eager mode leaves out. What it asks about is
answered here: from the values of the example inputs where these are real, else from what follows of sizes.
torch's own encoder layers are one fused operator in eager mode; so they are here.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from memplan_engine.torch_capture.torch_autocast import tracing_cache
from memplan_engine.torch_capture.torch_fake import MOST_ELEMENTS, concrete, patched
from memplan_engine.torch_capture.torch_operators import gives_views, is_repeatable, written_nodes
from memplan_engine.torch_capture.torch_run import as_input_error, brief
from memplan_engine.torch_capture.torch_source import portable_path

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

TRANSFORMERS = "transformers.utils.import_utils"
"""Where transformers says whether it is being traced, which it takes any fake tensor for."""
COMPILES = "transformers.integrations.flex_attention"
"""It compiles itself where it is not being compiled, which is no way for a trace."""
KEEPS = ("transformers.cache_utils", "transformers.pytorch_utils")
"""Without a tracer these keep tensors for the next call."""
WARNS = "transformers.modeling_utils"
"""It only asks to warn of padding."""
FUSED = ("aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention")
"""Operators that eager mode runs where a tracer gets their parts; what they hold inside nobody sees but the
allocator."""
NEEDS_WEIGHTS = 10
"""The place of that argument of the latter."""
COMPILED_CALL = "compile_wrapper"
"""The function of torch's through which what `torch.compile` has made is called."""
OWN_CALLS = {
    ("torch/_higher_order_ops/utils.py", "_hop_compile_and_call"),
    ("torch/nn/attention/flex_attention.py", "flex_attention"),
}
"""Where eager mode itself calls it: for operators that take functions, which it has Dynamo take apart."""
log = logging.getLogger(__name__)


class Values(Protocol):
    """Whoever knows values of fake tensors, and whether it was said that one is not known."""

    warned: bool

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor`, None where it is not known."""
        ...


def is_tracing(values: Values, source: str) -> Callable[..., bool]:
    """What transformers shall be told instead of its `is_tracing`: that it is where it asks for a value that
    is not known."""
    from torch._subclasses.fake_tensor import FakeTensor

    def stand_in(original: Callable[..., bool], tensor: Any = None) -> bool:
        if not isinstance(tensor, FakeTensor):
            return bool(original(tensor))
        if values.of(tensor) is not None:
            return bool(original())
        if not values.warned:
            values.warned = True
            log.warning(
                "%s: transformers asks for values of %s, which are not known on fake tensors, and takes the "
                "way that it takes when it is exported; with inputs made on the CPU (a static runtime: "
                "and fixed sizes) it takes eager mode's",
                source,
                f"a tensor of shape {tuple(tensor.shape)}",
            )
        return True

    return stand_in


class _WhenImported(MetaPathFinder):
    """Calls `then` when the module `name` has been imported, which it has not yet."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """As the other finders have it, with one thing more to do."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                self.then()

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


@contextmanager
def replaced(
    name: str, stand_in: Callable[..., Any], but: Sequence[str] = (), home: str = TRANSFORMERS
) -> Iterator[None]:
    """With `stand_in(original, …)` for the function `name` of the module `home` wherever a module has it,
    those named in `but` left out; also where `home` is imported meanwhile."""
    original: Any = None

    def function(*args: Any, **kwargs: Any) -> Any:
        return stand_in(original, *args, **kwargs)

    def swap(before: Any, after: Any) -> None:
        for module in list(sys.modules.values()):
            if vars(module).get(name) is before and module.__name__ not in but:
                setattr(module, name, after)

    def begin() -> None:
        nonlocal original
        original = getattr(sys.modules[home], name, None)
        if original is not None:
            swap(original, function)

    finder = _WhenImported(home, begin)
    if home in sys.modules:
        begin()
    else:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        if original is not None:
            # Also where it was imported meanwhile.
            swap(function, original)


def export_as_eager(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: tuple[Sequence[Any], Mapping[str, Any]],
    source: str,
    **options: Any,
) -> tuple[ExportedProgram, list[torch.Tensor]]:
    """`torch.export` (non-strict) of `model(*args, **kwargs)`, and the real tensors among `call` by whose
    values the model chose its way. `call` are `args` and `kwargs` as the caller has them, perhaps with
    values."""
    import torch

    values = _TraceValues(_real_leaves(call))

    def export() -> ExportedProgram:
        with tracing_cache():
            return torch.export.export(model, args, dict(kwargs), strict=False, **options)

    try:
        with _answering_export(model, values, source):
            return export(), values.decisive()
    except Exception as error:
        if not values.consulted:
            raise
        exported = export()
        log.warning(
            "%s: transformers takes the way here that it takes when it is exported, as eager mode's cannot "
            "be exported (%s): bytes and last digits may differ from eager's",
            source,
            brief(error),
        )
        return exported, []


def made_functional(exported: ExportedProgram, source: str) -> ExportedProgram:
    """Return `exported` with functional operators in place of those that write in place.

    Raises
    ------
    InputError: a graph that torch cannot make functional, such as one with writes inside a branch.
    """
    expected = "a graph that torch can make functional; without --functional it is taken as it is"
    with as_input_error(source, "functional form", expected):
        return exported.run_decompositions({})  # type: ignore[no-any-return]


@contextmanager
def _answering_export(model: torch.nn.Module, values: _TraceValues, source: str) -> Iterator[None]:
    """While `model` is exported, with eager mode's answers to what transformers asks."""

    def begin(module: Any, args: Any, kwargs: Any) -> None:
        if values.begin((args, kwargs)):
            # At once: modules choose by whether they have hooks.
            hook.remove()

    def never(original: Any) -> bool:
        values.consulted = True
        return False

    hook = model.register_forward_pre_hook(begin, with_kwargs=True)
    try:
        with (
            replaced("is_torchdynamo_exporting", never, but=(COMPILES, *KEEPS)),
            replaced("is_torchdynamo_compiling", never, but=(COMPILES, *KEEPS)),
            replaced("is_tracing", is_tracing(values, source), but=(WARNS,)),
            values.answers(),
            as_fused(),
        ):
            yield
    finally:
        hook.remove()


def as_fused() -> AbstractContextManager[None]:
    """With the fused operators of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which both leave
    out where they see a tracer, or the function modes that one has."""
    import torch
    from torch.nn.modules import activation

    plain = torch._C._disabled_torch_function_impl
    attention = torch._native_multi_head_attention

    def overridden(args: Sequence[Any]) -> bool:
        kinds = {type(arg) for arg in args} - {torch.Tensor}
        return any(getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)

    def attend(*args: Any) -> Any:
        result, weights = attention(*args)
        # Real tensors give None for weights that are not asked for, fake ones an empty tensor.
        return result, weights if args[NEEDS_WEIGHTS] else None

    return patched(
        (torch.overrides, "has_torch_function", overridden),
        (activation, "_is_make_fx_tracing", lambda: False),
        (torch, "_native_multi_head_attention", attend),
    )


def compiles_itself(model: torch.nn.Module) -> bool:
    """Return whether a part of `model` compiles itself when it is called, which a copy of it does not."""
    return any(getattr(each, "_compiled_call_impl", None) is not None for each in model.modules())


@contextmanager
def hearing_of_compiled(model: torch.nn.Module | None = None) -> Iterator[list[str]]:
    """With a list that has an entry for each call of what `torch.compile` has made, in any thread; one from
    the start where `model` compiles itself. What eager mode compiles for operators that take functions is not
    meant."""
    from torch._dynamo import eval_frame

    heard = ["itself"] if model is not None and compiles_itself(model) else []
    begin = eval_frame.set_eval_frame

    def began(callback: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == COMPILED_CALL and not _is_own_call(caller.f_back):
            heard.append(COMPILED_CALL)
        return begin(callback)

    with patched((eval_frame, "set_eval_frame", began)):
        yield heard


def _is_own_call(frame: FrameType | None) -> bool:
    code = None if frame is None else frame.f_code
    return code is not None and (portable_path(code.co_filename), code.co_name) in OWN_CALLS


def _real_leaves(call: Any) -> dict[Any, torch.Tensor]:
    """The real tensors in `call`, by their paths."""
    import torch
    from torch.utils import _pytree as pytree

    return {
        path: leaf
        for path, leaf in pytree.tree_flatten_with_path(call)[0]
        if type(leaf) in (torch.Tensor, torch.nn.Parameter) and not leaf.is_meta
    }


class _TraceValues:
    """Values of a trace by torch.export, worked out from its nodes, which only those may know who asked for
    them: other branches on data are refused by export, as they should be where inputs come later."""

    def __init__(self, real: Mapping[Any, torch.Tensor]) -> None:
        self.real = real
        self.tracer: Any = None
        self.inputs: dict[Any, torch.Tensor] = {}
        self.value_of: dict[Any, Any] = {}
        self.asked: set[Any] = set()
        self.answered: set[Any] = set()
        self.consulted = self.warned = False

    def begin(self, call: Any) -> bool:
        """Know the inputs of the trace: `call` is what the model is called with in it. Whether there is
        one."""
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
        from torch.utils import _pytree as pytree

        mode = get_proxy_mode()
        if mode is None:
            return False
        self.tracer = mode.tracer
        for path, leaf in pytree.tree_flatten_with_path(call)[0]:
            node = self._node_of(leaf) if path in self.real else None
            if node is not None:
                self.inputs[node] = self.real[path]
        self.value_of.update(self.inputs)
        return True

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of `tensor`, None where it is not known; what follows from one that is known may be asked
        from now on."""
        node = self._node_of(tensor)
        value = None if node is None else self._value(node)
        if value is not None:
            self.asked.add(node)
        return value

    def answers(self) -> Any:
        """A mode that answers branches on what follows from the tensors that were asked for."""
        from torch import Tensor
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import _disable_current_modes

        scalars = (Tensor.__bool__, Tensor.__int__, Tensor.item)
        values = self

        class Answers(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                node = values._node_of(args[0]) if func in scalars and values.asked else None
                if node is not None and not values.asked.isdisjoint(_ancestors(node)):
                    value = values._value(node)
                    if value is not None:
                        values.answered.add(node)
                        with _disable_current_modes():
                            return func(value)
                return func(*args, **(kwargs or {}))

        return Answers()

    def decisive(self) -> list[torch.Tensor]:
        """The real inputs that answers followed from."""
        before = set().union(*map(_ancestors, self.answered))
        return [value for node, value in self.inputs.items() if node in before]

    def _node_of(self, tensor: torch.Tensor) -> Node | None:
        """The node of the trace that made `tensor`."""
        from torch.fx.experimental.proxy_tensor import get_proxy_slot

        slot: Any = None if self.tracer is None else get_proxy_slot(tensor, self.tracer, None)
        return None if slot is None else slot.proxy.node

    def _value(self, node: Node) -> Any:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        cone = self._cone(node)
        if cone is None:
            return None
        with _disable_current_modes(), torch.no_grad():
            for source in cone:
                values = torch.fx.node.map_arg((source.args, source.kwargs), lambda used: self.value_of[used])
                self.value_of[source] = source.target(*values[0], **values[1])  # type: ignore[operator]
        return self.value_of[node]

    def _read_constant(self, node: Node) -> None:
        """Know the value of a tensor that the trace has as an attribute, `torch.tensor([…])` of the model;
        of a symbol the size that the example inputs have."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        size = node.meta.get("val")
        if isinstance(size, torch.SymInt) and size.node.has_hint():
            self.value_of[node] = size.node.hint
        if node.op == "get_attr" and node not in self.value_of:
            value = getattr(self.tracer.root, str(node.target), None)
            if value is not None and not isinstance(value, FakeTensor):
                self.value_of[node] = value

    def _cone(self, node: Node) -> list[Node] | None:
        """The nodes that lead to `node`, in order; None where one of them is not known, or is written."""
        pending, seen = [node], set()
        while pending:
            source = pending.pop()
            if source in seen:
                continue
            self._read_constant(source)
            if _is_written(source) or (source not in self.value_of and not _follows(source)):
                return None
            seen.add(source)
            if source not in self.value_of:
                pending += source.all_input_nodes
        return [source for source in node.graph.nodes if source in seen and source not in self.value_of]


def _follows(node: Node) -> bool:
    """Whether what `node` gives follows from what it is given, and is not too large."""
    import operator

    import torch

    if node.op != "call_function":
        return False
    target: Any = node.target
    if target is operator.getitem:
        return True
    value: Any = node.meta.get("val")
    small = not isinstance(value, torch.Tensor) or (
        all(isinstance(size, int) or size.node.has_hint() for size in value.shape)
        and math.prod(concrete(size) for size in value.shape) <= MOST_ELEMENTS
    )
    return small and is_repeatable(target) and not target._schema.is_mutable


def _is_written(node: Node) -> bool:
    """Whether anything has written what `node` gave, itself or through a view."""
    return any(
        node in written_nodes(user) or (gives_views(user.target) and _is_written(user)) for user in node.users
    )


def _ancestors(node: Node) -> set[Node]:
    """`node` and all that it is made from."""
    ancestors, waiting = set(), [node]
    while waiting:
        ancestor = waiting.pop()
        if ancestor not in ancestors:
            ancestors.add(ancestor)
            waiting += ancestor.all_input_nodes
    return ancestors
