"""Programs with real weights, made ready to run: a whole training step (forward, backward, optimizer), and a
saved exported program (`.pt2`), of which nothing is unpickled; with what each is called with, and held
against, in a plan.

`torch.export.load` unpickles weights, constants and example inputs, which can run code. Here the graph goes
through the same vetted reader as for planning, weights are taken as the raw bytes that they are, and example
inputs are not read: they are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.runtime.eager_step import TakeEagerStep, take_on_copy
from memplan_engine.runtime.program import Program, load_program, program_from_exported, program_from_module
from memplan_engine.runtime.signature import Expected
from memplan_engine.torch_capture.pt2_reader import read_weights
from memplan_engine.torch_capture.torch_fake import tensors_of
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.torch_serde import read_program, stored_tensors
from memplan_engine.torch_capture.training.torch_recipe import Loss, Recipe, Step
from memplan_engine.torch_capture.training.torch_step import (
    SEED,
    Argument,
    Gradients,
    StepModule,
    step_graph,
    trace_step,
)
from memplan_engine.torch_capture.training.torch_trainer import Returned, attribute_at


def load_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: Any = "sgd",
    gradients: str = Gradients.HELD,
    loss: Loss | None = None,
    accumulate: int = 1,
    clip_grad_norm: float | None = None,
    foreach: bool | None = None,
    step: Step | None = None,
    functional: bool = False,
    name: str | None = None,
) -> Program:
    """One training step of `model` as a Program; its graph is the one that `capture_step` gives.

    A run takes the tensors among the leaves of `args` and `kwargs`, in order, as flat positional arguments,
    updates the model's own parameters and buffers, and returns the flat list of the loss (of what a step of
    your own returns) and, with `gradients` "held", the gradients. The step is the second one; the optimizer's
    state, which the first one makes, is zero unless it is copied in, and is kept in `Program.state`.

    Raises
    ------
    InputError: as `capture_step` does; weights that are not real.
    """
    recipe = Recipe(optimizer, loss, accumulate, clip_grad_norm, foreach, step)
    traced = trace_step(model, args, kwargs, recipe, gradients=gradients, functional=functional, name=name)
    return program_of_step(traced, model, args, kwargs)


def program_of_step(
    step: StepModule, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Program:
    """The Program of a traced step of `model`. Raises InputError for weights that are not real."""
    tensors = tensors_of((tuple(args), dict(kwargs or {})))
    kept = [argument for argument in step.arguments if argument.kept]
    state = [_content(model, argument, step.source) for argument in kept]
    return program_from_module(
        step.module,
        [*state, *tensors],
        state=len(state),
        name=step.source,
        graph=step_graph(step),
        state_names=tuple(argument.path for argument in kept),
    )


def _content(model: torch.nn.Module, argument: Argument, source: str) -> torch.Tensor:
    """The real tensor for an argument that is kept between steps."""
    if argument.constant is not None:
        return argument.constant.detach().clone()
    if argument.state is not None:
        value = argument.value
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).zero_()
    tensor = attribute_at(model, argument.paths[0])
    if tensor is None:
        found = "one that the first step makes"
        raise InputError(source, f"weight {argument.paths[0]!r}", found, "one that the model has before it")
    if tensor.is_meta or hasattr(tensor, "fake_mode"):
        raise InputError(source, f"weight {argument.name!r}", "a tensor without values", "a real tensor")
    return tensor.detach()  # type: ignore[no-any-return]


def load_pt2(path: Path | str) -> Program:
    """The Program in a file of `torch.export.save`, with its weights. It takes the flat inputs by place and
    returns the flat list of outputs: their nested forms name classes to import, and are left out.

    Raises
    ------
    InputError: as the importer of .pt2 files does; weights that are pickled or missing, dynamic shapes,
        constants that are no tensors.
    """
    path = Path(path)
    model, payloads = read_weights(path)
    sizes = {
        kind: (config, {name: len(data) for name, data in records.items()})
        for kind, (config, records) in payloads.items()
    }
    read = read_program(model, sizes, path.name)
    with as_input_error(path.name, "weights", "tensors that lie within their bytes"):
        state: dict[str, Any] = {}
        for config, records in payloads.values():
            state |= _tensors(config, records)
    names = [spec for spec in read.signature.input_specs if spec.kind.name == "USER_INPUT"]
    returned = [spec for spec in read.signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    call = SimpleNamespace(
        in_spec=pytree.tree_flatten(((0,) * len(names), {}))[1],
        out_spec=pytree.tree_flatten([0] * len(returned))[1],
    )
    parts: Any = SimpleNamespace(
        graph=read.module.graph,
        graph_module=read.module,
        graph_signature=read.signature,
        state_dict=state,
        constants={},
        range_constraints=read.ranges,
        call_spec=call,
    )
    return program_from_exported(parts, name=path.stem)


def example_inputs(program: Program, seed: int = 0) -> tuple[Any, ...]:
    """Values for the inputs of `program`: plain values as captured, floating-point tensors from `seed`
    (normally distributed), all others zero, which is a place in every table."""
    random = torch.Generator().manual_seed(seed)
    return tuple(_example(expected, random) for expected in program.expected)


def _example(expected: Expected, random: torch.Generator) -> Any:
    if expected.dtype is None:
        return expected.value
    tensor = torch.empty_strided(
        expected.shape, expected.strides, dtype=expected.dtype, device=expected.device
    ).zero_()
    if expected.dtype.is_floating_point:
        tensor.copy_(torch.randn(expected.shape, generator=random))
    return tensor


def _tensors(config: Mapping[str, Any], records: Mapping[str, bytes]) -> dict[str, torch.Tensor]:
    """The tensors of a payload by name; those of one record share it."""
    storages = {name: _storage(data) for name, data in records.items()}
    tensors = {}
    for name, one in stored_tensors(config).items():
        if one.nbytes > storages[one.record].nbytes():
            raise ValueError(f"{name} needs more bytes than its record has")
        if min(*one.shape, *one.stride, one.offset, 0) < 0:
            raise ValueError(f"{name} has a size or stride below 0")
        typed = torch.empty(0, dtype=one.dtype)
        tensors[name] = typed.set_(storages[one.record], one.offset, one.shape, one.stride)
    return tensors


def _storage(data: bytes) -> torch.UntypedStorage:
    if not data:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage()


@dataclass(frozen=True, slots=True, eq=False)
class RunTarget:
    """What is run: `program(*args, **kwargs)`. `eager` is the model itself, None where there is only the
    graph; `training` says that it is in training mode, `functional` that the graph has no in-place ops.
    `seconds` is what exporting took. `step` is there for a whole training step: what it is held against.
    `written` is the program whose ops write over inputs, where some shall: it is the one that is observed,
    and `program` the one that a slab takes. `in_pieces` says that ops run in pieces, with other last digits
    than those of the model."""

    program: Program
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eager: Callable[..., Any] | None
    training: bool = False
    functional: bool = False
    seconds: float = 0.0
    step: SteppedEagerly | None = None
    written: Program | None = None
    in_pieces: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SteppedEagerly:
    """How an eager step is taken to compare with. The program returns what the step does, by the names
    `results`, and the gradients of the parameters `held`; `outputs` are what the model returns inside."""

    take: TakeEagerStep
    results: tuple[str, ...]
    held: tuple[str, ...]
    outputs: tuple[Returned, ...]


def run_target(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    functional: bool = False,
    name: str | None = None,
) -> RunTarget:
    """`model`, exported as `load_program` does it. Raises InputError as that does."""
    begun = time.perf_counter()
    program = load_program(model, args, kwargs, functional=functional, name=name)
    seconds = time.perf_counter() - begun
    return RunTarget(program, tuple(args), dict(kwargs or {}), model, model.training, functional, seconds)


def run_target_of_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    recipe: Recipe | None = None,
    *,
    functional: bool = False,
    name: str | None = None,
    take: TakeEagerStep | None = None,
) -> RunTarget:
    """A whole training step of `model`, which is held against an eager step: `take` takes it; without, a copy
    of the model does. Raises InputError as `load_step` does."""
    recipe = recipe or Recipe()
    begun = time.perf_counter()
    traced = trace_step(model, args, kwargs, recipe, functional=functional, name=name)
    program = program_of_step(traced, model, args, kwargs)
    seconds = time.perf_counter() - begun
    tensors = tuple(tensors_of((tuple(args), dict(kwargs or {}))))
    if take is None:
        take = partial(take_on_copy, model, args, kwargs or {}, recipe, program.name, seed=SEED)
    step = SteppedEagerly(take, traced.results, traced.held, traced.outputs)
    return RunTarget(program, tensors, {}, None, True, functional, seconds, step)


def run_target_of_file(path: Path | str) -> RunTarget:
    """The program in a .pt2 file, on inputs that are made (`example_inputs`); there is no model beside it.
    Raises InputError as `load_pt2` does."""
    begun = time.perf_counter()
    program = load_pt2(path)
    inputs = example_inputs(program, SEED)
    return RunTarget(program, inputs, {}, None, seconds=time.perf_counter() - begun)
