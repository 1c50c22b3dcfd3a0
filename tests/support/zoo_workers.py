"""Models of a zoo, and workers that answer in this process without capturing anything."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from memplan_engine.graph import Graph, Op
from memplan_engine.zoo.planning import graph_of, planned
from memplan_engine.zoo.zoo_values import ZooAnswer, ZooGraph, ZooTask
from tests.support.graphs import make_graph

MODELS = """
import os
import torch
import layers


def net(batch=2, width=16, dtype="float32"):
    torch.set_default_dtype(getattr(torch, dtype))
    return layers.Mlp(width), (torch.zeros(batch, width),)


def odd(batch):
    if batch % 2:
        raise ValueError("an odd batch")
    return net(batch)


def killed(batch):
    os.kill(os.getpid(), 9)


def killed_once(batch, flag):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os.kill(os.getpid(), 9)
    return net(batch)


def slow(batch):
    import time
    time.sleep(600)
"""
LAYERS = """
import torch


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""


def sized(batch: int) -> Graph:
    """A graph with 1,000 bytes of weights and an arena of 128 bytes for each sample of the batch."""
    ops = (Op("first", "aten.linear", ("x", "w"), ("y",)), Op("second", "aten.relu", ("y",), ("z",)))
    sizes = {"x": 64 * batch, "w": 1000, "y": 64 * batch, "z": 64 * batch}
    return make_graph(ops, sizes, inputs=("x",), constants=("w",), outputs=("z",))


@dataclass
class HereWorkers:
    """Those who answer at once, with what `answer` gives unless it gives nothing. `asked` are all tasks."""

    answer: Callable[[ZooTask, int], ZooAnswer | None] = lambda task, times: None
    asked: list[ZooTask] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    closed: bool = False

    def submit(self, task: ZooTask) -> Future[ZooAnswer]:
        self.asked.append(task)
        future: Future[ZooAnswer] = Future()
        times = sum(each.variant == task.variant for each in self.asked)
        try:
            future.set_result(self.answer(task, times) or self.usual(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def usual(self, task: ZooTask) -> ZooAnswer:
        batch = dict(task.variant.axes).get("batch", 1)
        graphs: tuple[ZooGraph, ...] = task.graphs or (graph_of(sized(int(batch))),)
        return planned(task, graphs, known=bool(task.graphs))

    def news(self) -> list[str]:
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        self.closed = True
