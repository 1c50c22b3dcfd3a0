"""Running a model inside its plan once, and all that is to be said of it: `memplan run` and the page Run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from memplan_engine.formats.memplan_json.run_format import (
    EqualityEntry,
    OrderEntry,
    PlanEntry,
    RunFile,
    SlabEntry,
    TakerEntry,
)
from memplan_engine.plan import Plan
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.eager_step import EagerStep
from memplan_engine.runtime.loading import RunTarget
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.slab.insert_slab import insert_slab, slab_report
from memplan_engine.runtime.slab.slab_report import IN_PLACE, SlabReport
from memplan_engine.runtime.trial.bench import Bench
from memplan_engine.runtime.trial.comparison import Measured, compare_run
from memplan_engine.runtime.trial.equality import Equality, restoring
from memplan_engine.torch_capture.torch_run import as_input_error, brief
from memplan_engine.torch_capture.training.torch_step import SEED

Tell = Callable[[str], None]
"""Hears what begins now: "observing a run"."""


@dataclass(frozen=True, slots=True, eq=False)
class RunOutcome:
    """What came of it: the run as a file has it, and the observation that it rests on."""

    run: RunFile
    observation: Observation

    def ordered(self, order: OrderEntry | None) -> RunOutcome:
        """The same, which says in what order the ops ran."""
        return replace(self, run=self.run.model_copy(update={"order": order}))


def run_in_plan(
    target: RunTarget,
    plan: Plan,
    *,
    policy: str = "native",
    check: bool = False,
    profile: bool = False,
    force: bool = False,
    file: str = "",
    tell: Tell = lambda part: None,
) -> RunOutcome:
    """Run `target` by itself, under an observer, and in the slab of `plan`; lay the predicted bytes over the
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
    with as_input_error(target.program.name, "run", "a model that runs on these inputs"):
        step = None
        if target.step is not None:
            tell("taking an eager step")
            step = target.step.take(False)
        with _state_of(target.program, step) as begin:
            return _try(target, plan, policy, check, profile, force, file, tell, step, begin)


@contextmanager
def _state_of(program: Program, step: EagerStep | None) -> Iterator[Callable[[], None]]:
    """With the weights and the optimizer's state that the eager step begins with; afterwards as before. Gives
    what puts back those before it."""
    state = program.named_state if step is not None else {}
    with restoring(list(state.values()), SEED) as begin, torch.no_grad():
        for name, tensor in state.items():
            if step is not None and name in step.before:
                tensor.copy_(step.before[name])
        yield begin


def _try(
    target: RunTarget,
    plan: Plan,
    policy: str,
    check: bool,
    profile: bool,
    force: bool,
    file: str,
    tell: Tell,
    step: EagerStep | None,
    begin: Callable[[], None],
) -> RunOutcome:
    program = target.program
    tell("inserting the slab")
    begun = time.perf_counter()
    module = insert_slab(program, plan, policy=policy, force=force)
    setup = target.seconds + plan.seconds + time.perf_counter() - begun
    tell("observing a run")
    measured = compare_run(
        target.written or program,
        target.args,
        target.kwargs,
        eager=target.eager or (None if target.written is None else _interpreted(program)),
        seed=SEED,
    )
    bench = Bench(target, program.with_module(module), step, begin)
    parts: dict[str, Any] = {}
    with restoring(bench.written, SEED) as restore:
        tell("running in the slab")
        refused, close = "", False
        try:
            equality = bench.equality(restore, measured.equality)
        except RuntimeError as error:
            # Torch does not write over a part of what it reads; safety mode says whose bytes these are.
            if not force:
                raise
            refused = brief(error)
            equality = replace(measured.equality, exact=False, largest=math.inf, output=f"the run: {refused}")
        if equality.exact and not measured.equality.exact:
            # What was observed is not what ran in the slab: each has to be the reference's.
            equality = measured.equality
        if target.in_pieces and not equality.exact and not refused:
            close = bench.is_close(restore)
        if check or force:
            tell("checking every op in safety mode")
            parts["check"], equality = bench.check(restore, plan, force, equality)
        if profile and not refused:
            tell("timing")
            parts["profile"] = bench.profile(restore, setup)
    parts["equality"] = _equality_entry(equality).model_copy(update={"close": close})
    parts["plan"] = PlanEntry(
        strategy=plan.strategy, arena_bytes=plan.arena_bytes, bound_bytes=plan.bound.nbytes, file=file
    )
    run = _run_file(target, measured, slab_report(module))
    return RunOutcome(run.model_copy(update=parts), measured.observation)


def _interpreted(program: Program) -> Callable[..., Any]:
    """`program` by torch's interpreter, as a function."""
    return lambda *args, **kwargs: program.interpret(args, kwargs)


def _equality_entry(equality: Equality) -> EqualityEntry:
    comparable = not equality.exact and math.isfinite(equality.largest)
    return EqualityEntry(**{**asdict(equality), "largest": equality.largest if comparable else None})


def _run_file(target: RunTarget, measured: Measured, report: SlabReport) -> RunFile:
    ops = measured.graph.ops
    takers = (
        TakerEntry(op=taker.op, kind=taker.kind, bytes=taker.nbytes, inside_bytes=taker.inside)
        for taker in measured.takers
    )
    return RunFile(
        format="memplan/run",
        version=1,
        name=target.program.name,
        training=target.training,
        functional=target.functional,
        scope=measured.graph.scope.value,
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
    left_out = []
    for entry in report.made:
        if entry.way not in IN_PLACE:
            row = asdict(entry) | {"way": entry.way.value}
            left_out.append({"bytes": row.pop("nbytes"), **row})
    ways = [{"way": way.value, "storages": n, "bytes": nbytes[way]} for way, n in nodes.items() if n]
    return SlabEntry.model_validate(
        {
            "policy": report.policy,
            "bytes": report.slab_bytes,
            "share": report.share,
            "views": report.views,
            "in_place": report.in_place,
            "ways": tuple(ways),
            "left": tuple(left_out),
        }
    )
