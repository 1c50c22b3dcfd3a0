"""A solver in a process of its own: reads a problem from its standard input, writes how far it has come.

Started as `python -m memplan_dashboard.background.solver_process` by `jobs`. The first message is the
problem; the only one after it is a wish to stop. When the input ends, whoever asked is gone, and the process
ends, too. Never imports Streamlit.
"""

from __future__ import annotations

import os
import threading
from typing import Any, BinaryIO

from memplan_dashboard.background.server_pipes import first_message, open_pipes, send, stop_when_asked
from memplan_dashboard.background.solver_messages import bound_values, read_problem

from memplan_engine.errors import MemplanError
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import Placement, Progress, SolveLimits, Strategy, with_capacity

TELL_SECONDS = 0.2
"""How often progress is told while nothing better is found."""
LEAST_SECONDS = 0.05
"""The least time between two messages, however fast improvements come."""
LONGEST_SECONDS = 86_400.0


class _Teller:
    """Tells the other side of each improvement, and of nodes and bounds in between."""

    def __init__(self, limits: SolveLimits, answers: BinaryIO) -> None:
        self.limits, self.answers = limits, answers
        self.lock = threading.Lock()
        self.news = threading.Event()
        self.over = threading.Event()
        self.told: Placement | None = None
        limits.listener = self._heard

    def _heard(self, progress: Progress) -> None:
        self.news.set()

    def run(self) -> None:
        """Tell until `over`."""
        while not self.over.is_set():
            self.news.wait(TELL_SECONDS)
            self.news.clear()
            self.tell()
            self.over.wait(LEAST_SECONDS)

    def tell(self) -> None:
        """One message: offsets only when they are new."""
        best, bound = self.limits.best, self.limits.bound
        values = {
            "kind": "progress",
            "nodes": int(self.limits.counter[0]),
            "bound": bound_values(bound),
            "found_by": best.found_by if best else "",
            "threads": best.threads if best else 1,
        }
        new = best is not None and best is not self.told
        self.send(values, {"offsets": best.offsets} if best is not None and new else {})
        self.told = best

    def send(self, values: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write a message, one at a time."""
        with self.lock:
            send(self.answers, values, arrays)


def _strategy(asked: dict[str, Any]) -> Strategy:
    """The strategy that is asked for, with its capacity where there is one."""
    strategy = get_strategy(asked["strategy"])
    return with_capacity(strategy, asked["capacity"]) or strategy


def _done(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    values = {
        "kind": "done",
        "nodes": plan.nodes,
        "bound": bound_values(plan.bound),
        "found_by": dict(plan.parameters).get("found_by") or "",
        "parameters": plan.parameters,
        "threads": plan.threads,
        "cut_short": plan.cut_short,
    }
    return values, {"offsets": plan.offsets}


def main() -> None:
    """Solve what comes in."""
    commands, answers = open_pipes()
    asked, arrays = first_message(commands)
    # The other side suspends, extends or ends the search. Without any limit a strategy might give up early.
    limits = SolveLimits(
        LONGEST_SECONDS if asked["nodes"] is None else None,
        seed=asked["seed"],
        threads=asked["threads"],
        nodes=asked["nodes"],
    )
    threading.Thread(target=stop_when_asked, args=(commands, limits), daemon=True).start()
    teller = _Teller(limits, answers)
    threading.Thread(target=teller.run, daemon=True).start()
    try:
        values, columns = _done(make_plan(read_problem(asked, arrays), _strategy(asked), limits=limits))
    except MemplanError as error:
        values, columns = {"kind": "error", "message": str(error)}, {}
    teller.over.set()
    teller.send(values, columns)
    answers.flush()
    # Not through the interpreter's end: a thread may still be waiting for input.
    os._exit(0)


if __name__ == "__main__":
    main()
