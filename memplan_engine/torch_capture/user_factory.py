"""The user's own code that a spec names: found, imported and called."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.torch_run import as_input_error

if TYPE_CHECKING:
    from types import ModuleType


@contextmanager
def current_folder_on_path() -> Iterator[None]:
    """With the current folder among those that modules are found in."""
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)


def find_factory(spec: str) -> Callable[[], Any]:
    """The function that `spec` names, with its arguments; raises InputError where there is none, or where
    they are not its."""
    source = f"factory {spec}"
    module_name, path, arguments = named = parse_factory(spec)
    is_file = module_name.endswith(".py")
    with as_input_error(source, f"module {module_name}", "a module that can be imported"):
        target: Any = _import_file(module_name) if is_file else importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(target, part):
            raise InputError(source, f"module {module_name}", named.not_found, "a function of that name")
        target = getattr(target, part)
    if not callable(target):
        raise InputError(source, "", f"a {type(target).__name__}", "a function")
    _check_arguments(source, target, arguments)
    return partial(target, **arguments)


def call_factory(spec: str, factory: Callable[[], Any]) -> Any:
    """What `factory` returns; an error in it is an InputError that names `spec`."""
    with as_input_error(f"factory {spec}", "", "a factory that runs"):
        return factory()


def _check_arguments(source: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InputError for arguments that `function` does not have, or needs and is not given."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        has = ", ".join(signature.parameters) or "no arguments"
        raise InputError(source, "arguments", str(error), f"those of the function: {has}") from None


def _import_file(path: str) -> ModuleType:
    """The Python file at `path` as a module, which finds others beside it."""
    file = Path(path).resolve()
    name = f"_factory_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module
