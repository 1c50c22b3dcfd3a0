"""Running a model inside its plan once, and all that is to be said of it: `memplan run` and the page Run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.run_format import (
    CheckEntry,
    EqualityEntry,
    KindEntry,
    PlanEntry,
    ProfileEntry,
    RunFile,
    SlabEntry,
    TakerEntry,
)
from memplan_engine.importers.torch_caches import as_given
from memplan_engine.importers.torch_run import brief
from memplan_engine.plan import Plan
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.comparison import EAGER, INTERPRETER, Measured, compare_run
from memplan_engine.runtime.equality import Equality, compare_results, digest
from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program, load_program
from memplan_engine.runtime.pt2_program import example_inputs, load_pt2
from memplan_engine.runtime.safety import run_safely
from memplan_engine.runtime.settling import settling
from memplan_engine.runtime.slab import insert_slab, slab_report
from memplan_engine.runtime.slab_report import IN_PLACE, SlabReport
from memplan_engine.runtime.step_program import load_step
from memplan_engine.runtime.storages import tensors_in
from memplan_engine.runtime.temporaries import rehearse
from memplan_engine.runtime.timing import time_by_turns, time_kinds

SEED = 0
Tell = Callable[[str], None]
"""Hears what begins now: "observing a run"."""


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What is run: `program(*args, **kwargs)`. `eager` is the model itself, None where there is only the
    graph; `training` says that it is in training mode, `functional` that the graph has no in-place ops.
    `seconds` is what exporting took."""

    program: Program
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eager: Callable[..., Any] | None
    training: bool = False
    functional: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """What came of it: the run as a file has it, and the observation that it rests on."""

    run: RunFile
    observation: Observation


def subject_of(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    functional: bool = False,
    name: str | None = None,
) -> Subject:
    """`model`, exported as `load_program` does it. Raises InputError as that does."""
    begun = time.perf_counter()
    program = load_program(model, args, kwargs, functional=functional, name=name)
    taken = time.perf_counter() - begun
    return Subject(program, tuple(args), dict(kwargs or {}), model, model.training, functional, taken)


def subject_of_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str = "sgd",
    functional: bool = False,
    name: str | None = None,
) -> Subject:
    """A whole training step of `model`; torch's interpreter is what it is held against. Raises InputError as
    `load_step` does."""
    begun = time.perf_counter()
    program = load_step(model, args, kwargs, optimizer=optimizer, functional=functional, name=name)
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    return Subject(program, tensors, {}, None, True, functional, time.perf_counter() - begun)


def subject_of_file(path: Path | str) -> Subject:
    """The program in a .pt2 file, on inputs that are made (`example_inputs`); there is no model beside it.
    Raises InputError as `load_pt2` does."""
    begun = time.perf_counter()
    program = load_pt2(path)
    inputs = example_inputs(program, SEED)
    return Subject(program, inputs, {}, None, seconds=time.perf_counter() - begun)


def try_plan(
    subject: Subject,
    plan: Plan,
    *,
    policy: str = "native",
    check: bool = False,
    profile: bool = False,
    force: bool = False,
    file: str = "",
    tell: Tell = lambda part: None,
) -> Trial:
    """Run `subject` by itself, under an observer, and in the slab of `plan`; lay the predicted bytes over the
    measured ones, and compare results.

    `policy` is that of `insert_slab`; `check` runs safety mode, too; `profile` times it; `force` takes a plan
    in spite of buffers that overlap, and implies `check`. `file` is where the plan came from. `tell` hears of
    each part as it begins. A difference of results, and what safety mode finds, are told in the run, not
    raised.

    Raises
    ------
    InputError: an unknown policy, a plan for another graph, one that breaks a rule of the validator (with
        `force` not overlaps), inputs other than those captured, a model that fails when it runs.
    """
    with _running(subject.program.name):
        return _try(subject, plan, policy, check, profile, force, file, tell)


@contextmanager
def _running(name: str) -> Iterator[None]:
    """What the model itself raises becomes an InputError."""
    try:
        yield
    except MemplanError:
        raise
    except Exception as error:
        raise InputError(name, "run", brief(error), "a model that runs on these inputs") from error


def _try(
    subject: Subject,
    plan: Plan,
    policy: str,
    check: bool,
    profile: bool,
    force: bool,
    file: str,
    tell: Tell,
) -> Trial:
    program = subject.program
    tell("inserting the slab")
    begun = time.perf_counter()
    module = insert_slab(program, plan, policy=policy, force=force)
    setup = subject.seconds + plan.seconds + time.perf_counter() - begun
    tell("observing a run")
    measured = compare_run(program, subject.args, subject.kwargs, eager=subject.eager, seed=SEED)
    bench = _Bench(subject, program.with_module(module))
    parts: dict[str, Any] = {}
    with settling(bench.written, SEED) as settle:
        tell("running in the slab")
        equality = bench.equality(settle, measured.equality)
        if check or force:
            tell("checking every op in safety mode")
            parts["check"], equality = bench.check(settle, plan, force, equality)
        if profile:
            tell("timing")
            parts["profile"] = bench.profile(settle, setup)
    parts["equality"] = _equality_entry(equality)
    parts["plan"] = PlanEntry(
        strategy=plan.strategy, arena_bytes=plan.arena_bytes, bound_bytes=plan.bound.nbytes, file=file
    )
    run = _run_file(subject, measured, slab_report(module))
    return Trial(run.model_copy(update=parts), measured.observation)


class _Bench:
    """Runs of one subject, plain and in the slab, that all begin with the same inputs."""

    def __init__(self, subject: Subject, in_slab: Program) -> None:
        self.subject, self.program, self.in_slab = subject, subject.program, in_slab
        self.inputs = self.program.inputs(subject.args, subject.kwargs)
        written = rehearse(self.program).written
        self.written = [
            value
            for value, touched in zip(self.inputs, written, strict=True)
            if touched and isinstance(value, torch.Tensor)
        ]

    def after(self) -> list[torch.Tensor]:
        """What is in the weights, buffers and inputs that a run writes: as much its result as what it
        returns."""
        return [value.detach().clone() for value in self.written]

    def reference(self) -> Any:
        """What the model itself gives, or the interpreter where there is no model."""
        if self.subject.eager is None:
            return self.program.interpret(self.subject.args, self.subject.kwargs)
        with torch.no_grad():
            args, kwargs = as_given((self.subject.args, dict(self.subject.kwargs)))
            return self.subject.eager(*args, **kwargs)

    def equality(self, settle: Callable[[], None], observed: Equality) -> Equality:
        """Whether the run in the slab gives what the reference gives; else where it first does not."""
        settle()
        expected, expected_after = self.reference(), self.after()
        settle()
        result = self.in_slab.run(self.subject.args, self.subject.kwargs)
        name = INTERPRETER if self.subject.eager is None else EAGER
        found = compare_results(expected, result, name)
        if found.exact:
            found = compare_results(expected_after, self.after(), name)
        if found.exact:
            return found
        return replace(found, op=self._first_differing(settle) or observed.op)

    def _first_differing(self, settle: Callable[[], None]) -> str | None:
        """The first op whose result in the slab is not the one outside of it."""
        plain, slab = (self._digests(each, settle) for each in (self.program, self.in_slab))
        return next((name for name, value in plain.items() if slab.get(name, value) != value), None)

    def _digests(self, program: Program, settle: Callable[[], None]) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}

        def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
            value = call()
            found[name] = tuple(digest(tensor) for tensor in tensors_in(value))
            return value

        settle()
        with torch.no_grad():
            run_nodes(program.module, self.inputs, around)
        return found

    def check(
        self, settle: Callable[[], None], plan: Plan, force: bool, equality: Equality
    ) -> tuple[CheckEntry, Equality]:
        """What safety mode says; its result has to be the reference's, too."""
        settle()
        expected, expected_after = self.reference(), self.after()
        settle()
        try:
            safe = run_safely(self.program, plan, self.subject.args, self.subject.kwargs, force=force)
        except InputError:
            raise
        except MemplanError as error:
            return CheckEntry(fault=str(error)), equality
        if equality.exact:
            equality = compare_results(expected, safe.value, equality.reference)
        if equality.exact:
            equality = compare_results(expected_after, self.after(), equality.reference)
        entry = CheckEntry(
            ops=safe.ops,
            compared_bytes=safe.compared_bytes,
            arena_bytes=safe.arena_bytes,
            guard=safe.guard,
        )
        return entry, equality

    def profile(self, settle: Callable[[], None], setup: float) -> ProfileEntry:
        """Seconds an iteration, by turns, and by kind of op."""
        args, kwargs = self.subject.args, self.subject.kwargs
        calls: dict[str, Callable[[], Any]] = {} if self.subject.eager is None else {EAGER: self.reference}
        calls[INTERPRETER] = lambda: self.program.interpret(args, kwargs)
        calls["slab"] = lambda: self.in_slab.run(args, kwargs)
        seconds, runs = time_by_turns(calls, settle)
        modules = (self.program.module, self.in_slab.module)
        kinds = time_kinds(self.program.graph, *modules, self.inputs, settle)
        entries = tuple(
            KindEntry(kind=each.kind, ops=each.ops, plain=each.plain, slab=each.slab) for each in kinds
        )
        return ProfileEntry(runs=runs, setup=setup, kinds=entries, **seconds)


def _equality_entry(equality: Equality) -> EqualityEntry:
    if equality.exact:
        return EqualityEntry(reference=equality.reference, exact=True)
    largest = equality.largest if math.isfinite(equality.largest) else None
    return EqualityEntry(
        reference=equality.reference, exact=False, largest=largest, output=equality.output, op=equality.op
    )


def _run_file(subject: Subject, measured: Measured, report: SlabReport) -> RunFile:
    ops = measured.graph.ops
    takers = (
        TakerEntry(op=each.op, kind=each.kind, bytes=each.nbytes, inside_bytes=each.inside)
        for each in measured.takers
    )
    return RunFile(
        format="memplan/run",
        version=1,
        name=subject.program.name,
        training=subject.training,
        functional=subject.functional,
        ops=tuple(op.name for op in ops),
        kinds=tuple(op.kind for op in ops),
        predicted=tuple(measured.predicted.tolist()),
        dispatch=tuple(measured.dispatch.tolist()),
        allocator=tuple(measured.allocator.tolist()),
        temporaries=tuple(takers),
        slab=_slab_entry(report),
    )


def _slab_entry(report: SlabReport) -> SlabEntry:
    nodes, nbytes = report.nodes, report.nbytes
    left = [
        {
            "storage": made.storage,
            "op": made.op,
            "kind": made.kind,
            "bytes": made.nbytes,
            "way": made.way.value,
            "reason": made.reason,
        }
        for made in report.made
        if made.way not in IN_PLACE
    ]
    ways = [{"way": way.value, "storages": n, "bytes": nbytes[way]} for way, n in nodes.items() if n]
    return SlabEntry.model_validate(
        {
            "policy": report.policy,
            "bytes": report.slab_bytes,
            "share": report.share,
            "views": report.views,
            "in_place": report.in_place,
            "ways": tuple(ways),
            "left": tuple(left),
        }
    )
