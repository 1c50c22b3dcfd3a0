"""`package.module:factory` → Graph, for the command line: the user's own code builds model and inputs."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.importers.torch_capture import capture
from memplan_engine.importers.torch_fake import require_torch
from memplan_engine.importers.torch_run import brief

if TYPE_CHECKING:
    from memplan_engine.graph import Graph

log = logging.getLogger(__name__)

RETURNS = "(model, args), (model, args, kwargs) or (model, kwargs)"


def capture_factory(spec: str, *, functional: bool = False) -> Graph:
    """The graph of what the factory `spec`, "package.module:function", builds.

    The module is imported with the current folder on the path; the factory takes no arguments and returns
    `(model, args)`, `(model, args, kwargs)` or `(model, kwargs)`. It is called under the meta device, so
    that weights take no memory; where that fails it is called again without, with a logged warning.

    Raises
    ------
    InputError: names the factory: no such module or function, an error in it, a wrong return value, a
        model that torch.export cannot trace.
    MissingDependencyError: torch is not installed.
    """
    require_torch("capturing a model")
    with _current_folder_on_path():
        factory = _find(spec)
        model, args, kwargs = _unpack(spec, _build(spec, factory))
        try:
            return capture(model, args, kwargs, functional=functional, name=spec.rpartition(":")[2])
        except InputError as error:
            raise InputError(f"factory {spec}", error.place, error.found, error.expected) from error


@contextmanager
def _current_folder_on_path() -> Iterator[None]:
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)


def _find(spec: str) -> Callable[[], Any]:
    source = f"factory {spec}"
    module_name, colon, path = spec.partition(":")
    if not (module_name and colon and path) or module_name.startswith("."):
        raise InputError(source, "", repr(spec), "package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        place = f"module {module_name}"
        raise InputError(source, place, brief(error), "a module that can be imported") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(source, f"module {module_name}", f"no {path!r} in it", "a function of that name")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(source, "", f"a {type(found).__name__}", "a function without arguments")
    return found  # type: ignore[no-any-return]


def _build(spec: str, factory: Callable[[], Any]) -> Any:
    import torch

    try:
        with torch.device("meta"):
            return factory()
    except Exception as error:
        log.warning("factory %s fails on the meta device (%s): building real weights", spec, brief(error))
    try:
        return factory()
    except Exception as error:
        raise InputError(f"factory {spec}", "", brief(error), "a factory that runs") from error


def _unpack(spec: str, built: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    parts = list(built) if isinstance(built, (tuple, list)) else [built]
    args: Any = ()
    kwargs: Any = {}
    if len(parts) == 2 and isinstance(parts[1], Mapping):
        kwargs = parts[1]
    elif len(parts) in (2, 3):
        args, kwargs = parts[1], parts[2] if len(parts) == 3 else {}
    if (
        len(parts) not in (2, 3)
        or not isinstance(parts[0], torch.nn.Module)
        or not isinstance(args, (tuple, list))
        or not isinstance(kwargs, Mapping)
    ):
        kinds = ", ".join(type(part).__name__ for part in parts)
        found = f"({kinds})" if isinstance(built, (tuple, list)) else kinds
        raise InputError(f"factory {spec}", "return value", found, RETURNS)
    return parts[0], tuple(args), dict(kwargs)
