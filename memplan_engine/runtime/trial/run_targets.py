"""What is run inside a plan: a model, a whole training step of one, or a program in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from memplan_engine.runtime.eager_step import TakeEagerStep, take_on_copy
from memplan_engine.runtime.loading import example_inputs, load_pt2, program_of_step
from memplan_engine.runtime.program import Program, load_program
from memplan_engine.torch_capture.torch_fake import tensors_of
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import SEED, trace_step
from memplan_engine.torch_capture.training.torch_trainer import Returned

__all__ = ["SEED", "RunTarget", "SteppedEagerly", "run_target", "run_target_of_file", "run_target_of_step"]


@dataclass(frozen=True, slots=True, eq=False)
class RunTarget:
    """What is run: `program(*args, **kwargs)`. `eager` is the model itself, None where there is only the
    graph; `training` says that it is in training mode, `functional` that the graph has no in-place ops.
    `seconds` is what exporting took. `step` is there for a whole training step: what it is held against."""

    program: Program
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eager: Callable[..., Any] | None
    training: bool = False
    functional: bool = False
    seconds: float = 0.0
    step: SteppedEagerly | None = None


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
    taken = time.perf_counter() - begun
    return RunTarget(program, tuple(args), dict(kwargs or {}), model, model.training, functional, taken)


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
