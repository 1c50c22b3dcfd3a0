"""A training step as eager PyTorch takes it, with nobody looking on, to hold a captured step against.

`python -m memplan_engine.runtime.eager_step FILE` takes it in a process of its own: the file says which
factory, and gets what the step left. Nothing of the captured graph is known there.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.runtime.trial.equality import OperatorDigests
from memplan_engine.system import end_with_parent, ended_words
from memplan_engine.torch_capture.capture_module import register_caches
from memplan_engine.torch_capture.torch_factory import build_factory
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    carry_hooks,
    drop_gradients,
    fresh_inputs,
    kept_by_optimizers,
    make_optimizer,
    named_outputs,
    random_state,
    take_step,
)

Tensors = dict[str, torch.Tensor]
Row = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class EagerStep:
    """The second step of an eager run. `results` are what it returns, by names for people. `before` and
    `after` hold parameters, buffers and the optimizer's state, by the names of `state_tensors`; `gradients`
    go by the paths of their parameters, `outputs` by the names that a traced step has for them. `rows` are
    operators with digests of what they gave, for a step that was watched."""

    before: Tensors
    after: Tensors
    results: Tensors
    gradients: Tensors
    outputs: Tensors
    rows: list[Row] = field(default_factory=list)


TakeEagerStep = Callable[[bool], EagerStep]
"""Takes the step; given True, with every operator's result noted."""


def take_on_copy(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recipe: Recipe,
    source: str,
    watched: bool = False,
    *,
    seed: int = 0,
) -> EagerStep:
    """As `take_eager_step`, of a copy of `model`, its inputs and its optimizer."""
    memo: dict[int, Any] = {}
    twin = copy.deepcopy(model, memo)
    for parameter in model.parameters():
        carry_hooks(parameter, memo[id(parameter)])
    args, kwargs = copy.deepcopy((list(args), dict(kwargs)), memo)
    optimizer = make_optimizer(recipe, twin, source, memo)
    return take_eager_step(twin, args, kwargs, recipe, source, optimizer, seed=seed, watched=watched)


def take_eager_step(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recipe: Recipe,
    source: str,
    optimizer: Any,
    *,
    seed: int = 0,
    watched: bool = False,
) -> EagerStep:
    """Two steps of `model`, each with random generators at `seed`, and what is there before and after the
    second. Raises InputError for a step that fails."""
    register_caches()
    outputs: Tensors = {}
    digests = OperatorDigests()
    passes = 0

    def listen(output: Any) -> None:
        nonlocal passes
        passes += 1
        tensors = named_outputs(output, passes)
        outputs.update((name, tensor.detach().clone()) for name, tensor in tensors.items())

    with as_input_error(source, "eager step", "a step that runs"):
        with random_state(seed):
            take_step(recipe, model, optimizer, *fresh_inputs(args, kwargs), source)
        before = {name: tensor.clone() for name, tensor in state_tensors(model, optimizer).items()}
        drop_gradients(model)
        args, kwargs = fresh_inputs(args, kwargs)
        with random_state(seed):
            if watched:
                with digests:
                    results = take_step(recipe, model, optimizer, args, kwargs, source)
            else:
                results = take_step(recipe, model, optimizer, args, kwargs, source, listen)
    gradients = {
        path: parameter.grad for path, parameter in model.named_parameters() if parameter.grad is not None
    }
    after = state_tensors(model, optimizer)
    rows = [(kind, digest) for kind, digest, _ in digests.rows]
    results = {name: tensor.detach() for name, tensor in results.items()}
    return EagerStep(before, after, results, gradients, outputs, rows)


def state_tensors(model: torch.nn.Module, optimizer: Any) -> Tensors:
    """What lives on between steps: parameters and buffers by their paths, what optimizers keep by the path of
    the parameter and its key, `layer.weight.exp_avg`."""
    state = {path: tensor.detach() for path, tensor in (*model.named_parameters(), *model.named_buffers())}
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    own = {*paths, *map(id, model.buffers())}
    for owner, key, tensor in kept_by_optimizers(optimizer):
        if id(tensor) not in own:
            state[f"{paths[id(owner)]}.{key}" if id(owner) in paths else key] = tensor.detach()
    return state


def named_step(step: EagerStep) -> Tensors:
    """All that a step gives and leaves, by names for people."""
    gradients = {f"the gradient of {path}": gradient for path, gradient in step.gradients.items()}
    state = {f"{name} after the step": tensor for name, tensor in step.after.items()}
    return {**step.results, **step.outputs, **gradients, **state}


def take_in_process(
    factory: str, options: Mapping[str, Any], *, seed: int = 0, state: Tensors | None = None
) -> TakeEagerStep:
    """What takes the eager step of `factory` in a process of its own, from the same weights: `state`, by
    path, replaces those that the factory makes there. `options` are those of `Recipe`, in plain values.

    The function that is returned raises InputError for a step that fails, MemplanError for a process that
    ends without an answer.
    """

    def take(watched: bool) -> EagerStep:
        with scratch_folder() as folder:
            torch.save({name: value.detach() for name, value in (state or {}).items()}, folder / "state.pt")
            request = {
                "factory": factory,
                "options": dict(options),
                "seed": seed,
                "parent": os.getpid(),
                "watched": watched,
                "threads": torch.get_num_threads(),
            }
            (folder / "request.json").write_text(json.dumps(request))
            command = [sys.executable, "-m", __name__, str(folder)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            return _answer(folder, ended, factory)

    return take


def _answer(folder: Path, ended: subprocess.CompletedProcess[str], factory: str) -> EagerStep:
    wrong = folder / "error.json"
    if wrong.exists():
        raise InputError(**json.loads(wrong.read_text()))
    if not (folder / "step.pt").exists():
        words = ended_words(ended.returncode, ended.stderr)
        raise MemplanError(f"factory {factory}: eager step: {words}")
    return EagerStep(**torch.load(folder / "step.pt", weights_only=True))


def main(folder: Path) -> None:
    """Take the step that `folder` asks for, and leave there what became of it."""
    request = json.loads((folder / "request.json").read_text())
    end_with_parent()
    if os.getppid() != request["parent"]:
        # It was gone before this process could ask to end with it.
        return
    torch.set_num_threads(request["threads"])
    try:
        built = build_factory(request["factory"], seed=request["seed"])
        _take_over(built.model, torch.load(folder / "state.pt", weights_only=True))
        recipe, source = built.recipe(request["options"]), f"factory {request['factory']}"
        optimizer = make_optimizer(recipe, built.model, source)
        call = (built.model, built.args, built.kwargs, recipe, source, optimizer)
        step = take_eager_step(*call, watched=request["watched"])
        torch.save({name: getattr(step, name) for name in EagerStep.__slots__}, folder / "half.pt")
        (folder / "half.pt").rename(folder / "step.pt")
    except InputError as error:
        parts = {name: getattr(error, name) for name in ("source", "place", "found", "expected")}
        (folder / "error.json").write_text(json.dumps(parts))


def _take_over(model: torch.nn.Module, state: Tensors) -> None:
    with torch.no_grad():
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            if path in state:
                tensor.copy_(state[path])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
