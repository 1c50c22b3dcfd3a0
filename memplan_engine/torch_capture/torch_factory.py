"""`package.module:factory` → Graph, for the command line: the user's own code builds model and inputs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan_engine.analysis.torch_budgets import TorchBudget
from memplan_engine.errors import InputError
from memplan_engine.system import memory_bytes
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.torch_fake import patched, require_torch
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import step_graph, trace_step
from memplan_engine.torch_capture.training.torch_training import (
    TrainingCapture,
    capture_budgets,
    capture_training,
)
from memplan_engine.torch_capture.user_factory import call_factory, current_folder_on_path, find_factory
from memplan_engine.units import format_bytes

if TYPE_CHECKING:
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


Factory = str | Callable[[], Any]
"""A spec as `parse_factory` reads it, or the function itself."""
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
    spec: Factory, *, functional: bool = False, dynamic: Sequence[str] = (), tell: Tell = _nobody
) -> Graph:
    """The graph of what the factory `spec` builds: "package.module:function", "folder/file.py:function", or
    the function itself.

    The module is imported with the current folder on the path; a file with its own. The factory takes the
    arguments that `spec` names behind it, "file.py:function(batch=8)", or none, and returns `(model, args)`,
    `(model, args, kwargs)` or `(model, kwargs)`. It is called under
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
    spec: Factory,
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
        raise InputError(
            f"factory {_spec_of(spec)}", "training", repr(training), f"one of {', '.join(TRAINING)}"
        )
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


def capture_pair_factory(
    spec: Factory, *, partition: str = "default", tell: Tell = _nobody
) -> TrainingCapture:
    """Forward and backward of what the factory `spec` builds, apart and joined; raises as
    `capture_training_factory` does."""
    with _building(spec, tell) as built:
        tell("tracing forward and backward")
        loss = built.trained.get("loss")
        return capture_training(
            built.model, built.args, built.kwargs, partition=partition, loss=loss, name=built.name
        )


def torch_budgets_factory(spec: str, *, tell: Tell = _nobody) -> tuple[TorchBudget, ...]:
    """What torch's own partitioner runs again of what the factory `spec` builds: `capture_budgets`."""
    with _building(spec, tell) as built:
        loss = built.trained.get("loss")
        return capture_budgets(built.model, built.args, built.kwargs, loss=loss, name=built.name, tell=tell)


def build_factory(spec: Factory, *, seed: int = 0, weights: bool = True) -> Built:
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

    with current_folder_on_path():
        spec, factory = _spec_of(spec), _find(spec)
        torch.manual_seed(seed)
        why = ""
        if not weights:
            try:
                with _without_weights():
                    return _unpack(spec, factory())
            except (Exception, SystemExit) as error:
                why = brief(error)
        _check_weights(spec, factory)
        torch.manual_seed(seed)
        built = _unpack(spec, call_factory(spec, factory))
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
    except (Exception, SystemExit) as error:
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
def _building(spec: Factory, tell: Tell) -> Iterator[Built]:
    """What the factory builds; errors of its inputs meanwhile say that it is the factory's."""
    tell("loading torch")
    require_torch("capturing a model")
    tell("building the model")
    with current_folder_on_path():
        spec, factory = _spec_of(spec), _find(spec)
        built = _unpack(spec, _build(spec, factory))
        try:
            yield built
        except InputError as error:
            raise InputError(f"factory {spec}", error.place, error.found, error.expected) from error


def _spec_of(factory: Factory) -> str:
    """What errors call it."""
    if isinstance(factory, str):
        return factory
    made: Any = factory
    while isinstance(made, partial):
        made = made.func
    # An object that is called has the name of its class.
    named = made if hasattr(made, "__name__") else type(made)
    return f"{named.__module__}:{named.__name__}"


def _find(spec: Factory) -> Callable[[], Any]:
    return find_factory(spec) if isinstance(spec, str) else spec


def _build(spec: str, factory: Callable[[], Any]) -> Any:
    import torch

    try:
        with torch.device("meta"):
            return factory()
    except (Exception, SystemExit) as error:
        log.warning("factory %s fails on the meta device (%s): building real weights", spec, brief(error))
    return call_factory(spec, factory)


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
    name, shapes = parse_factory(spec).function, parts[3] if len(parts) == 4 else None
    return Built(name, parts[0], tuple(args), dict(kwargs), shapes, trained)
