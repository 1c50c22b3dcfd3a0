"""Recomputation: the time that a schedule was modelled to take by measured costs, and what it really takes.

    python -m benchmarks recompute_measured [--only NAMES] [--shares 50,40] [--turns 40] [--markdown]

Training steps on this CPU, one thread. Ops are timed as by `memplan run --profile`; with these costs a
schedule is found within so large a share of the arena. "modelled" is the time of the ops that run again, as a
share of that of all ops. "measured" is how much longer the rewritten program runs than the captured one: both
warmed up, by turns, CPU seconds, the median of the quotients of all turns; with freed memory kept by the
process, and with glibc as it is, where what has been freed goes back to the system and pages are handed out
anew: fewer of them for a program that needs fewer bytes. "off" is measured less modelled, over modelled.
"again" is what the ops that run again take by themselves, timed in the rewritten program, over what was
modelled; "others" how much less or more all others take there: what they read may be in the cache still.
Each model runs in a process of its own, as settings of the allocator stay.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.recompute import Table  # noqa: E402
from memplan_engine import fit_graph, fitted_program  # noqa: E402
from memplan_engine.analysis.op_costs import OpTimes  # noqa: E402
from memplan_engine.fitting.fitted import StageName, state_bytes_of  # noqa: E402
from memplan_engine.runtime.loading import load_step  # noqa: E402
from memplan_engine.runtime.program import Program  # noqa: E402
from memplan_engine.runtime.trial.bench import time_ops  # noqa: E402
from memplan_engine.runtime.trial.equality import restoring, written_tensors  # noqa: E402
from memplan_engine.runtime.trial.kept_memory import kept_memory  # noqa: E402

ONLY = (StageName.IN_PLACE, StageName.REORDER, StageName.GRADIENTS, StageName.RECOMPUTE)
WARMUP = 3


class Chain(nn.Module):
    """Layers one behind the other, added to what they read where `residual`."""

    def __init__(self, layers: list[nn.Module], residual: bool = False) -> None:
        super().__init__()
        self.layers, self.residual = nn.ModuleList(layers), residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x) if self.residual else layer(x)
        return x


def products() -> tuple[nn.Module, torch.Tensor]:
    """Six layers of products, 256 and 1,024 wide."""
    layer = lambda: nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))  # noqa: E731
    return Chain([layer() for _ in range(6)], residual=True), torch.rand(1024, 256)


def pictures() -> tuple[nn.Module, torch.Tensor]:
    """Five convolutions of pictures of 48 × 48."""
    pairs = [(3, 32), (32, 32), (32, 64), (64, 64), (64, 64)]
    layers = [nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU()) for i, o in pairs]
    return Chain(list(layers)), torch.rand(8, 3, 48, 48)


def encoder() -> tuple[nn.Module, torch.Tensor]:
    """Four layers of a transformer, 128 wide, without dropout."""
    layer = lambda: nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)  # noqa: E731
    return Chain([layer() for _ in range(4)]), torch.rand(8, 128, 128)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "products": products,
    "pictures": pictures,
    "encoder": encoder,
}


def square(y: torch.Tensor) -> torch.Tensor:
    return y.square().mean()


def longer(one: Program, other: Program, x: torch.Tensor, restore: Callable[[], None], turns: int) -> float:
    """How much longer `other` takes than `one`, as a share."""
    quotients = []
    for turn in range(-WARMUP, turns):
        spent = {}
        for program in (one, other)[:: 1 if turn % 2 else -1]:
            restore()
            begun = time.process_time()
            program.run((x,))
            spent[id(program)] = time.process_time() - begun
        if turn >= 0:
            quotients.append(spent[id(other)] / spent[id(one)])
    return statistics.median(quotients) - 1


def measure(name: str, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = MODELS[name]()
    program = load_step(model.train(), (x,), optimizer="sgd", loss=square)
    graph, flat = program.graph, program.inputs((x,))
    before = fit_graph(graph, None, ONLY[:-1]).best.plan.arena_bytes
    with restoring(written_tensors(program, flat), 0) as restore:
        for share in map(int, options.shares.split(",")):
            settings: list[Any] = [nullcontext(), kept_memory()]
            with kept_memory():
                seconds = time_ops(program.module, flat, restore)
            costs = OpTimes({op.name: seconds.get(op.name, 0.0) for op in graph.ops}, "", measured=True)
            fitted = fit_graph(graph, state_bytes_of(graph) + before * share // 100, ONLY, times=costs)
            stage = fitted.again
            if stage is None or stage.time is None or not stage.time.extra:
                continue
            other = fitted_program(program, stage.rewritten)
            found = []
            for setting in settings:
                with setting:
                    found.append(longer(program, other, x, restore, options.turns))
            usual, kept = found
            modelled = stage.time.extra
            off = f"{100 * (kept - modelled) / modelled:+.0f} %"
            cells = [f"{100 * each:+.2f} %" for each in (modelled, kept, usual)]
            with kept_memory():
                own, others = _shares(time_ops(other.module, flat, restore), sum(seconds.values()))
            parts = [f"{own / modelled:.2f}", f"{100 * (others - 1):+.2f} %"]
            again = len(stage.graph.ops) - len(graph.ops)
            options.show.row(name, len(graph.ops), f"{share} %", again, *cells[:2], off, *parts, cells[2])


def _shares(seconds: dict[str, float], before: float) -> tuple[float, float]:
    """What the ops that run again take, and what the others do, as shares of the time `before`."""
    own = sum(each for name, each in seconds.items() if name.endswith("_again"))
    return own / before, (sum(seconds.values()) - own) / before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--shares", default="50,40")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    headings = (
        "model", "ops", "share", "ops again", "modelled", "measured", "off", "again", "others",
        "measured, glibc as it is",
    )  # fmt: skip
    if not options.one:
        Table(options, headings)
        for name in MODELS:
            if name.startswith(tuple(options.only.split(","))):
                subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", name], check=True)
        return
    options.show = Table.__new__(Table)
    options.show.begin, options.show.end = ("| ", " |") if options.markdown else ("", "  ")
    measure(options.one, options)


if __name__ == "__main__":
    main()
