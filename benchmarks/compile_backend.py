"""The backend of torch.compile beside eager mode and torch's `activation_memory_budget`, in one run.

    python -m benchmarks compile_backend [--only NAMES] [--budgets 0.8,0.6,0.5] [--steps 3] [--markdown]

Training steps (forward and backward pass with the loss, without an optimizer) of a BERT and a GPT-2 of four
layers, made by transformers from their configurations, and of a ResNet for 32 × 32 pixels, on the CPU.
"live" is the peak of the storages that operators give back, below autograd, "allocated" that of torch's CPU
allocator, kernels' scratch included: both are what a real step took, watched from outside (`observe`);
weights and inputs are there before and count in neither, gradients do. "said" is what the backend said
beforehand. "bits" says whether loss, gradients and buffers are those of eager mode. "step" is the fastest of
--steps, one thread; "compiled" what the first call took beyond that.

The knob is torch's min-cut partitioner on the same graph, as `aot_eager` runs it (nothing is fused), with
`activation_memory_budget` as given.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.recompute import Table  # noqa: E402
from memplan_engine import CompiledGraph, memplan_backend, observe  # noqa: E402
from memplan_engine.recordings.observation import Level, observed_peak  # noqa: E402
from memplan_engine.units import format_bytes  # noqa: E402

Step = Callable[[], torch.Tensor]
Given = dict[str, torch.Tensor]
KNOB = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)


class Block(nn.Module):
    """He, Zhang, Ren and Sun (2016), two convolutions around a shortcut."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(made) for _ in range(2))
        short = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))
        self.short = short if given != made else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[1](self.second(self.relu(self.norms[0](self.first(x)))))
        return self.relu(y + self.short(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
        widths = [(16, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
        blocks = [Block(given, made, 1 + (given != made)) for given, made in widths]
        self.layers = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(x), labels)


class Loss(nn.Module):
    """What a model of transformers calls its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **given: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(**given).loss
        return loss


def bert() -> tuple[nn.Module, Given]:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    words = torch.randint(1000, (8, 128))
    model = BertForMaskedLM(BertConfig(vocab_size=1000, **sizes))
    return Loss(model), {"input_ids": words, "labels": words}


def gpt2() -> tuple[nn.Module, Given]:
    from transformers import GPT2Config, GPT2LMHeadModel

    words = torch.randint(1000, (8, 128))
    config = GPT2Config(vocab_size=1000, n_positions=128, n_embd=256, n_layer=4, n_head=4, use_cache=False)
    return Loss(GPT2LMHeadModel(config)), {"input_ids": words, "labels": words}


def resnet() -> tuple[nn.Module, Given]:
    return ResNet(), {"x": torch.randn(64, 3, 32, 32), "labels": torch.randint(10, (64,))}


MODELS = {"bert": bert, "gpt2": gpt2, "resnet": resnet}


def by_knob(budget: float) -> Callable[..., Any]:
    """The backend that cuts as torch's knob does and runs the halves as they are."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def cut(*args: Any, **kwargs: Any) -> Any:
        with config.patch(activation_memory_budget=budget):
            return min_cut_rematerialization_partition(*args, **kwargs)

    return aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, inference_compiler=boxed_nop, partition_fn=cut
    )


def ways(budgets: list[float], knob: bool) -> Iterator[tuple[str, Callable[..., Any] | None, dict[str, Any]]]:
    yield "eager", None, {}
    yield "memplan", memplan_backend, {}
    for budget in budgets:
        yield f"memplan, budget {budget:g}", memplan_backend, {"budget": budget}
    for budget in KNOB if knob else ():
        yield f"torch's knob, {budget:g}", by_knob(budget), {}


def state_after(model: nn.Module, step: Step) -> list[torch.Tensor]:
    """Loss, gradients and buffers after one step with the seed 1."""
    torch.manual_seed(1)
    model.zero_grad()
    loss = step().detach()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return [loss, *gradients, *(buffer.clone() for buffer in model.buffers())]


def run(name: str, options: argparse.Namespace, show: Table) -> None:
    torch.manual_seed(0)
    built, given = MODELS[name]()
    expected: list[torch.Tensor] = []
    for way, backend, asked in ways(options.budgets, options.knob):
        torch._dynamo.reset()
        model, reports = copy.deepcopy(built).train(), list[CompiledGraph]()
        call: Any = model
        if backend is not None:
            more: dict[str, Any] = (
                {"options": {**asked, "on_report": reports.append}} if backend is memplan_backend else {}
            )
            call = torch.compile(model, backend=backend, **more)

        def step(call: Any = call) -> torch.Tensor:
            loss: torch.Tensor = call(**given)
            loss.backward()
            return loss

        began = time.perf_counter()
        try:
            state = state_after(model, step)
        except RuntimeError as error:
            show.row(name, way, "", "", "", f"none: {str(error).split(':')[0]}", "", "")
            continue
        first = time.perf_counter() - began
        expected = expected or state
        model.zero_grad()
        seen = observe(step)
        live, allocated = (observed_peak(seen, level)[0] for level in (Level.DISPATCH, Level.ALLOCATOR))
        fastest = min(timed(model, step) for _ in range(options.steps))
        same = len(state) == len(expected) and all(map(torch.equal, state, expected))
        said = max((report.peak_after for report in reports), default=0)
        reasons = [report.reason for report in reports if report.reason]
        show.row(
            name, way, *map(format_bytes, (live, allocated)), format_bytes(said) if said else "",
            "those of eager" if same else "others", f"{fastest:.3f} s", f"{max(0.0, first - fastest):.1f} s",
            *reasons,
        )  # fmt: skip


def timed(model: nn.Module, step: Step) -> float:
    model.zero_grad()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--budgets", type=lambda text: [float(part) for part in text.split(",")])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-knob", dest="knob", action="store_false")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    options.budgets = options.budgets or [0.8, 0.6, 0.5]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    show = Table(options, ("model", "way", "live", "allocated", "said", "bits", "step", "compiled"))
    for name in options.only.split(","):
        run(name, options, show)


if __name__ == "__main__":
    main()
