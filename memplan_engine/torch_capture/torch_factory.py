"""`package.module:factory` → Graph, for the command line: the user's own code builds model and inputs."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.system import memory_bytes
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_fake import patched, require_torch
from memplan_engine.torch_capture.torch_run import as_input_error, brief
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import step_graph, trace_step
from memplan_engine.torch_capture.training.torch_training import TrainingCapture, capture_training
from memplan_engine.units import format_bytes

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from memplan_engine.graph import Graph

log = logging.getLogger(__name__)

RETURNS = "(model, args), (model, args, kwargs), (model, kwargs), or a dict of model, args and kwargs"
TRAINED = ("optimizer", "loss", "step", "accumulate", "clip_grad_norm")
"""What a factory that returns a dict may say of training; see `Recipe`."""
KEYS = ("model", "args", "kwargs", "dynamic_shapes", *TRAINED)
TRAINING = ("step", "joint")
LARGE_BYTES = 2**30
"""Weights from this size on are worth a warning before they are made."""


Tell = Callable[[str], None]
"""What hears of each stage of the work as it begins."""


def _nobody(stage: str) -> None:
    """Nobody hears of it."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the factory called `name` has built: the model, its inputs by place and by name, its dynamic
    shapes (None where there are none), and what it says of training, by the names of `Recipe`."""

    name: str
    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any = None
    trained: Mapping[str, Any] = field(default_factory=dict)

    def recipe(self, options: Mapping[str, Any] | None = None) -> Recipe:
        """How it is trained; `options`, by the names of `Recipe`, go before what the factory says. None
        leaves an option to the factory."""
        overrides = {name: value for name, value in (options or {}).items() if value is not None}
        return Recipe(**{**self.trained, **overrides})


def capture_factory(
    spec: str, *, functional: bool = False, dynamic: Sequence[str] = (), tell: Tell = _nobody
) -> Graph:
    """The graph of what the factory `spec`, "package.module:function" or "folder/file.py:function", builds.

    The module is imported with the current folder on the path; a file with its own. The factory takes no
    arguments and returns `(model, args)`, `(model, args, kwargs)` or `(model, kwargs)`. It is called under
    the meta device, so that weights take no memory; where that fails it is called again without, with a
    logged warning.

    `dynamic` says in the form of `torch_dims` which input dimensions are symbols: "input_ids:1=seq[2:1024]".
    A factory can say so itself: as a fourth element, or by a dict of "model", "args", "kwargs" and
    "dynamic_shapes" (in torch's form or in that of `dynamic`); `dynamic`, where given, takes its place.
    `tell` hears of each stage as it begins.

    Raises
    ------
    InputError: names the factory: no such module or function, an error in it, a wrong return value, a
        model that torch.export cannot trace, a dimension that cannot be dynamic.
    MissingDependencyError: torch is not installed.
    """
    with _building(spec, tell) as built:
        tell("exporting the model")
        shapes = tuple(dynamic) or built.dynamic_shapes
        return capture(
            built.model,
            built.args,
            built.kwargs,
            functional=functional,
            dynamic_shapes=shapes,
            name=built.name,
        )


def capture_training_factory(
    spec: str,
    training: str = "step",
    *,
    gradients: str = "held",
    partition: str = "default",
    functional: bool = False,
    tell: Tell = _nobody,
    **options: Any,
) -> Graph:
    """The training graph of what the factory `spec` builds, as `capture_factory` finds and calls it.

    `training` is "step" (as `capture_step`, with `gradients` and `functional`; `options` are those of
    `Recipe`) or "joint" (the joint graph of `capture_training`, with `partition`). The model is trained in
    the mode in which the factory leaves it, on its own loss: HuggingFace models need `labels` among their
    inputs. A factory that returns a dict can say more of a step: "optimizer", "loss", "step", "accumulate"
    and "clip_grad_norm"; `options`, where given, take their place.

    Raises
    ------
    InputError: as `capture_factory`; no loss, no parameter that requires a gradient, or an unknown
        `training`, `optimizer`, `gradients` or `partition`.
    MissingDependencyError: torch is not installed.
    """
    if training not in TRAINING:
        raise InputError(f"factory {spec}", "training", repr(training), f"one of {', '.join(TRAINING)}")
    if training == "joint":
        return capture_pair_factory(spec, partition=partition, tell=tell).joint
    with _building(spec, tell) as built:
        tell("tracing a training step")
        traced = trace_step(
            built.model,
            built.args,
            built.kwargs,
            built.recipe(options),
            gradients=gradients,
            functional=functional,
            name=built.name,
        )
        return step_graph(traced)


def capture_pair_factory(spec: str, *, partition: str = "default", tell: Tell = _nobody) -> TrainingCapture:
    """Forward and backward of what the factory `spec` builds, apart and joined; raises as
    `capture_training_factory` does."""
    with _building(spec, tell) as built:
        tell("tracing forward and backward")
        loss = built.trained.get("loss")
        return capture_training(
            built.model, built.args, built.kwargs, partition=partition, loss=loss, name=built.name
        )


def build_factory(spec: str, *, seed: int = 0, weights: bool = True) -> Built:
    """What the factory `spec` builds, on the CPU with weights: random ones come from `seed`. It is called
    under the meta device first, which tells how large they are; LARGE_BYTES and more are logged as a warning.
    Without `weights` parameters are on the meta device from the moment that a module has them, and inputs and
    buffers have values; where that fails the factory is called again with weights, with a logged warning.

    Raises
    ------
    InputError: as `capture_factory`; weights that are larger than the machine's memory.
    MissingDependencyError: torch is not installed.
    """
    require_torch("running a model")
    import torch

    with _current_folder_on_path():
        factory = _find(spec)
        torch.manual_seed(seed)
        why = ""
        if not weights:
            try:
                with _without_weights():
                    return _unpack(spec, factory())
            except Exception as error:
                why = brief(error)
        _check_weights(spec, factory)
        torch.manual_seed(seed)
        built = _unpack(spec, _call(spec, factory))
        if why:
            # Said now: a factory that fails with weights, too, is one line.
            log.warning("factory %s fails without weights (%s): real ones were built", spec, why)
        return built


@contextmanager
def _without_weights() -> Iterator[None]:
    """With every parameter that a module is given replaced by one on the meta device; the same one each time,
    so that tied weights stay tied."""
    import torch

    register = torch.nn.Module.register_parameter
    twins: dict[int, torch.nn.Parameter] = {}

    def registered(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if type(parameter) is torch.nn.Parameter and not parameter.is_meta:
            if id(parameter) not in twins:
                empty = torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
                # By id as long as the object is there, which need not be long.
                weakref.finalize(parameter, twins.pop, id(parameter))
                twins[id(parameter)] = empty
            parameter = twins[id(parameter)]
        register(module, name, parameter)

    with patched((torch.nn.Module, "register_parameter", registered)):
        yield


def _check_weights(spec: str, factory: Callable[[], Any]) -> None:
    """Warn of weights that are large; raise InputError for those that the machine cannot hold."""
    import torch
    from torch.nn.parameter import is_lazy

    try:
        with torch.device("meta"):
            model = _unpack(spec, factory()).model
    except Exception as error:
        log.info("factory %s fails on the meta device (%s): its size is not known", spec, brief(error))
        return
    tensors = {
        id(tensor): tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor)
    }
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    memory = memory_bytes()
    if memory is not None and nbytes > memory:
        found = f"weights of {format_bytes(nbytes)}"
        raise InputError(f"factory {spec}", "", found, f"at most {format_bytes(memory)}, as this machine has")
    if nbytes >= LARGE_BYTES:
        log.warning("factory %s: making %s of weights", spec, format_bytes(nbytes))


@contextmanager
def _building(spec: str, tell: Tell) -> Iterator[Built]:
    """What the factory builds; errors of its inputs meanwhile say that it is the factory's."""
    tell("loading torch")
    require_torch("capturing a model")
    tell("building the model")
    with _current_folder_on_path():
        built = _unpack(spec, _build(spec, _find(spec)))
        try:
            yield built
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
    module_name, colon, path = spec.rpartition(":")
    is_file = module_name.endswith(".py")
    if not (module_name and colon and path) or (module_name.startswith(".") and not is_file):
        raise InputError(
            source,
            "",
            repr(spec),
            "package.module:function or file.py:function (a whole script: memplan observe --fake)",
        )
    with as_input_error(source, f"module {module_name}", "a module that can be imported"):
        target: Any = _import_file(module_name) if is_file else importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(target, part):
            raise InputError(source, f"module {module_name}", f"no {path!r} in it", "a function of that name")
        target = getattr(target, part)
    if not callable(target):
        raise InputError(source, "", f"a {type(target).__name__}", "a function without arguments")
    return target  # type: ignore[no-any-return]


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


def _build(spec: str, factory: Callable[[], Any]) -> Any:
    import torch

    try:
        with torch.device("meta"):
            return factory()
    except Exception as error:
        log.warning("factory %s fails on the meta device (%s): building real weights", spec, brief(error))
    return _call(spec, factory)


def _call(spec: str, factory: Callable[[], Any]) -> Any:
    with as_input_error(f"factory {spec}", "", "a factory that runs"):
        return factory()


def _unpack(spec: str, built: Any) -> Built:
    import torch

    trained: dict[str, Any] = {}
    if isinstance(built, Mapping) and "model" in built and set(built) <= set(KEYS):
        defaults: tuple[Any, ...] = (None, (), {}, None)
        parts = [built.get(key, default) for key, default in zip(KEYS, defaults, strict=False)]
        trained = {key: built[key] for key in TRAINED if built.get(key) is not None}
    else:
        parts = list(built) if isinstance(built, (tuple, list)) else [built]
    args: Any = ()
    kwargs: Any = {}
    if len(parts) == 2 and isinstance(parts[1], Mapping):
        kwargs = parts[1]
    elif len(parts) in (2, 3, 4):
        args, kwargs = parts[1], parts[2] if len(parts) > 2 else {}
    if (
        len(parts) not in (2, 3, 4)
        or not isinstance(parts[0], torch.nn.Module)
        or not isinstance(args, (tuple, list))
        or not isinstance(kwargs, Mapping)
    ):
        kinds = ", ".join(type(part).__name__ for part in parts)
        found = f"({kinds})" if isinstance(built, (tuple, list)) else kinds
        raise InputError(f"factory {spec}", "return value", found, RETURNS)
    name, shapes = spec.rpartition(":")[2], parts[3] if len(parts) == 4 else None
    return Built(name, parts[0], tuple(args), dict(kwargs), shapes, trained)
