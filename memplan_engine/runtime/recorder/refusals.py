"""Refuse what fake tensors take and a predicted run cannot tell: nested tensors, lazy modules, what torch.jit
compiles, and types that kernels refuse (`"bitwise_and_cpu" not implemented for 'Float'`, matrices of two).

No table says which types. The operator itself runs on real tensors of the same types and a few elements, once
for each combination of types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial, partialmethod
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.lazy import LazyModuleMixin

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import RECORDED
from memplan_engine.torch_capture.torch_operators import gives_views
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_generators import on_real_tensors
from memplan_engine.torch_capture.training.torch_origins import who_asks, who_makes

FEW = 4
"""The largest size and whole number of a call that is tried."""
ENOUGH = 32
"""The same of a call that decides."""
MOST_ELEMENTS = 2**20
"""A refusal is confirmed on tensors of the sizes of the call, where they have no more elements."""
OF_TYPES = re.compile(
    r"not implemented for|\bd?types?\b|\b(bool|boolean|complex|half|integers?|integral|float|floating)\b",
    re.I,
)
"""Words of errors about types, and of none about sizes."""
PRIVATE = re.compile(
    "__|_(log_|safe_)?softmax|_linalg|_adaptive|_embedding_bag|_cdist_f|_fft|_upsample|_native_batch"
    "|_batch_norm|_prelu|_unique|_ctc_loss|_weight_norm|_unsafe"
)
"""Operators that are tried although their names begin with "_"; others may trust what calls them."""
OF_BOTH = re.compile(
    r"bitwise_|__[ilr]*(and|or|xor|shift)__|gcd|lcm|_(log_)?softmax|b?mm$|add[bm]?mm|baddbmm"
)
"""Operators whose kernels for CUDA refuse the types that those for the CPU refuse, half precision aside."""
HALF = (torch.float16, torch.bfloat16)


def refused(label: str) -> list[tuple[Any, str, Any]]:
    """Return what `torch_fake.patched` puts in the place of what the run `label` cannot tell."""
    scripts = (torch._C.ScriptMethod, torch._C.ScriptFunction)
    return [
        (FakeTensorMode, "create_symbolic_nested_int", partial(_no_nested, label)),
        (LazyModuleMixin, "__init__", partialmethod(_no_lazy, label)),
        *((kind, "__call__", _no_script(label, kind.__call__)) for kind in scripts),
        *((torch.jit, name, partial(_no_trace, label)) for name in ("trace", "trace_module")),
    ]


def _no_nested(label: str, *call: Any, **options: Any) -> NoReturn:
    raise InputError(label, "fake run", f"a nested tensor {who_makes()}", f"plain ones, {RECORDED}")


def _no_lazy(module: LazyModuleMixin, label: str, *call: Any, **options: Any) -> NoReturn:
    found = f"{type(module).__name__}, whose weights have no size yet, {who_makes()}"
    raise InputError(label, "fake run", found, f"a module with its sizes given, {RECORDED}")


def _no_trace(label: str, *call: Any, **options: Any) -> NoReturn:
    found = f"torch.jit.trace, which compares values, called {who_asks()}"
    raise InputError(label, "fake run", found, f"the model itself, {RECORDED}")


def _no_script(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` of what torch.jit has compiled, refused of a module, and of a function that works out
    gradients: what it keeps for these depends on how often it was called."""

    def called(script: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = any(each.requires_grad for each in tensors_in((args, kwargs)))
        if isinstance(script, torch._C.ScriptMethod) or (wanted and torch.is_grad_enabled()):
            found = f"what torch.jit.script has compiled, {script.name!r}, called {who_asks()}"
            raise InputError(label, "fake run", found, f"the model itself, {RECORDED}")
        return call(script, *args, **kwargs)

    return called


class RefusedTypes:
    """Raises what torch raises for the types of a call, which fake tensors pass over."""

    def __init__(self) -> None:
        self._passed: set[Any] = set()
        """Operators, each with types that it takes."""

    def check(self, operator: Any, args: Any, kwargs: Any) -> None:
        """Raise the error of `operator` for the types of these arguments, where there is one."""
        if not _is_tried(operator):
            return
        key = (operator, _types(args), _types(tuple(kwargs.items())))
        if key in self._passed:
            return
        error = _refusal(operator, args, kwargs)
        if error is not None:
            raise error.with_traceback(None)
        self._passed.add(key)


@cache
def _is_tried(operator: Any) -> bool:
    if getattr(operator, "namespace", "") != "aten" or torch.Tag.inplace_view in operator.tags:
        return False
    name = operator._schema.name.removeprefix("aten::")
    private = name.startswith("_") and PRIVATE.match(name) is None
    is_view = gives_views(operator) and not operator._schema.is_mutable and "complex" not in name
    # A file must not be touched.
    others = name == "from_file" or "empty" in name or name.endswith("_backward")
    return not (private or is_view or others)


def _types(value: Any) -> Any:
    """Return what calls of like types share: types and dimensions of tensors, kinds of numbers."""
    if isinstance(value, torch.Tensor):
        # Of no elements many kernels take any type.
        return value.dtype, value.dim(), value.device.type, 0 in value.shape
    if isinstance(value, (tuple, list)):
        return tuple([_types(each) for each in value])
    return value if isinstance(value, (torch.dtype, str, bool)) else type(value)


def _refusal(operator: Any, args: Any, kwargs: Any) -> Exception | None:
    """Return the error about types that `operator` raises on real tensors in place of these."""
    tensors = list(tensors_in((args, kwargs)))
    if any(each.is_quantized for each in tensors) or not _is_judged(operator, tensors):
        return None
    if _raised(operator, args, kwargs, FEW) is None:
        return None
    whole = sum(each.numel() for each in tensors) <= MOST_ELEMENTS
    return _raised(operator, args, kwargs, None if whole else ENOUGH)


def _is_judged(operator: Any, tensors: list[torch.Tensor]) -> bool:
    """Return whether the kernels of the CPU say what those of the device of `tensors` refuse."""
    if all(each.device.type in ("cpu", "meta") for each in tensors):
        return True
    types = {each.dtype for each in tensors}
    name = operator._schema.name.removeprefix("aten::")
    return OF_BOTH.match(name) is not None and (len(types) > 1 or not types & set(HALF))


def _raised(operator: Any, args: Any, kwargs: Any, most: int | None) -> Exception | None:
    with on_real_tensors(), torch._C._DisableAutocast():
        state = torch.default_generator.get_state()
        try:
            real = [_real(each, most) for each in args], {name: _real(kwargs[name], most) for name in kwargs}
            operator(*real[0], **real[1])
        except Exception as error:
            return error if OF_TYPES.search(str(error)) else None
        finally:
            torch.default_generator.set_state(state)
    return None


def _real(value: Any, most: int | None) -> Any:
    """Return `value` with real tensors, sizes and numbers of at most `most`."""
    if isinstance(value, torch.Tensor):
        sizes = [size if most is None else min(size, most) for size in value.shape]
        # What is used as an index is one that there is.
        whole = not (value.is_floating_point() or value.is_complex())
        return (torch.zeros if whole else torch.ones)(sizes, device="cpu").to(value.dtype)
    if isinstance(value, (tuple, list)):
        return [_real(each, most) for each in value]
    if isinstance(value, (torch.device, torch.Generator)):
        return None
    return min(value, most) if type(value) is int and most is not None else value
