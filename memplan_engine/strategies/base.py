"""What a strategy is, what it may spend, what it gives, and how far it has come.

The protocol is the same for our strategies and for those of other packages.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memplan_engine.bounds import Bound
from memplan_engine.plan import Parameter
from memplan_engine.problem import Ints, Problem
from memplan_engine.system import count_cores

P = ParamSpec("P")
T = TypeVar("T")
NO_LIMIT = 2**63 - 1
NODES_PER_SECOND = 10_000
"""Nodes that replace a second of a part of the work where nodes are limited. One core visits 5,000 to 200,000
in a second."""
Listener = Callable[["Progress"], bool | None]
"""Hears of each better arena or bound, from the strategy's own threads; True ends the search, as with the
callbacks of SciPy's optimizers."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Offsets in bytes, one a buffer; `found_by` says which part of a portfolio they come from.

    `objects` is the shared object of each buffer, 0 … k − 1, where the strategy assigns buffers to whole
    objects; None where it only chooses offsets. `bound` is what the strategy proved beyond `lower_bound`,
    None for nothing. `threads` says how many it used.
    """

    offsets: Ints
    found_by: str = ""
    objects: Ints | None = None
    bound: Bound | None = None
    threads: int = 1

    def arena_bytes(self, problem: Problem) -> int:
        """max(offset + size)."""
        return int((self.offsets + problem.size).max(initial=0))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a strategy has come after `seconds`: the best arena and the proven bound so far in bytes (None
    before there is one), and the search nodes visited."""

    seconds: float
    arena_bytes: int | None
    bound_bytes: int | None
    nodes: int = 0
    found_by: str = ""

    @property
    def gap(self) -> float | None:
        """Best arena over bound, minus 1; None while one of them is unknown."""
        if self.arena_bytes is None or not self.bound_bytes:
            return None
        return self.arena_bytes / self.bound_bytes - 1


@dataclass(slots=True, eq=False)
class SolveLimits:
    """The limits of one solve, and where it reports.

    `seconds` limits wall time from `running()` on, None for no limit; the last `reserve` of them are kept for
    what is done with the result. `nodes` limits the nodes and moves that a search visits, None for no limit:
    with one thread and without `seconds`, the same problem and seed then give the same plan on any machine.
    `threads` is how many may run at once, 0 for one a core. `stop` is the flag that the kernels read;
    `cancel()` raises it from any thread. Strategies call `report` with each better placement and `prove` with
    each better bound, and kernels add to `counter[0]` as they visit nodes. `progress()` can be called at any
    time; `listener` is called after each change and ends the search by returning True.
    """

    seconds: float | None = None
    seed: int = 0
    threads: int = 1
    listener: Listener | None = None
    stop: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))
    counter: Ints = field(default_factory=lambda: np.zeros(8, dtype=np.int64))
    best: Placement | None = None
    best_bytes: int | None = None
    bound: Bound | None = None
    reserve: float = 0.0
    nodes: int | None = None
    _first_node: int = 0
    _parent: SolveLimits | None = None
    _children: list[SolveLimits] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cancel(self) -> None:
        """Ask the strategy to stop and give the best placement it has."""
        self.stop[0] = True
        for child in self._children:
            child.cancel()

    def child(
        self, seconds: float | None = None, threads: int = 1, seed: int = 0, nodes: int | None = None
    ) -> SolveLimits:
        """Return a share of these limits, which can be stopped alone and ends with them.

        What the share reports and proves is reported and proved here. Its seed is this one's + `seed`; its
        nodes are counted from this call on.
        """
        share = SolveLimits(
            seconds,
            self.seed + seed,
            threads,
            counter=self.counter,
            nodes=nodes,
            _first_node=int(self.counter[0]),
            _parent=self,
        )
        self._children.append(share)
        if self.stopped:
            share.cancel()
        return share

    def part(self, seconds: float, threads: int = 1, seed: int = 0) -> SolveLimits:
        """Return a child for a part of the work: `seconds` long, or NODES_PER_SECOND nodes for each of them
        where nodes are limited. No clock then decides how far the part comes."""
        if self.counts_nodes:
            return self.child(self.seconds, threads, seed, int(seconds * NODES_PER_SECOND))
        return self.child(None if seconds == np.inf else seconds, threads, seed)

    def again(self, *, reports: bool = True) -> SolveLimits:
        """Return the same limits for another search. Its seconds and nodes are counted from its own start,
        and it ends with these limits. Without `reports` it neither reports nor proves anything here."""
        share = self.child(self.seconds, self.threads, nodes=self.nodes)
        share.counter, share._first_node = np.zeros_like(self.counter), 0
        if not reports:
            share._parent = None
        return share

    @property
    def stopped(self) -> bool:
        """True after the limit or `cancel()`."""
        return bool(self.stop[0]) or self.nodes_left == 0

    @property
    def counts_nodes(self) -> bool:
        """True if nodes are limited here or in a parent."""
        return self.nodes is not None or (self._parent is not None and self._parent.counts_nodes)

    @property
    def nodes_left(self) -> int:
        """Nodes that may still be visited; 2^63 − 1 without a limit."""
        above = self._parent.nodes_left if self._parent else NO_LIMIT
        if self.nodes is None:
            return above
        return min(above, max(0, self.nodes - int(self.counter[0]) + self._first_node))

    @property
    def visited(self) -> int:
        """Nodes visited since these limits were made."""
        return int(self.counter[0]) - self._first_node

    @property
    def spent(self) -> float:
        """Seconds that the work has taken; where nodes are limited 1/NODES_PER_SECOND for each node."""
        return self.visited / NODES_PER_SECOND if self.counts_nodes else self.elapsed

    @property
    def remaining(self) -> float:
        """Seconds of work left, in the unit of `spent`; infinite without a limit."""
        return self.nodes_left / NODES_PER_SECOND if self.counts_nodes else self.left

    def count(self, nodes: int) -> None:
        """Count steps of a search that no kernel counts."""
        self.counter[0] += nodes

    @property
    def most_threads(self) -> int:
        """How many threads may run at once, 1 or more."""
        return self.threads or count_cores()

    @property
    def left(self) -> float:
        """Seconds until the limit, 0 when it has passed; infinite without one."""
        return np.inf if self.seconds is None else max(0.0, self.seconds - self.reserve - self.elapsed)

    @property
    def elapsed(self) -> float:
        """Seconds since `running()` started the clock."""
        return time.perf_counter() - self._began

    def report(self, placement: Placement, problem: Problem) -> None:
        """Keep `placement` if it is better than the best so far, and tell."""
        arena = placement.arena_bytes(problem)
        with self._lock:
            if self.best_bytes is not None and arena >= self.best_bytes:
                return
            self.best, self.best_bytes = placement, arena
        self._tell()
        if self._parent:
            self._parent.report(placement, problem)

    def prove(self, bound: Bound) -> None:
        """Keep `bound` if it is better than the best so far, and tell."""
        with self._lock:
            if self.bound is not None and bound.nbytes <= self.bound.nbytes:
                return
            self.bound = bound
        self._tell()
        if self._parent:
            self._parent.prove(bound)

    def progress(self) -> Progress:
        """How far it has come."""
        with self._lock:
            return Progress(
                self.elapsed,
                self.best_bytes,
                self.bound.nbytes if self.bound else None,
                sum(int(counter[0]) for counter in self._counters()),
                self.best.found_by if self.best else "",
            )

    def _counters(self) -> list[Ints]:
        """Return the counter of these limits and those of `again`."""
        others = (child.counter for child in self._children)
        return [self.counter, *(counter for counter in others if counter is not self.counter)]

    def _tell(self) -> None:
        if self.listener and self.listener(self.progress()):
            self.cancel()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the clock, which raises `stop` when the time is up."""
        self._began = time.perf_counter()
        timer = threading.Timer(self.left, self.cancel) if self.seconds is not None else None
        if timer:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer:
                timer.cancel()


def limits_were_budget(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose keyword `limits` was called `budget`: that name goes with version 1.0."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        if "budget" in kwargs:
            message = (
                f"budget= of {function.__name__} is now called limits=; the old name goes with version 1.0"
            )
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            kwargs["limits"] = kwargs.pop("budget")
        return function(*args, **kwargs)

    return wrapper


class Strategy(Protocol):
    """One way to place buffers. Implementations are frozen dataclasses whose fields are their parameters.

    Three members are optional. `obstacle(problem)` says why a problem cannot be placed, "" when it can, so
    that a comparison can leave the strategy out without trying. `anytime`, a bool, says that it improves its
    placement until a proof or its limit: it then gets a time limit by default, and a dashboard goes on with
    it in the background. `with_capacity(capacity)` gives a strategy that ends as soon as the arena fits into
    that many bytes, or is proved not to; with None, the one that minimises.
    """

    @property
    def name(self) -> str:
        """The name that people type, such as "greedy_by_size"."""

    @property
    def description(self) -> str:
        """One line for people."""

    @property
    def source(self) -> str:
        """The paper or system it comes from."""

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Give every buffer an offset, honouring alignment, gaps and fixed offsets, or raise PlanError.

        Deterministic for a seed; never changes `problem`. Fixed offsets are known not to collide.
        """


def obstacle(strategy: Strategy, problem: Problem) -> str:
    """Why `strategy` cannot place `problem`, for people; "" when it can."""
    method = getattr(strategy, "obstacle", None)
    return str(method(problem)) if method else ""


def is_anytime(strategy: Strategy) -> bool:
    """Whether `strategy` goes on until a proof or its limit."""
    return bool(getattr(strategy, "anytime", False))


def with_capacity(strategy: Strategy, capacity: int | None) -> Strategy | None:
    """`strategy` aimed at an arena of `capacity` bytes; None for one that only minimises."""
    method = getattr(strategy, "with_capacity", None)
    return method(capacity) if method else None


def parameters_of(strategy: Strategy) -> tuple[tuple[str, Parameter], ...]:
    """The strategy's parameters, as (name, value) in the order of its fields; what its repr leaves
    out is none."""
    if not is_dataclass(strategy):
        return ()
    own = (parameter.name for parameter in fields(strategy) if parameter.repr)
    return tuple((key, getattr(strategy, key)) for key in own if key not in ("name", "description", "source"))
