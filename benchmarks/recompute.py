"""Recomputation: time against bytes, what is proved, and torch's own knob on the same graph and times.

    python -m benchmarks recompute [--only NAMES] [--device a100-80] [--seconds 10] [--shares 80,60]
                                   [--offload] [--knob] [--moccasin SOURCE] [--markdown]

The models are training steps of `families/published_models` at batch 8, gradients held, a GPT-2 of 20
layers, a U-Net, and those of the examples. `share` is of the live bytes at the worst step, inputs and
weights not counted; "found" and "proved" are the time that ops run again for and what every schedule takes
at least, as a share of what all ops take once, by the roofline of the device; "points" is their difference.
Every schedule and proof is checked by code that shares nothing with the search. "cpu" is processor seconds,
one thread.

With --offload results may wait on the host, too, copied over the device's link: the stages of `fit`, ops that
run again alone and with copies beside, in an arena of so large a share, and what is proved of both together.

With --knob the forward and backward pass of the same models are captured by AOTAutograd and cut by torch's
min-cut partitioner with `activation_memory_budget` from 1.0 to 0.0 (its solver "dp", the default). Live bytes
of torch's graph are those of the best of its order and Inductor's three rules; its time is that of all its
ops less that of the default partition's, without what nobody reads. Ours is the quickest found in as many
bytes on the default partition: a point of torch's below our curve would have a plus in the last column.

With --moccasin the instances of Moccasin (SOURCE: a folder or an address) at 80 and 90 % of the peak of their
own order, where order alone may do: reordered first, then recomputed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.order import moccasin_instances  # noqa: E402
from memplan_engine import Graph, SolveLimits, accelerator, capture_step, fit_graph, load, reorder  # noqa: E402
from memplan_engine.analysis.op_costs import modelled_times, op_seconds  # noqa: E402
from memplan_engine.analysis.torch_budgets import BUDGETS  # noqa: E402
from memplan_engine.fitting.fitted import Stage, StageName, state_bytes_of  # noqa: E402
from memplan_engine.rewrites.order.order_problem import peak_in_order  # noqa: E402
from memplan_engine.rewrites.recompute.recomputed import Recomputation  # noqa: E402
from memplan_engine.rewrites.recompute.schedules import load_recompute_kernels  # noqa: E402
from memplan_engine.rewrites.recompute.torch_cuts import least_peak, without_unread  # noqa: E402
from memplan_engine.units import format_bytes  # noqa: E402

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
NAMES = ("resnet 50", "vit b16", "bert base", "gpt2", "distilbert", "t5 small", "convnext tiny", "swin tiny")
DEEP = "gpt2 of 20"
"""The longest step: 5,746 ops."""


class UNet(nn.Module):
    """Ronneberger, Fischer and Brox (2015) with batch norm: skipped connections are held longest."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()

        def block(given: int, made: int) -> nn.Sequential:
            pairs = [(given, made), (made, made)]
            layers = [[nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()] for i, o in pairs]
            return nn.Sequential(*layers[0], *layers[1])

        inputs = (3, *widths)
        self.down = nn.ModuleList(block(i, o) for i, o in zip(inputs, widths, strict=False))
        self.middle = block(widths[-1], 2 * widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.up = nn.ModuleList(block(2 * w, w) for w in reversed(widths))
        self.head, self.pool = nn.Conv2d(widths[0], 1, 1), nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = []
        for down in self.down:
            skipped.append(down(x))
            x = self.pool(skipped[-1])
        x = self.middle(x)
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([skipped.pop(), grow(x)], 1))
        return self.head(x).square().mean()


def model(name: str) -> Built:
    """In train mode, on meta, with its inputs at batch 8."""
    from benchmarks.families.published_models import build

    if name == "u-net":
        with torch.device("meta"):
            return UNet().train(), (torch.empty(8, 3, 128, 128),), {}
    if name == DEEP:
        from transformers import GPT2Config, GPT2LMHeadModel

        with torch.device("meta"):
            words = torch.zeros(8, 1024, dtype=torch.long)
            deep = GPT2LMHeadModel(GPT2Config(n_layer=20)).train()
        return deep, (), {"input_ids": words, "labels": words}
    built, inputs = build(name, 8)
    return built.train(), (), inputs


def small_bert() -> Built:
    """Four layers, 16 × 128 words: the model of the examples."""
    from example_graphs.capture import bert_for_training

    built, inputs = bert_for_training()
    return built.train(), (), inputs


def step(name: str) -> Graph:
    built, args, kwargs = model(name)
    return capture_step(built, args, kwargs, optimizer="adamw", gradients="held")


def example(name: str) -> Graph:
    graph = load(ROOT / "example_graphs" / f"{name}.json")
    assert isinstance(graph, Graph)
    return graph


def graphs(only: str) -> Iterator[tuple[str, Graph]]:
    """Those whose names begin as one of `only`, with commas between."""
    for name, make in every_graph():
        if name.startswith(tuple(only.split(","))):
            yield name, make()


def every_graph() -> Iterator[tuple[str, Callable[[], Graph]]]:
    for name in NAMES:
        yield name, partial(step, name)
    yield DEEP, partial(step, DEEP)
    yield "u-net", partial(step, "u-net")
    yield "example bert", partial(example, "bert_training_default")
    yield "example gpt2", partial(example, "gpt2_training_step")


def percent(part: float, whole: float) -> str:
    return f"+{100 * part / whole:.2f} %"


def shares(options: argparse.Namespace) -> None:
    gpu = accelerator(options.device)
    show = Table(options, ("graph", "ops", "share", "found", "proved", "points", "at", "cpu"))
    for name, graph in graphs(options.only):
        again = Recomputation(graph, op_seconds(graph, gpu))
        for share in map(int, options.shares.split(",")):
            began, capacity = time.process_time(), again.peak_bytes * share // 100
            bound = again.bound(capacity, SolveLimits(options.seconds))
            found = None if bound.seconds is None else again.within(capacity, SolveLimits(options.seconds))
            cpu = time.process_time() - began
            least = "nothing fits" if bound.seconds is None else percent(bound.seconds, again.seconds)
            best = percent(found.extra_seconds, again.seconds) if found else "none"
            gap = 100 * (found.extra_seconds - (bound.seconds or 0.0)) / again.seconds if found else 0.0
            points = f"{gap:.2f}" if found else "-"
            show.row(name, len(graph.ops), f"{share} %", best, least, points, bound.proof.op, f"{cpu:.1f}")


def offloaded(options: argparse.Namespace) -> None:
    gpu = accelerator(options.device)
    show = Table(options, ("graph", "ops", "share", "run again", "with copies", "proved", "copied", "cpu"))
    for name, graph in graphs(options.only):
        times, state = modelled_times(graph, gpu), state_bytes_of(graph)
        for share in map(int, options.shares.split(",")):
            began, arena = time.process_time(), peak_in_order(graph) * share // 100
            only = [StageName.RECOMPUTE, StageName.OFFLOAD]
            limits = SolveLimits(options.seconds)
            fitted = fit_graph(graph, state + arena, only, times=times, limits=limits)
            cpu = time.process_time() - began
            found = {stage.name: stage for stage in fitted.stages if stage.plan.arena_bytes <= arena}
            words = ["none" if each not in found else took(found[each]) for each in only]
            last = fitted.stages[-1]
            bound = last.time.bound if last.time and last.name is StageName.OFFLOAD else None
            least = "" if bound is None else f"+{100 * bound:.2f} %"
            copied = format_bytes(last.copied_bytes)
            show.row(name, len(graph.ops), f"{share} %", *words, least, copied, f"{cpu:.1f}")


def took(stage: Stage) -> str:
    return f"+{100 * stage.time.extra:.2f} %" if stage.time else "+0.00 %"


def knob(options: argparse.Namespace) -> None:
    gpu = accelerator(options.device)
    show = Table(options, ("model", "budget", "bytes", "torch", "ours", "proved", "ours less torch's"))
    models: dict[str, Callable[[], Built]] = {"bert of 4": small_bert}
    models |= {name: partial(model, name) for name in (*NAMES, "u-net")}
    for name, build in models.items():
        if not name.startswith(tuple(options.only.split(","))):
            continue
        base = joint(build(), None)
        times = op_seconds(base, gpu)
        again, whole = Recomputation(base, times), sum(times)
        for budget in BUDGETS:
            graph = joint(build(), budget)
            nbytes, extra = least_peak(graph), sum(op_seconds(graph, gpu)) - whole
            found = again.within(nbytes, SolveLimits(options.seconds))
            bound = again.bound(nbytes, SolveLimits(options.seconds)).seconds
            ours = percent(found.extra_seconds, whole) if found else "none"
            less = f"{100 * (found.extra_seconds - extra) / whole:+.2f}" if found else "-"
            least = "nothing fits" if bound is None else percent(bound, whole)
            show.row(name, budget, format_bytes(nbytes), percent(extra, whole), ours, least, less)


def joint(built: Built, budget: float | None) -> Graph:
    """Forward and backward pass as AOTAutograd cuts them: by default, or by torch's knob."""
    from torch._functorch import config

    from memplan_engine import capture_training

    if budget is not None:
        with config.patch(activation_memory_budget=budget):
            return capture_training(built[0], *built[1:], partition="min_cut").joint
    return without_unread(capture_training(built[0], *built[1:], partition="default").joint)


def moccasin(options: argparse.Namespace) -> None:
    """Ops take a nanosecond a byte of what they make, as no times are published with the instances."""
    show = Table(options, ("graph", "ops", "share", "by order", "found", "proved", "points", "cpu"))
    for graph in moccasin_instances(options.moccasin):
        if not graph.name.startswith(tuple(options.only.split(","))):
            continue
        peak = peak_in_order(graph)
        size = {tensor.name: tensor.nbytes for tensor in graph.tensors}
        times = [1e-9 * sum(size[name] for name in op.outputs) for op in graph.ops]
        names = dict(zip((op.name for op in graph.ops), times, strict=True))
        for share in map(int, options.shares.split(",")):
            began, capacity = time.process_time(), peak * share // 100
            order = reorder(graph, SolveLimits(options.seconds)).graph
            both = [Recomputation(each, [names[op.name] for op in each.ops]) for each in (order, graph)]
            again = both[0]
            bound = again.bound(capacity, SolveLimits(options.seconds)).seconds
            tried = [each.within(capacity, SolveLimits(options.seconds)) for each in both]
            found = min((each for each in tried if each), key=lambda each: each.extra_seconds, default=None)
            cpu = time.process_time() - began
            by_order = f"{100 * again.peak_bytes / peak:.1f} %"
            best = percent(found.extra_seconds, again.seconds) if found else "none"
            least = "nothing fits" if bound is None else percent(bound, again.seconds)
            gap = f"{100 * (found.extra_seconds - (bound or 0)) / again.seconds:.2f}" if found else "-"
            show.row(graph.name, len(graph.ops), f"{share} %", by_order, best, least, gap, f"{cpu:.1f}")


class Table:
    """Rows as they come."""

    def __init__(self, options: argparse.Namespace, headings: tuple[str, ...]) -> None:
        self.begin, self.end = ("| ", " |") if options.markdown else ("", "  ")
        self.row(*headings)
        if options.markdown:
            self.row(*["-"] * len(headings))

    def row(self, *cells: object) -> None:
        print(self.begin + " | ".join(map(str, cells)) + self.end, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="a100-80")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--shares", default="80,60")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--knob", action="store_true")
    parser.add_argument("--moccasin", metavar="SOURCE")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_recompute_kernels()
    asked = ((options.moccasin, moccasin), (options.knob, knob), (options.offload, offloaded))
    next((each for chosen, each in asked if chosen), shares)(options)


if __name__ == "__main__":
    main()
