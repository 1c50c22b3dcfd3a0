"""A fit in a process of its own: reads a graph and which stages may be used, tells of each that is there.

Started as `python -m memplan_dashboard.background.fit_process` by `fit_job`. The only message after the first
is a wish to stop. Never imports Streamlit.
"""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from typing import Any, BinaryIO

from memplan_dashboard.background.fit_job import held_values, stage_values
from memplan_dashboard.background.server_pipes import first_message, open_pipes, send, stop_when_asked

from memplan_engine.advice.fit_stages import Stage, fit_graph
from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.json_file import loads
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import Unread
from memplan_engine.preparation import Preparation
from memplan_engine.rewrites.order.order_search import OrderProgress
from memplan_engine.strategies.base import SolveLimits


class _StoppedError(Exception):
    """Somebody wants no more stages."""


class _Teller:
    """Sends what the fit tells, and ends it between two stages when it is to stop."""

    def __init__(self, answers: BinaryIO, limits: SolveLimits) -> None:
        self.answers, self.limits = answers, limits
        self.least: int | None = None

    def begins(self, part: str) -> None:
        """A stage begins."""
        if self.limits.stopped:
            raise _StoppedError
        send(self.answers, {"kind": "begun", "part": part.replace(" ", "_")})

    def order(self, progress: OrderProgress) -> None:
        """The search for an order is so far."""
        send(self.answers, {"kind": "order", "order": asdict(progress)})

    def stage(self, stage: Stage) -> None:
        """A stage is there. One that was cut short is worth something only if it is better."""
        arena = stage.plan.arena_bytes
        if self.least is None or not self.limits.stopped or arena < self.least:
            send(self.answers, stage_values(stage))
        self.least = arena if self.least is None else min(arena, self.least)


def main() -> None:
    """Fit what comes in, as far as it is let."""
    commands, answers = open_pipes()
    asked, _ = first_message(commands)
    limits = SolveLimits(asked["seconds"], nodes=asked["nodes"])
    threading.Thread(target=stop_when_asked, args=(commands, limits), daemon=True).start()
    teller = _Teller(answers, limits)
    end: dict[str, Any] = {"kind": "done"}
    try:
        graph = loads(asked["graph"], "the graph")
        assert isinstance(graph, Graph)
        how = Preparation(**{**asked["how"], "unread": Unread(asked["how"]["unread"])})
        fit_graph(
            graph,
            None,
            asked["only"],
            how=how,
            limits=limits,
            tell=teller.begins,
            watch=teller.stage,
            on_order=teller.order,
            on_gradients=lambda held: send(answers, held_values(held)),
        )
    except MemplanError as error:
        end = {"kind": "error", "message": str(error)}
    except _StoppedError:
        pass
    send(answers, end)
    # Not through the interpreter's end: a thread may still be waiting for input.
    os._exit(0)


if __name__ == "__main__":
    main()
