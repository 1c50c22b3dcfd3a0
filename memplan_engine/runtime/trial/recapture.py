"""A factory's file before and after an edit: both run and captured again, in a process of their own."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.advice.source_patch import Recaptured
from memplan_engine.errors import MemplanError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.profile import load_of
from memplan_engine.runtime.eager_step import named_step, take_eager_step
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.runtime.trial.equality import compare_named
from memplan_engine.system import end_with_parent
from memplan_engine.torch_capture.torch_factory import (
    Built,
    build_factory,
    capture_factory,
    capture_training_factory,
)
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.training.torch_recipe import make_optimizer

MOST_SECONDS = 600.0
"""Of both runs and captures together; a factory that takes longer is not waited for."""


def recapture(
    factory: str,
    text: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    frees_gradients: bool = False,
) -> Recaptured:
    """What becomes of `factory`, "file.py:function", with `text` in the place of its file. `options` are
    those of a training step, by the names of `Recipe` in plain values; None for inference. Where the edit
    `frees_gradients`, those that are there after the step are not compared.

    The file itself stays as it is: the edited one lies in a folder of its own, and finds the modules beside
    the first. Both run in another process, with the same weights, inputs and random numbers.
    """
    file, _, function = factory.rpartition(":")
    with scratch_folder() as folder:
        edited = folder / Path(file).name
        edited.write_text(text, encoding="utf-8")
        request = {
            "before": factory,
            "after": f"{edited}:{function}",
            "options": None if options is None else dict(options),
            "seed": seed,
            "frees_gradients": frees_gradients,
        }
        (folder / "request.json").write_text(json.dumps(request))
        beside = os.pathsep.join(
            filter(None, [str(Path(file).resolve().parent), os.environ.get("PYTHONPATH")])
        )
        command = [sys.executable, "-m", __name__, str(folder)]
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=MOST_SECONDS,
                env={**os.environ, "PYTHONPATH": beside},
            )
        except subprocess.TimeoutExpired:
            return Recaptured(False, f"not done within {MOST_SECONDS:g} s")
        if not (folder / "answer.json").exists():
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            return Recaptured(False, last)
        return Recaptured(**json.loads((folder / "answer.json").read_text()))


def main(folder: Path) -> None:
    """Run and capture what `folder` asks for, and leave there what became of it."""
    end_with_parent()
    answer = compare_captures(**json.loads((folder / "request.json").read_text()))
    (folder / "half.json").write_text(json.dumps(asdict(answer)))
    (folder / "half.json").rename(folder / "answer.json")


def compare_captures(
    before: str,
    after: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    frees_gradients: bool = False,
) -> Recaptured:
    """Run and capture the factories `before` and `after` in this process, and compare what they give.

    The arguments are those of `recapture`. What a factory raises beyond RuntimeError and MemplanError is
    raised.
    """
    try:
        return _compared(before, after, options, seed, frees_gradients)
    except MemplanError as error:
        return Recaptured(False, str(error))


def _compared(
    before: str, after: str, options: Mapping[str, Any] | None, seed: int, frees_gradients: bool
) -> Recaptured:
    take: Callable[[Built, str], dict[str, Any]]
    if options is None:
        take = lambda built, spec: _called(built, seed)  # noqa: E731
    else:
        take = lambda built, spec: _stepped(built, spec, options, seed, frees_gradients)  # noqa: E731
    built = build_factory(before, seed=seed)
    state = copy.deepcopy(built.model.state_dict())
    expected = take(built, before)
    other = build_factory(after, seed=seed)
    try:
        other.model.load_state_dict(state)
        actual = take(other, after)
    except RuntimeError as error:
        return Recaptured(False, brief(error))
    equality = compare_named(expected, actual)
    if not equality.exact:
        return Recaptured(False, f"{equality.output} is not the same")
    loads = [load_of(to_problem(_graph(spec, options))).peak for spec in (before, after)]
    return Recaptured(True, "", *loads)


def _called(built: Built, seed: int) -> dict[str, Any]:
    """What the model gives, and leaves in its buffers and inputs, by name."""
    args, kwargs = copy.deepcopy((built.args, built.kwargs))
    torch.manual_seed(seed)
    with torch.no_grad():
        result = built.model(*args, **kwargs)
    given = {f"output{pytree.keystr(p)}": leaf for p, leaf in pytree.tree_flatten_with_path(result)[0]}
    inputs = {
        f"input{pytree.keystr(p)}": leaf for p, leaf in pytree.tree_flatten_with_path((args, kwargs))[0]
    }
    return {**given, **inputs, **{f"buffer {name}": value for name, value in built.model.named_buffers()}}


def _stepped(
    built: Built, spec: str, options: Mapping[str, Any], seed: int, frees_gradients: bool
) -> dict[str, Any]:
    recipe = built.recipe(options)
    optimizer = make_optimizer(recipe, built.model, spec)
    step = take_eager_step(built.model, built.args, built.kwargs, recipe, spec, optimizer, seed=seed)
    return named_step(replace(step, gradients={}) if frees_gradients else step)


def _graph(spec: str, options: Mapping[str, Any] | None) -> Graph:
    if options is None:
        return capture_factory(spec)
    return capture_training_factory(spec, gradients="held", **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
