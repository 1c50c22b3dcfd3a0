"""ExecuTorch's greedy memory planning beside memplan's, on programs that its runtime then runs.

    python -m benchmarks.executorch_plans [MODEL ...]

Needs executorch 1.5 and transformers. Models have random weights and few channels; nothing is downloaded. Of
each: tensors that are planned, bytes of ExecuTorch's greedy algorithm and of memplan, the bound, the seconds
that memplan took, and whether the runtime's outputs are the same, bit for bit, with both plans. Where they
are not, which of the two differ from eager PyTorch by more than rounding.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from memplan_engine import make_plan
from memplan_engine.executorch.executorch_planner import ExecutorchPlanner
from memplan_engine.planner import hard_problem

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
ROUNDING = 1e-3
"""How far outputs of the runtime's kernels may be from those of eager PyTorch, relative to the largest."""
Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Only(nn.Module):
    """The first result of a model of transformers, of its main input."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.input = model, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The tensor that comes first."""
        return self.model(**{self.input: x}, return_dict=False)[0]  # type: ignore[no-any-return]


def of_images(kind: str, head: str, size: int = 64, **config: Any) -> Model:
    """A model of images."""
    import transformers as t

    model = getattr(t, f"{kind}{head}")(getattr(t, f"{kind}Config")(**config))
    return Only(model.eval(), "pixel_values"), (torch.randn(1, 3, size, size),)


def of_text(kind: str, head: str, length: int = 32, **config: Any) -> Model:
    """A model of text."""
    import transformers as t

    made = getattr(t, f"{kind}Config")(vocab_size=100, use_cache=False, **config)
    model = getattr(t, f"{kind}{head}")(made)
    return Only(model.eval(), "input_ids"), (torch.arange(length).reshape(1, length) % 100,)


class UNet(nn.Module):
    """Three levels down and up, with concatenations."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 8, 16, 32]
        self.down = nn.ModuleList(_twice(a, b) for a, b in pairwise(widths))
        self.up = nn.ModuleList([_twice(48, 16), _twice(24, 8)])
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, 2, h, w)."""
        kept: list[torch.Tensor] = []
        for level in self.down:
            x = level(nn.functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for level, wide in zip(self.up, kept[-2::-1], strict=True):
            grown = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([wide, grown], 1))
        return self.last(x)  # type: ignore[no-any-return]


def _twice(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())


class Dense(nn.Module):
    """Twelve layers, each of which reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(12))
        self.first = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, 56, h, w)."""
        all_of = [self.first(x)]
        for layer in self.layers:
            all_of.append(layer(torch.relu(torch.cat(all_of, 1))))
        return torch.cat(all_of, 1)


class Mixer(nn.Module):
    """An MLP over places, then over channels, four times."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.ModuleList(_mlp(64) for _ in range(4))
        self.channels = nn.ModuleList(_mlp(32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 64, 32) → the same."""
        for places, channels in zip(self.places, self.channels, strict=True):
            x = x + places(x.transpose(1, 2)).transpose(1, 2)
            x = x + channels(x)
        return x


def _mlp(width: int) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
    )


class Branches(nn.Module):
    """`count` conditions in a row; each branch has layers of its own."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(2 * count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 64) → the same; all results are read at the end."""
        results = [x]
        for yes, no in zip(self.layers[::2], self.layers[1::2], strict=True):
            results.append(
                torch.cond(
                    results[-1].sum() > 0,
                    lambda x, yes=yes: torch.relu(yes(x)) + 1,
                    lambda x, no=no: torch.tanh(no(x)),
                    (results[-1],),
                )
            )
        return sum(results[1:], results[0])


class Mapped(nn.Module):
    """A function mapped over the rows."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """(n, 64), (64,) → (n, 64)."""
        from torch._higher_order_ops.map import map as map_over

        y = torch.relu(x)
        return torch.tanh(map_over(lambda row, w: torch.relu(row + w) * torch.sin(row), y, w)) + y


MODELS: dict[str, Callable[[], Model]] = {
    "resnet50": lambda: of_images(
        "ResNet", "ForImageClassification", embedding_size=16, hidden_sizes=[32, 64, 128, 256]
    ),
    "resnet18": lambda: of_images(
        "ResNet", "ForImageClassification", embedding_size=16, hidden_sizes=[16, 32, 64, 128],
        depths=[2, 2, 2, 2], layer_type="basic",
    ),
    "mobilenet_v1": lambda: of_images("MobileNetV1", "ForImageClassification", depth_multiplier=0.25),
    "mobilenet_v2": lambda: of_images("MobileNetV2", "ForImageClassification", depth_multiplier=0.35),
    "regnet": lambda: of_images(
        "RegNet", "ForImageClassification", embedding_size=16, hidden_sizes=[16, 32, 64, 128],
        depths=[1, 2, 4, 1], groups_width=16,
    ),
    "convnext": lambda: of_images(
        "ConvNext", "ForImageClassification", hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 4, 2]
    ),
    "vit": lambda: of_images(
        "ViT", "ForImageClassification", image_size=64, patch_size=8, num_hidden_layers=4, **SMALL
    ),
    "swin": lambda: of_images(
        "Swin", "ForImageClassification", image_size=64, patch_size=4, embed_dim=16, depths=[2, 2],
        num_heads=[2, 4], window_size=4,
    ),
    "segformer": lambda: of_images(
        "Segformer", "ForSemanticSegmentation", hidden_sizes=[8, 16, 32, 64], decoder_hidden_size=32,
        depths=[1, 1, 1, 1],
    ),
    "unet": lambda: (UNet().eval(), (torch.randn(1, 3, 32, 32),)),
    "dense": lambda: (Dense().eval(), (torch.randn(1, 3, 32, 32),)),
    "mixer": lambda: (Mixer().eval(), (torch.randn(1, 64, 32),)),
    "bert": lambda: of_text("Bert", "Model", num_hidden_layers=4, **SMALL),
    "distilbert": lambda: of_text("DistilBert", "Model", dim=64, hidden_dim=128, n_heads=4, n_layers=4),
    "albert": lambda: of_text("Albert", "Model", num_hidden_layers=4, embedding_size=32, **SMALL),
    "electra": lambda: of_text("Electra", "Model", num_hidden_layers=4, embedding_size=32, **SMALL),
    "gpt2": lambda: of_text("GPT2", "LMHeadModel", n_embd=64, n_layer=4, n_head=4, n_positions=32),
    "llama": lambda: of_text("Llama", "ForCausalLM", num_hidden_layers=4, num_key_value_heads=2, **SMALL),
    "qwen2": lambda: of_text("Qwen2", "ForCausalLM", num_hidden_layers=4, num_key_value_heads=2, **SMALL),
    "one_cond": lambda: (Branches(1).eval(), (torch.randn(8, 64),)),
    "two_conds": lambda: (Branches(2).eval(), (torch.randn(8, 64),)),
    "map": lambda: (Mapped().eval(), (torch.randn(8, 64), torch.randn(64))),
}  # fmt: skip
"""A name, and what makes the model with its inputs."""


class Timed:
    """A planner, and how long its calls took, all together."""

    __name__ = "memplan"

    def __init__(self) -> None:
        self.planner, self.seconds = ExecutorchPlanner(), 0.0

    def __call__(self, *arguments: Any) -> Any:
        """As the planner's."""
        begin = time.perf_counter()
        result = self.planner(*arguments)
        self.seconds += time.perf_counter() - begin
        return result


def program_of(edge: Any, algorithm: Any) -> tuple[Any, list[int]]:
    """An ExecuTorch program and the bytes of its memories, the first of which has no planned tensors."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(MemoryPlanningAlgorithmSuite([algorithm]))
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    sizes = made.exported_program().graph_module.meta["non_const_buffer_sizes"]
    return made, [int(size) for size in sizes]


def run(program: Any, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What ExecuTorch's runtime makes of `inputs`."""
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(program.buffer).load_method("forward")
    return [each.clone() for each in method.execute(list(inputs))]


def right(outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Whether outputs are those of eager PyTorch, up to rounding."""
    return all(
        bool((a - b).abs().max() <= ROUNDING * b.abs().max()) for a, b in zip(outputs, expected, strict=True)
    )


def measure(name: str) -> str:
    """A row of the table."""
    from executorch.exir import to_edge
    from executorch.exir.memory_planning import greedy

    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    # Ops that write into planned memory refuse what is to be differentiated.
    model.requires_grad_(False)
    with torch.no_grad():
        expected = model(*inputs)
        exported = torch.export.export(model, inputs, strict=False)
    # Each from its own: making a program changes what it is made from.
    theirs, their_sizes = program_of(to_edge(exported), greedy)
    timed = Timed()
    ours, our_sizes = program_of(to_edge(exported), timed)
    results = run(theirs, inputs), run(ours, inputs)
    same = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    wrong = [
        label
        for label, each in zip(("greedy", "memplan"), results, strict=True)
        if not right(each, [expected])
    ]
    bound = sum(plan.bound.nbytes for plan in timed.planner.plans)
    if sum(our_sizes) != sum(plan.arena_bytes for plan in timed.planner.plans):
        raise AssertionError(f"{name}: the program has {our_sizes} bytes, the plans have others")
    tensors = sum(len(plan.problem) for plan in timed.planner.plans)
    saved = 1 - sum(our_sizes) / sum(their_sizes)
    outputs = ("the same" if same else "differ") + (f", {' and '.join(wrong)} wrong" if wrong else "")
    return (
        f"| {name} | {tensors} | {sum(their_sizes):,} | {sum(our_sizes):,} | {saved:.1%} | {bound:,} | "
        f"{'yes' if sum(our_sizes) == bound else f'{sum(our_sizes) / bound - 1:.2%} above'} | "
        f"{timed.seconds:.2f} | {outputs} |"
    )


def main() -> None:
    """Print the table."""
    # Loads what a search needs, which the first plan of a process waits for.
    make_plan(hard_problem(), "auto")
    print("| model | tensors | greedy, bytes | memplan, bytes | saved | bound | proved | seconds | outputs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        print(measure(name), flush=True)


if __name__ == "__main__":
    main()
