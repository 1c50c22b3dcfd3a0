"""The JSON of banks, and of a plan over several of them: version 2 of memplan/plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import numpy as np
from pydantic import FailFast, Field

from memplan_engine.banked.banked_plan import (
    BankBound,
    BankBoundKind,
    BankedPlan,
    Objective,
    bank_problem,
    banks_of,
)
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Strict, check_length
from memplan_engine.formats.memplan_json.plan_format import (
    BoundEntry,
    arena_of,
    bound_from,
)
from memplan_engine.formats.memplan_json.problem_format import ProblemBody, body_of_problem, problem_from
from memplan_engine.plan import Parameter, Plan, make_objects, make_offsets
from memplan_engine.problem import Problem


class PriceEntry(Strict):
    """What a byte of the bank at the place `bank` costs at `step`, in units of 1/`scale`."""

    bank: Count
    step: Count
    price: Count


class BankBoundEntry(Strict):
    """A lower bound on what was minimised, with its reason: see the documentation of banks."""

    value: Count
    kind: BankBoundKind
    prices: Annotated[tuple[PriceEntry, ...], FailFast()] = ()
    scale: Annotated[int, Field(ge=1, le=2**62)] = 1
    step: Count = 0


class BankPlanEntry(Strict):
    """The plan of one bank: how it was made, its arena in bytes, and its bound. `core` of the bound counts
    the buffers of the bank."""

    strategy: str
    parameters: dict[str, Parameter] | None = None
    arena_bytes: Count
    bound: BoundEntry
    seconds: Annotated[float, Field(ge=0)] = 0.0
    objects: Annotated[tuple[Count, ...] | None, FailFast()] = None


class BankedPlanFile(Strict):
    """A file in the format memplan/plan, version 2: a plan over the banks of its problem.

    `bank_of` is the bank of each buffer, by its place in `problem.banks.banks`; `offsets` are bytes from the
    begin of that bank; `plans` has an entry for each bank. `bound` is on what `objective` minimises.
    """

    format: Literal["memplan/plan"]
    version: Literal[2]
    objective: Objective
    bound: BankBoundEntry
    seconds: Annotated[float, Field(ge=0)] = 0.0
    bank_of: Counts
    offsets: Counts
    plans: tuple[BankPlanEntry, ...]
    problem: ProblemBody


def banked_from(file: BankedPlanFile, source: str) -> BankedPlan:
    """The plan; raises InputError where its parts do not fit together.

    Whether buffers collide, a capacity is passed, or the bound is proved, is `validate`'s to say.
    """
    problem = problem_from(file.problem, source)
    if problem.banks is None:
        raise InputError(source, "field problem.banks", "nothing", "the banks of the problem")
    n, count = len(problem), len(problem.banks)
    check_length(file.bank_of, n, "bank_of", source, "banks", "buffer")
    check_length(file.offsets, n, "offsets", source, "offsets", "buffer")
    check_length(file.plans, count, "plans", source, "plans", "bank")
    for row, bank in enumerate(file.bank_of):
        if bank >= count:
            raise InputError(source, f"field bank_of[{row}]", str(bank), f"below {count}, a bank's place")
    for place, price in enumerate(file.bound.prices):
        if price.bank >= count:
            raise InputError(source, f"field bound.prices[{place}].bank", str(price.bank), f"below {count}")
    bank_of, offsets = make_offsets(file.bank_of, "bank_of"), make_offsets(file.offsets)
    plans = []
    for bank, entry in enumerate(file.plans):
        rows = np.flatnonzero(bank_of == bank)
        part = bank_problem(problem, rows, bank)
        plans.append(_plan_from(entry, part, offsets[rows].tolist(), f"plans[{bank}].", source))
    prices = tuple((price.bank, price.step, price.price) for price in file.bound.prices)
    bound = BankBound(file.bound.value, file.bound.kind, prices, file.bound.scale, file.bound.step)
    return BankedPlan(problem, bank_of, tuple(plans), file.objective, bound, file.seconds)


def _plan_from(entry: BankPlanEntry, problem: Problem, offsets: list[int], field: str, source: str) -> Plan:
    arena = arena_of(offsets, problem, source)
    if arena != entry.arena_bytes:
        expected = f"{arena}, the end of the topmost buffer of the bank"
        raise InputError(source, f"field {field}arena_bytes", str(entry.arena_bytes), expected)
    if entry.objects is not None:
        check_length(entry.objects, len(problem), f"{field}objects", source, "objects", "buffer of the bank")
    return Plan(
        problem,
        make_offsets(offsets),
        entry.strategy,
        bound_from(entry.bound, len(problem), source, field),
        tuple((entry.parameters or {}).items()),
        entry.seconds,
        make_objects(entry.objects),
    )


def file_of_banked(banked: BankedPlan) -> BankedPlanFile:
    """`banked` as a file of its own."""
    banks_of(banked.problem)
    bound = banked.bound
    prices = tuple(PriceEntry(bank=bank, step=step, price=price) for bank, step, price in bound.prices)
    return BankedPlanFile(
        format="memplan/plan",
        version=2,
        objective=banked.objective,
        bound=BankBoundEntry(
            value=bound.value, kind=bound.kind, prices=prices, scale=bound.scale, step=bound.step
        ),
        seconds=float(banked.seconds),
        bank_of=tuple(banked.bank_of.tolist()),
        offsets=tuple(banked.offsets.tolist()),
        plans=tuple(
            BankPlanEntry(
                strategy=plan.strategy,
                parameters=dict(plan.parameters) or None,
                arena_bytes=plan.arena_bytes,
                bound=BoundEntry(**asdict(plan.bound)),
                seconds=float(plan.seconds),
                objects=None if plan.objects is None else tuple(plan.objects.tolist()),
            )
            for plan in banked.plans
        ),
        problem=body_of_problem(banked.problem),
    )
