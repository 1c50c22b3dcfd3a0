"""What ONNX Runtime holds for the tensors of a model, beside our arena for the same graph.

    python -m benchmarks onnx_runtime --python PYTHON [--only NAME …] [--markdown]

PYTHON is that of an environment with onnxruntime 1.32 or newer and NumPy. Models of transformers by their
configuration, and two of torch, are exported here; ONNX Runtime makes its own graph of each (`basic`:
constants folded, redundant nodes gone), and saves it: that graph runs there, and is planned here.

Its own profile has the figures (CPU, one thread, sequential, arena and memory pattern on), less what it held
before the first run. "blocks" are in use at the worst moment of the first, in which it allocates one by one,
without the holes between them; "pattern" in the second, where it has planned offsets by what it has seen; and
"held" is what its arena has of the system then, where chunks are as large as is asked for. "planned" is our
arena, proved by live bytes, and "in place" the one with writes in place, as ONNX Runtime has them, and joins
without copies. What its kernels need for themselves is in its figures, and not in ours; inputs and weights
are in neither.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as t
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.recompute import Table  # noqa: E402
from memplan_engine import MemplanError, load, make_plan  # noqa: E402
from memplan_engine.preparation import Preparation, prepare  # noqa: E402

CHILD = """
import json, sys
import numpy as np
import onnxruntime as ort

model, saved, folder = sys.argv[1:]
ort.set_default_logger_severity(3)
ort.create_and_register_allocator(
    ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT),
    ort.OrtArenaCfg({"arena_extend_strategy": 1}),
)
options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
options.optimized_model_filepath = saved
options.intra_op_num_threads = 1
options.enable_profiling = True
options.profile_file_prefix = folder + "/profile"
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
given = {each.name: np.ones(each.shape, kinds[each.type]) for each in session.get_inputs()}
for _ in range(2):
    session.run(None, given)
events = json.load(open(session.end_profiling()))
memory = [each["args"] for each in events if "mem_arena_held" in each.get("args", {})]
first = memory[0]
before = int(first["mem_arena_held"]) - int(first["mem_arena_held_delta"])
used_before = int(first["mem_bytes_in_use"]) - int(first["mem_in_use_delta"])
runs = memory[: len(memory) // 2], memory[len(memory) // 2 :]
peaks = [max(int(each["mem_in_use_peak"]) for each in run) - used_before for run in runs]
print(json.dumps([*peaks, int(memory[-1]["mem_arena_held"]) - before]))
"""


class Tokens(nn.Module):
    """An encoder with its one input by place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(input_ids=ids)[0]
        return found


class Unet(nn.Module):
    """Four levels down and up, with what was on the way down beside what comes up."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        wide = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(map(_twice, [3, *wide[:-1]], wide))
        self.up = nn.ModuleList(_twice(3 * narrow, narrow) for narrow in reversed(wide[:-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for block in self.down:
            x = block(x if not kept else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return x


class Branches(nn.Module):
    """Three blocks of four branches each, joined."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        kernels = (1, 3, 5, 7)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(width, width // 4, k, padding=k // 2) for k in kernels) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.cat([branch(x).relu() for branch in block.children()], 1)
        return x


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()),
    )


IMAGE, IDS = torch.rand(1, 3, 224, 224), torch.ones(1, 128, dtype=torch.long)
LAYERS: dict[str, Any] = {"num_hidden_layers": 4, "attn_implementation": "eager"}
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "ResNet-50": (lambda: t.ResNetForImageClassification(t.ResNetConfig()), IMAGE),
    "MobileNetV2": (lambda: t.MobileNetV2ForImageClassification(t.MobileNetV2Config()), IMAGE),
    "RegNet": (lambda: t.RegNetForImageClassification(t.RegNetConfig()), IMAGE),
    "ConvNeXt": (lambda: t.ConvNextForImageClassification(t.ConvNextConfig()), IMAGE),
    "SegFormer": (lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig()), IMAGE),
    "ViT, 4 layers": (lambda: t.ViTForImageClassification(t.ViTConfig(**LAYERS)), IMAGE),
    "BERT, 4 layers": (lambda: Tokens(t.BertModel(t.BertConfig(**LAYERS))), IDS),
    "DistilBERT": (
        lambda: Tokens(t.DistilBertModel(t.DistilBertConfig(attn_implementation="eager"))), IDS,
    ),
    "U-Net": (Unet, torch.rand(1, 3, 256, 256)),
    "Inception blocks": (Branches, torch.rand(1, 64, 56, 56)),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="with onnxruntime")
    parser.add_argument("--only", nargs="*", choices=MODELS, metavar="NAME", default=list(MODELS))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if options.python is None:
        print("--python PYTHON says where onnxruntime is")
        return
    columns = ("planned", "in place", "blocks", "pattern", "held", "pattern, times", "held, times")
    table = Table(options, ("model", "nodes", *columns))
    warnings.simplefilter("ignore")
    for name in options.only:
        build, given = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            model, saved = (str(Path(folder) / each) for each in ("model.onnx", "saved.onnx"))
            torch.onnx.export(build().eval(), (given,), model, dynamo=False)
            command = [options.python, "-c", CHILD, model, saved, folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: {done.stderr.strip().splitlines()[-1]}")
                continue
            try:
                graph = load(saved)
                plan = make_plan(prepare(graph, Preparation()))
                ours = make_plan(prepare(graph, Preparation(in_place=True, concat=True))).arena_bytes
            except MemplanError as error:
                print(f"{name}: {error}")
                continue
        blocks, pattern, held = json.loads(done.stdout.splitlines()[-1])
        assert plan.optimal
        figures = (plan.arena_bytes, ours, blocks, pattern, held)
        times = (f"{pattern / ours:.2f}", f"{held / ours:.2f}")
        table.row(name, len(graph.ops), *(f"{each:,}" for each in figures), *times)


if __name__ == "__main__":
    main()
