"""How a captured program is called: which inputs it takes, and what becomes of its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError, one_line
from memplan_engine.torch_capture.capture_module import check_module
from memplan_engine.torch_capture.torch_graph import same_strides


@dataclass(frozen=True, slots=True)
class Expected:
    """One flat input as it was captured: a strided tensor of this shape, type and place, or, where `dtype` is
    None, the plain value `value`. `strides` are in elements. `decisive` is the content of a tensor whose
    values decided about the way that the model took."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    strides: tuple[int, ...] = ()
    value: Any = None
    decisive: torch.Tensor | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CallForm:
    """The nested form of a call. `spec` is that of `(args, kwargs)`; `positional` are the names of forward's
    parameters that may stand in `args`, () when they are not known."""

    spec: pytree.TreeSpec
    positional: tuple[str, ...] = ()


def expected_input(name: str, value: Any) -> Expected:
    """What `value` (a real or fake tensor, or a plain value) asks of the input `name` later on."""
    if not isinstance(value, torch.Tensor):
        return Expected(name, value=value)
    return Expected(name, tuple(value.shape), value.dtype, value.device, tuple(value.stride()))


def call_form(model: torch.nn.Module, spec: pytree.TreeSpec) -> CallForm:
    """The form of calls of `model` that was captured as `spec`."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return CallForm(spec)
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return CallForm(spec, tuple(p.name for p in by_place))


def check_call(model: Any, args: Any, kwargs: Any, source: str) -> None:
    """Raise InputError for what is no module, or not called with a tuple and a dict."""
    check_module(model, source)
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs or {}, Mapping):
        found = f"{type(args).__name__} and {type(kwargs).__name__}"
        raise InputError(source, "args and kwargs", found, "a tuple and a dict")


def flatten_call(form: CallForm, source: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The leaves of a call, in the order in which they were captured. Arguments may be given by place or by
    name, as forward takes them.

    Raises
    ------
    InputError: another number of arguments, other names, or arguments nested in another way.
    """
    if not isinstance(args, (tuple, list)):
        raise InputError(source, "inputs", f"args of type {type(args).__name__}", "a tuple")
    args, kwargs = _as_captured(form, source, list(args), dict(kwargs))
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    if spec != form.spec:
        raise InputError(source, "inputs", _form_text(spec), f"the captured form, {_form_text(form.spec)}")
    return leaves


def _as_captured(
    form: CallForm, source: str, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The same call with as many positional arguments as were captured, keywords in the captured order."""
    count, names = _captured_arguments(form.spec)
    positional = form.positional
    if len(args) != count and count <= len(positional) and len(args) <= len(positional):
        named = dict(zip(positional, args, strict=False))
        if repeated := named.keys() & kwargs.keys():
            raise InputError(source, "inputs", f"{min(repeated)!r} twice", "each argument once")
        kwargs = named | kwargs
        args = [kwargs.pop(name) for name in positional[:count] if name in kwargs]
    if len(args) != count:
        raise InputError(source, "inputs", f"{len(args)} positional arguments", f"{count}, as captured")
    if kwargs.keys() != set(names):
        missing, extra = sorted(set(names) - kwargs.keys()), sorted(kwargs.keys() - set(names))
        found = f"no {missing[0]!r}" if missing else f"an argument {extra[0]!r}"
        raise InputError(
            source, "inputs", found, f"the keyword arguments captured: {', '.join(names) or 'none'}"
        )
    return args, {name: kwargs[name] for name in names}


def _captured_arguments(spec: pytree.TreeSpec) -> tuple[int, list[str]]:
    """How many positional arguments `spec` has, and the names of its keyword arguments."""
    positional, keywords = spec.children()
    return positional.num_children, list(keywords.context or [])


def _form_text(spec: pytree.TreeSpec) -> str:
    args, kwargs = pytree.tree_unflatten(["*"] * spec.num_leaves, spec)
    text = str((*args, *(f"{name}={value}" for name, value in kwargs.items())))
    return one_line(text.replace("'", ""), 200)


def check_inputs(expected: Sequence[Expected], values: Sequence[Any], source: str) -> None:
    """Raise InputError, naming the input, unless every one of `values` is what was captured: tensors of the
    same shape, type, device and strides, plain values and decisive tensors that are equal."""
    for entry, value in zip(expected, values, strict=True):
        _check_form(entry, value, source)
        if entry.decisive is not None and not torch.equal(entry.decisive, value):
            chosen = "those captured, by which the model chose its way, or a program loaded with these"
            raise InputError(source, f"input {entry.name!r}", "other values", chosen)


def _check_form(expected: Expected, value: Any, source: str) -> None:
    if type(value) is torch.Tensor and _is_as_captured(expected, value):
        return
    place = f"input {expected.name!r}"
    if expected.dtype is None:
        if (
            isinstance(value, torch.Tensor)
            or type(value) is not type(expected.value)
            or value != expected.value
        ):
            raise InputError(source, place, one_line(repr(value), 80), f"{expected.value!r}, as captured")
        return
    if not isinstance(value, torch.Tensor):
        raise InputError(source, place, f"a {type(value).__name__}", f"a tensor of {expected.dtype}")
    for attribute, found, captured in (
        ("shape", tuple(value.shape), expected.shape),
        ("dtype", value.dtype, expected.dtype),
        ("device", value.device, expected.device),
        ("layout", value.layout, torch.strided),
    ):
        if found != captured:
            raise InputError(source, place, f"{attribute} {found}", f"{attribute} {captured}, as captured")
    if not same_strides(expected.shape, value.stride(), expected.strides):
        found, captured = tuple(value.stride()), expected.strides
        raise InputError(source, place, f"strides {found}", f"strides {captured}, as captured")


def _is_as_captured(expected: Expected, value: torch.Tensor) -> bool:
    """Whether `value` is plainly what was captured: no words to be made, as in most calls."""
    return (
        value.dtype is expected.dtype
        and value.shape == expected.shape
        and value.stride() == expected.strides
        and value.device == expected.device
        and value.layout is torch.strided
    )
