"""A factory's file before and after an edit: both run and captured again, in a process of their own."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.advice.source_patch import Recaptured
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.profile import load_of
from memplan_engine.recordings.observation import observed_peak
from memplan_engine.runtime.eager_step import named_step, take_eager_step
from memplan_engine.runtime.recorder.fake_run import observe_fake
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.runtime.trial.equality import compare_named
from memplan_engine.runtime.trial.kept_values import LeftBehind, kept_values
from memplan_engine.system import end_with_parent
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.torch_factory import (
    Built,
    build_factory,
    capture_factory,
    capture_training_factory,
)
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.training.torch_recipe import make_optimizer

MOST_SECONDS = 600.0
"""Of all runs and captures together; a factory that takes longer is not waited for."""
TOO_LONG = f"not done within {MOST_SECONDS:g} s"


def recapture(
    factory: str,
    texts: Sequence[str],
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    frees_gradients: bool = False,
) -> list[Recaptured]:
    """What becomes of `factory`, "file.py:function", with each of `texts` in the place of its file. `options`
    are those of a training step, by the names of `Recipe` in plain values; None for inference. Where the
    edits `frees_gradients`, those that are there after the step are not compared.

    The file itself stays as it is: the edited ones lie in folders of their own, and find the modules beside
    the first. They run in another process, with the same weights, inputs and random numbers; where one of
    them leaves something that others would meet, those have a process of their own.
    """
    found: list[Recaptured] = []
    while len(found) < len(texts):
        rest = texts[len(found) :]
        answers, otherwise = _in_process(factory, rest, options, seed, frees_gradients)
        # A process that ends without a word has died of the first that has no answer; no other is waited for
        # as long again.
        missing = len(rest) if otherwise == TOO_LONG else 1
        found += answers or [Recaptured(False, otherwise)] * missing
    return found


def _in_process(
    factory: str,
    texts: Sequence[str],
    options: Mapping[str, Any] | None,
    seed: int,
    frees_gradients: bool,
) -> tuple[list[Recaptured], str]:
    """What becomes of the first of `texts`, or of all, and what the process has said in the end."""
    spec = parse_factory(factory)
    file = spec.module
    with scratch_folder() as folder:
        edits = []
        for number, text in enumerate(texts):
            edited = folder / str(number) / Path(file).name
            edited.parent.mkdir()
            edited.write_text(text, encoding="utf-8")
            edits.append(str(spec._replace(module=str(edited))))
        request = {
            "before": factory,
            "edits": edits,
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
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        except subprocess.TimeoutExpired:
            last = TOO_LONG
        answers = [folder / f"answer-{number}.json" for number in range(len(texts))]
        return [Recaptured(**json.loads(each.read_text())) for each in answers if each.exists()], last


def main(folder: Path) -> None:
    """Run and capture what `folder` asks for, and leave there what became of each edit, up to the first that
    leaves something behind."""
    end_with_parent()
    request = json.loads((folder / "request.json").read_text())
    edits = request.pop("edits")
    try:
        trial: _Trial | str = _Trial(**request)
    except MemplanError as error:
        trial = str(error)
    except Exception as error:
        trial = brief(error)
    for number, edit in enumerate(edits):
        answer = Recaptured(False, trial) if isinstance(trial, str) else trial.of(edit)
        (folder / "half.json").write_text(json.dumps(asdict(answer)))
        (folder / "half.json").rename(folder / f"answer-{number}.json")
        if isinstance(trial, _Trial) and not answer.same and not trial.holds():
            break


class _Trial:
    """What the factory `before` gives and leaves, to hold edits against."""

    def __init__(self, before: str, options: dict[str, Any] | None, seed: int, frees_gradients: bool) -> None:
        self.before, self.options, self.seed = before, options, seed
        self.frees_gradients = frees_gradients
        # What packages make once and keep, they make here: no run after this one does.
        self._left_by(build_factory(before, seed=seed), before)
        built = build_factory(before, seed=seed)
        self.state = copy.deepcopy(built.model.state_dict())
        self.left = self._left_by(built, before)
        self.gradients = self._gradients_of(built)
        self.load = load_of(to_problem(_graph(before, options))).peak
        self.eager = _eager_peak(built, options)

    def of(self, edit: str) -> Recaptured:
        """Each claim of `Recaptured` for the factory `edit`; the first that fails ends it."""
        try:
            built = build_factory(edit, seed=self.seed)
            built.model.load_state_dict(self.state)
            equality = compare_named(self.left, self._left_by(built, edit))
            if not equality.exact:
                return Recaptured(False, f"{equality.output} is not the same")
            untrainable = self._untrainable(built)
            if untrainable and built.model.training:
                return Recaptured(False, f"the model is in train mode, and {untrainable}")
            load = load_of(to_problem(_graph(edit, self.options))).peak
        except MemplanError as error:
            return Recaptured(False, str(error))
        except Exception as error:
            # It is the user's code, changed: whatever it raises, the next edit has its turn.
            return Recaptured(False, brief(error))
        eager = _eager_peak(built, self.options)
        return Recaptured(True, "", self.load, load, self.eager, eager, untrainable)

    def holds(self) -> bool:
        """Whether the factory still gives and leaves what it did: an edit may have changed what a module
        beside it keeps."""
        built = build_factory(self.before, seed=self.seed)
        built.model.load_state_dict(self.state)
        return compare_named(self.left, self._left_by(built, self.before)).exact

    def _left_by(self, built: Built, spec: str) -> dict[str, Any]:
        """All that a run gives, prints and leaves, by names for people."""
        before, behind = kept_values(built.model), LeftBehind()
        with redirect_stdout(io.StringIO()) as printed:
            if self.options is None:
                left = _called(built, self.seed)
            else:
                left = _stepped(built, spec, self.options, self.seed, self.frees_gradients)
        kept = {
            path: value
            for path, value in kept_values(built.model).items()
            if path not in before or before[path] != value
        }
        others = {} if self.frees_gradients else {"what is kept somewhere": behind.seen(left.values())}
        return {**left, **kept, "what is printed": printed.getvalue(), **others}

    def _gradients_of(self, built: Built) -> dict[str, Any] | None:
        """Those of all that the model gives, summed up, by the paths of its parameters; None where no
        backward pass goes through it, and for a training step, which has its own."""
        if self.options is not None:
            return None
        built.model.load_state_dict(self.state)
        try:
            return _gradients(built, self.seed)
        except RuntimeError:
            return None

    def _untrainable(self, built: Built) -> str:
        """Why no backward pass goes through the edited model as it went through the model. Raises
        MemplanError where it gives other gradients: then something else is wrong as well."""
        if self.gradients is None:
            return ""
        built.model.load_state_dict(self.state)
        try:
            actual = _gradients(built, self.seed)
        except RuntimeError as error:
            return f"no backward pass goes through it: {brief(error)}"
        equality = compare_named(self.gradients, actual)
        if not equality.exact:
            raise MemplanError(f"{equality.output} is not the same")
        return ""


def _called(built: Built, seed: int) -> dict[str, Any]:
    """What the model gives, and leaves in its inputs, by name, when it is called, and when it is called once
    more: what one call keeps another may use."""
    torch.manual_seed(seed)
    left: dict[str, Any] = {}
    for call in ("", "the second call's "):
        args, kwargs = copy.deepcopy((built.args, built.kwargs))
        with torch.no_grad():
            result = built.model(*args, **kwargs)
        left |= {f"{call}output{pytree.keystr(p)}": v for p, v in pytree.tree_flatten_with_path(result)[0]}
        given = pytree.tree_flatten_with_path((args, kwargs))[0]
        left |= {f"{call}input{pytree.keystr(p)}": value for p, value in given}
    return left


def _stepped(
    built: Built, spec: str, options: dict[str, Any], seed: int, frees_gradients: bool
) -> dict[str, Any]:
    recipe = built.recipe(options)
    optimizer = make_optimizer(recipe, built.model, spec)
    step = take_eager_step(built.model, built.args, built.kwargs, recipe, spec, optimizer, seed=seed)
    return named_step(replace(step, gradients={}) if frees_gradients else step)


def _gradients(built: Built, seed: int) -> dict[str, Any]:
    args, kwargs = copy.deepcopy((built.args, built.kwargs))
    torch.manual_seed(seed)
    with redirect_stdout(io.StringIO()):
        result = built.model(*args, **kwargs)
    leaves = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
    sums = [each.sum() for each in leaves if each.requires_grad]
    if not sums:
        return {}
    torch.autograd.backward(sums)
    found = {f"the gradient of {path}": each.grad for path, each in built.model.named_parameters()}
    built.model.zero_grad()
    return found


def _eager_peak(built: Built, options: dict[str, Any] | None) -> int | None:
    """The peak of the eager run as `observe_fake` predicts it, in bytes; None for what it cannot run."""
    recipe = None if options is None else built.recipe(options)
    try:
        seen = observe_fake(built.model, built.args, built.kwargs, recipe=recipe, name=built.name)
    except InputError:
        return None
    return observed_peak(seen)[0]


def _graph(spec: str, options: dict[str, Any] | None) -> Graph:
    if options is None:
        return capture_factory(spec)
    return capture_training_factory(spec, gradients="held", **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
