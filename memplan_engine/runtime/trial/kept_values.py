"""What a run leaves behind beside its result: values that the user's own objects keep, wherever that is."""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake

from memplan_engine.runtime.trial.equality import digest
from memplan_engine.torch_capture.torch_source import is_users

PLAIN = (bool, int, float, complex, str, bytes, type(None))
OWN_DICTS = ("_parameters", "_buffers", "_modules")
"""Attributes of a module whose entries people name as if they were attributes of it."""


class LeftBehind:
    """The tensors that somebody keeps when a run is over, and did not before, or that the run has written:
    by what Python's collector knows of, in whatever object, cache or cell they are. Made before the run."""

    def __init__(self) -> None:
        # Held, so that no other tensor takes the number of one of these.
        self._before = {id(each): (each, each._version) for each in _tensors()}

    def seen(self, given: Any) -> Counter[Any]:
        """How many there are of each dtype, shape and content, but for those in `given`."""
        known = {id(each) for each in given}
        return Counter(
            of_tensor(each)
            for each in _tensors()
            if id(each) not in known and self._before.get(id(each), (each, -1))[1] != each._version
        )


def _tensors() -> list[torch.Tensor]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and not is_fake(each)]


def of_tensor(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, int | None]:
    """What a tensor is compared by."""
    return tensor.dtype, tensor.shape, None if tensor.is_meta else digest(tensor)


def kept_values(model: torch.nn.Module) -> dict[str, Any]:
    """Plain values, and of tensors dtype, shape and digest, that can be reached from `model` and from the
    variables of the file that defines it, by the path to each: attributes, lists and dicts, what functions
    (hooks, say) hold of what is around them. Weights and buffers are among them."""
    seen: set[int] = set()
    found = dict(_reached(model, "model", seen))
    home = sys.modules.get(type(model).__module__)
    if home is not None and _is_own(home):
        for name, value in vars(home).items():
            if not isinstance(value, (ModuleType, type)) and not name.startswith("__"):
                found |= _reached(value, name, seen)
    return found


def _reached(root: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The values below `root`, each object once: `seen` has those that were met, by id."""
    waiting = [(path, root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, PLAIN):
            yield path, value
        elif id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, torch.Tensor):
                yield path, of_tensor(value)
            waiting += [(path + step, part) for step, part in _parts(value)]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What `value` holds, and the step from its path to each."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items() if isinstance(key, PLAIN))
    elif isinstance(value, (list, tuple, deque)):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from ((f" of {name}", part) for name, cell in cells for part in _content(cell))
    elif not isinstance(value, (ModuleType, type)) and _may_keep(value):
        for name, part in vars(value).items():
            if name in OWN_DICTS and isinstance(value, torch.nn.Module):
                yield from ((f".{own}", each) for own, each in part.items())
            else:
                yield f".{name}", part


def _may_keep(value: Any) -> bool:
    """Whether `value` has attributes that are the user's: loggers and locks are not."""
    if not hasattr(value, "__dict__"):
        return False
    return isinstance(value, torch.nn.Module | torch.Tensor) or _is_own(
        sys.modules.get(type(value).__module__)
    )


def _is_own(module: Any) -> bool:
    return is_users(getattr(module, "__file__", None) or "<")


def _content(cell: Any) -> tuple[Any, ...]:
    """What a function holds; nothing where it is not set yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
