"""One test with the marker or the fixture: what it may need, what it handed over, what is said of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from memplan_engine.analysis.plan_figures import PlanFigures
from memplan_engine.checks.baselines import Baseline, baseline_of, baseline_path, load_baselines
from memplan_engine.checks.ceilings import CEILINGS, Ceilings, parse_ceiling
from memplan_engine.checks.checked_graphs import load_graph
from memplan_engine.checks.eager_reserved import eager_reserved
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.history.measuring import reproducible_plan
from memplan_engine.plan import Plan
from memplan_engine.preparation import Preparation, arguments_of
from memplan_engine.pytest_plugin.failure_lines import failure_lines
from memplan_engine.pytest_plugin.kept_graphs import KeptGraphs
from memplan_engine.torch_capture.given_model import GivenModel

KNOWN = (*(f"max_{what}" for what in CEILINGS), "no_growth")
FOLDER = ".memplan"
"""In pytest's rootdir: graphs of tests, which git is told to leave alone."""


class MarkedTest:
    """What the fixture `memplan` gives to a test.

    `found` is what its checks have found, in plain values: the path of the baselines and the test's key
    there, the baseline to be written (None where nothing is), and whether less is needed than it says.
    """

    def __init__(self, item: pytest.Item, marks: Sequence[pytest.Mark]) -> None:
        self.found: list[dict[str, Any]] = []
        self._item, self._is_marked = item, bool(marks)
        self._checks = 0
        try:
            self._ceilings, self._no_growth = _rules(marks)
        except InputError as error:
            _fail(str(error))
        if marks and "memplan" not in getattr(item, "fixturenames", ()):
            _fail("a test with the marker memplan takes the fixture: def test_it(memplan): memplan.check(…)")

    def check(
        self,
        model: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        training: bool = False,
        strategy: str = "auto",
        how: Preparation | None = None,
        **options: Any,
    ) -> PlanFigures:
        """Plan `model` and hold its figures against the test's marker; they are given back, bytes.

        Parameters
        ----------
        model: a torch.nn.Module with its example inputs `args` and `kwargs`; a factory, a function or
            "package.module:function", that returns both; an ExportedProgram; a Graph; a Path of a file with
            a graph. name: tells several checks of one test apart.
        training: a whole training step. options: those of the function that captures it, such as
            dynamic_shapes, or optimizer and loss of a step.
        strategy, how: who plans, and how the graph becomes a problem. Plans are made with one thread, a seed
            and a limit in nodes: the same on each machine.
        """
        self._checks += 1
        self._plan_of = partial(reproducible_plan, strategy=strategy, how=how)
        try:
            loaded = load_graph(model) if isinstance(model, Path) else model
            given = GivenModel(loaded, args, kwargs or {}, training, options)
            plan = self._plan_of(given.graph())
            reserved = None if self._ceilings.reserved is None else eager_reserved(given)
            checked = ModelCheck(plan.problem.name, plan, self._ceilings, reserved)
            told = self._judged(checked, self._key(name), how or Preparation())
        except MemplanError as error:
            _fail(str(error))
        if told:
            _fail("\n".join(told))
        return checked.figures

    def refuse_unchecked(self) -> None:
        """Fail a marked test that has checked nothing."""
        if self._is_marked and not self._checks:
            _fail("the test is marked memplan and never calls memplan.check(model, args)")

    def _judged(self, checked: ModelCheck, key: str, how: Preparation) -> list[str]:
        """What is to be said against `checked`, in lines; none where it is fine."""
        path, baseline = baseline_path(self._item.path), None
        if self._no_growth:
            now, baseline = baseline_of(checked), load_baselines(path).get(key)
            update = self._item.config.getoption("memplan_update")
            entry = {"path": str(path), "key": key, "baseline": now.model_dump() if update else None}
            self.found.append({**entry, "smaller": baseline is not None and now.is_below(baseline)})
            if update:
                baseline = now
            elif baseline is None and not checked.exceeded:
                return [f"{checked.name}: no baseline in {path.name} yet, write it: {self._update}"]
        graphs = KeptGraphs(self._item.config.rootpath / FOLDER, f"{self._item.nodeid}\n{key}", key)
        if checked.exceeded or (baseline and now.is_above(baseline)):
            checked = replace(checked, base=self._last_passed(graphs, baseline))
            passed = graphs.path("passed") if checked.base else None
            more = self._more(graphs.keep("failed", checked), passed, how)
            return failure_lines(checked, baseline, path.name, self._update, more)
        if baseline:
            graphs.keep("passed", checked)
        return []

    def _last_passed(self, graphs: KeptGraphs, baseline: Baseline | None) -> Plan | None:
        """The plan of the graph that passed last, where it is the one of the baseline."""
        if baseline is None or not graphs.path("passed").exists():
            return None
        plan = self._plan_of(load_graph(graphs.path("passed")))
        was = baseline_of(ModelCheck(plan.problem.name, plan))
        return plan if was.nbytes == baseline.nbytes else None

    def _more(self, failed: Path | None, passed: Path | None, how: Preparation) -> str:
        """The command that shows more of what failed; "" where it could not be written."""
        files = [self._relative(path) for path in (passed, failed) if path]
        verb = "diff" if passed else "peak"
        return shlex.join(["memplan", verb, *files, *arguments_of(how)]) if failed else ""

    def _key(self, name: str) -> str:
        """The test's name within its file, with the name of the check or, from the second on, its number."""
        test = self._item.nodeid.partition("::")[2] or self._item.name
        part = name or (str(self._checks) if self._checks > 1 else "")
        return f"{test} {part}" if part else test

    @property
    def _update(self) -> str:
        """The command that writes the baseline."""
        test = f"{self._relative(self._item.path)}::{self._item.nodeid.partition('::')[2]}"
        return f"pytest --memplan-update {shlex.quote(test)}"

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self._item.config.invocation_params.dir)


def _rules(marks: Sequence[pytest.Mark]) -> tuple[Ceilings, bool]:
    """What the markers ask for, those of the test before those of its class and file."""
    asked: dict[str, Any] = {}
    for mark in reversed(marks):
        if mark.args:
            expected = f"arguments by name: {', '.join(KNOWN)}"
            raise InputError("marker memplan", "", repr(mark.args[0]), expected)
        if unknown := [each for each in mark.kwargs if each not in KNOWN]:
            raise InputError("marker memplan", "", unknown[0], f"one of {', '.join(KNOWN)}")
        asked |= mark.kwargs
    no_growth = asked.get("no_growth", False)
    if not isinstance(no_growth, bool):
        raise InputError("marker memplan", "no_growth", repr(no_growth), "True or False")
    limits = (parse_ceiling(asked.get(f"max_{what}"), f"marker memplan: max_{what}") for what in CEILINGS)
    return Ceilings(*limits), no_growth


def _fail(text: str) -> NoReturn:
    raise pytest.fail.Exception(f"memplan: {text}", pytrace=False) from None
