"""A plan over several banks: which buffer lives where, an ordinary plan of each bank, and a bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import lcm

import numpy as np

from memplan_engine.banks.bank_values import ANY, Bank, Banks, make_banks
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.kernels.types import Flags
from memplan_engine.op_kinds.copies import MOVE
from memplan_engine.plan import Plan
from memplan_engine.problem import Ints, Problem, make_problem, select


class Objective(StrEnum):
    """What an assignment to banks minimises: what all accesses cost, or the arena of the slowest bank."""

    TRAFFIC = "traffic"
    PEAK = "peak"


class BankBoundKind(StrEnum):
    """The argument behind a bound over several banks."""

    PRICES = "prices of bytes"
    ROOM = "room in the other banks"
    SEARCH = "search"
    MOVES = "prices of bytes, with moves"
    SWEEP = "all moves by live bytes"


WITH_MOVES = frozenset({BankBoundKind.MOVES, BankBoundKind.SWEEP})
"""The arguments that hold for every plan in which buffers may move between banks as well."""


@dataclass(frozen=True, slots=True)
class BankBound:
    """No assignment can do better than `value`: cost of accesses, or bytes of the slowest bank's arena.

    PRICES: bytes have a price at certain steps; `prices` are (bank, step, price), in units of 1/`scale` of
    cost. Each buffer in its cheapest bank, the price of what it holds at these steps included, summed up,
    less what the whole capacities cost there, is the value (Lagrangian relaxation). Without prices each
    buffer is simply in its cheapest bank. ROOM: what is live at `step` less what all
    other banks hold. SEARCH: a search over all assignments proved it. MOVES: as PRICES, where each buffer
    takes the cheapest way through the banks, from step to step, copies included. SWEEP: of all ways that keep
    to the capacities by live bytes at the steps of ops none costs less.
    """

    value: int
    kind: BankBoundKind
    prices: tuple[tuple[int, int, int], ...] = ()
    scale: int = 1
    step: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BankedPlan:
    """Each buffer of `problem`, which has banks, lives in bank `bank_of[i]` (read-only int64 array of n), at
    the offset that the plan of that bank gives it: `plans[k]` places the buffers `rows(k)`, in their order.

    `bound` is on what `objective` minimises. `seconds` is wall time, `cut_short` says that a limit or a
    cancel ended the search.
    """

    problem: Problem
    bank_of: Ints
    plans: tuple[Plan, ...]
    objective: Objective
    bound: BankBound
    seconds: float = field(default=0.0)
    cut_short: bool = False

    @property
    def banks(self) -> Banks:
        """The banks of the problem."""
        return banks_of(self.problem)

    def rows(self, bank: int) -> Ints:
        """The buffers that live in `bank`, ascending."""
        return np.flatnonzero(self.bank_of == bank)

    @property
    def offsets(self) -> Ints:
        """The offset of each buffer within its bank, bytes (int64, n)."""
        offsets = np.zeros(len(self.problem), dtype=np.int64)
        for bank, plan in enumerate(self.plans):
            offsets[self.rows(bank)] = plan.offsets
        return offsets

    @property
    def traffic(self) -> int:
        """What all accesses cost: see `Banks.costs`."""
        return traffic_of(self.problem, self.bank_of)

    @property
    def value(self) -> int:
        """What was minimised: `traffic`, or the bytes of the slowest bank's arena."""
        if self.objective is Objective.TRAFFIC:
            return self.traffic
        return self.plans[self.banks.slowest].arena_bytes

    @property
    def gap(self) -> float:
        """Value over bound, minus 1; 0.0 where both are 0, infinite where only the bound is."""
        if self.bound.value:
            return self.value / self.bound.value - 1
        return float("inf") if self.value else 0.0

    @property
    def optimal(self) -> bool:
        """Whether the value meets the bound."""
        return self.value == self.bound.value

    @property
    def spilled(self) -> Ints:
        """The buffers that live in a bank which costs more than the cheapest that they may live in."""
        return np.flatnonzero(self.extra_costs > 0)

    @property
    def extra_costs(self) -> Ints:
        """What each buffer costs above the cheapest bank that it may live in (int64, n)."""
        costs = banks_of(self.problem).costs
        cheapest = np.where(self.banks.allowed, costs, np.iinfo(np.int64).max).min(axis=1)
        own: Ints = costs[np.arange(len(costs)), self.bank_of] - cheapest
        return own


def banks_of(problem: Problem) -> Banks:
    """The banks of `problem`; raises InputError where it has none."""
    if problem.banks is None:
        raise InputError(problem.name, "banks", "no banks", "a problem with banks, or --bank")
    return problem.banks


def traffic_of(problem: Problem, bank_of: Ints) -> int:
    """What all accesses cost with each buffer in the bank `bank_of`."""
    costs = banks_of(problem).costs
    return int(costs[np.arange(len(costs)), bank_of].sum())


def bank_problem(problem: Problem, rows: Ints, bank: int) -> Problem:
    """The buffers `rows` as a problem of the one bank, with its alignment as well as their own."""
    own = banks_of(problem).banks[bank]
    part = replace(select(problem, rows, f"{problem.name} in {own.name}"), banks=None)
    if own.alignment == 1:
        return part
    values, places = np.unique(part.alignment, return_inverse=True)
    aligned = np.array([lcm(value, own.alignment) for value in values.tolist()], dtype=np.int64)[places]
    wrong = (part.fixed > 0) & (part.fixed % np.maximum(aligned, 1) != 0) if len(part) else aligned > 0
    if wrong.any():
        row = int(np.argmax(wrong))
        found = f"the fixed offset {int(part.fixed[row])} in {own.name}"
        raise InputError(
            problem.name, f"buffer {part.names[row]!r}", found, f"a multiple of {int(aligned[row])}"
        )
    aligned.flags.writeable = False
    return replace(part, alignment=aligned)


def with_banks(
    problem: Problem,
    banks: Sequence[Bank],
    *,
    allowed: Flags | None = None,
    accessed: Ints | None = None,
    preferred: Ints | None = None,
) -> Problem:
    """`problem` with `banks` as its memories.

    By default a buffer may live in every bank that can be written. Of a graph the accesses are those of its
    ops, and with a bank that is read-only among the banks its constants are buffers, too, which may live in
    every bank; of a list of buffers each is written once and read once.

    Raises
    ------
    InputError: as `make_banks` does; a fixed offset of a buffer that may live in several banks.
    """
    if problem.origin is not None and allowed is None and any(bank.read_only for bank in banks):
        problem, constant = _with_constants(problem)
        writable = np.array([not bank.read_only for bank in banks])
        allowed = writable[None, :] | constant[:, None]
    if accessed is None and problem.origin is not None:
        counted = accessed_bytes(problem.origin.graph)
        accessed = np.array([counted.get(name, 0) for name in problem.names], dtype=np.int64)
    made = make_banks(
        banks,
        problem.size,
        allowed=allowed,
        accessed=accessed,
        preferred=preferred,
        source=problem.name,
    )
    return _remade(problem, banks=made)


def rebank(problem: Problem, banks: Sequence[Bank]) -> Problem:
    """`problem` with `banks` in the place of its banks of the same names, in that order, and behind them
    those that it has besides. A bank that is new takes whoever may live in every bank that can be written.

    Raises
    ------
    InputError: as `with_banks` does.
    """
    own = problem.banks
    if own is None:
        return with_banks(problem, banks)
    given = [bank.name for bank in banks]
    merged = (*banks, *(bank for bank in own.banks if bank.name not in given))
    usual = np.array([not bank.read_only for bank in own.banks])
    anywhere = own.allowed[:, usual].all(axis=1)
    columns = [
        own.allowed[:, own.names.index(bank.name)]
        if bank.name in own.names
        else anywhere & (not bank.read_only)
        for bank in merged
    ]
    places = {
        own.names.index(bank.name): place for place, bank in enumerate(merged) if bank.name in own.names
    }
    preferred = np.array([places.get(wish, ANY) for wish in own.preferred.tolist()], dtype=np.int64)
    return with_banks(
        problem, merged, allowed=np.stack(columns, axis=1), accessed=own.accessed, preferred=preferred
    )


def accessed_bytes(graph: Graph) -> dict[str, int]:
    """By storage, how many bytes of it the ops read and write in all: see `accesses`."""
    counted: dict[str, int] = {}
    for _, storage, nbytes in accesses(graph):
        counted[storage] = counted.get(storage, 0) + nbytes
    return counted


def accesses(graph: Graph) -> Iterator[tuple[int, str, int]]:
    """(op, storage, bytes) of each access, the op by index: each input is read once, each output and each
    tensor written in place is written once; making a view reads and writes nothing. A move reads and writes
    whole storages."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    whole = {storage.name: storage.nbytes for storage in graph.storages}
    for index, op in enumerate(graph.ops):
        read = {tensors[name].storage for name in op.inputs}
        made = [name for name in op.outputs if tensors[name].storage not in read]
        if op.kind == MOVE:
            for storage in dict.fromkeys(tensors[name].storage for name in (*op.inputs, *op.outputs)):
                yield index, storage, whole[storage]
            continue
        if op.outputs and not made and not op.mutates:
            # It only shows its inputs in another way.
            continue
        for name in (*op.inputs, *op.mutates, *made):
            yield index, tensors[name].storage, tensors[name].nbytes


def _with_constants(problem: Problem) -> tuple[Problem, Flags]:
    """`problem` with the constants of its graph as buffers that live all the time, and which buffers they
    are."""
    assert problem.origin is not None
    graph = problem.origin.graph
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    names = {homes[name] for name in graph.constants} - set(problem.names)
    added = [storage for storage in graph.storages if storage.name in names and storage.nbytes]
    is_constant = np.arange(len(problem) + len(added)) >= len(problem)
    if not added:
        return problem, is_constant
    alignment = int(problem.alignment.max(initial=1))
    columns = {
        "start": [0] * len(added),
        "end": [max(1, problem.steps)] * len(added),
        "size": [storage.nbytes for storage in added],
        "alignment": [storage.alignment or alignment for storage in added],
        "fixed": [-1] * len(added),
    }
    joined = {
        key: np.concatenate([getattr(problem, key), np.array(more, dtype=np.int64)])
        for key, more in columns.items()
    }
    return _remade(
        problem, names=(*problem.names, *(storage.name for storage in added)), **joined
    ), is_constant


def _remade(problem: Problem, **changes: object) -> Problem:
    """`problem` with `changes`, checked anew."""
    keys = ("start", "end", "size", "alignment", "fixed", "names", "gaps", "name", "origin", "scope", "banks")
    values: dict[str, object] = {key: getattr(problem, key) for key in keys}
    longer = len(changes.get("names", problem.names)) != len(problem)  # type: ignore[arg-type]
    values |= {} if longer else {"callers": problem.callers, "ids": problem.ids}
    return make_problem(steps=problem.steps or None, **values | changes)  # type: ignore[arg-type]
