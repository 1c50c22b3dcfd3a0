"""What kernels take, predicted without a run and measured by torch's profiler in another process.

    memplan calibrate -o calibration.json
    python benchmarks/kernel_memory.py [MODEL …] [--calibration calibration.json] [--training]

"plain" is `observe_fake`, "calibrated" the same with the calibration, "measured" the most bytes that torch's
profiler (`profile_memory`) counts of one eager run beside what was there before. No model here is among the
calls that `memplan calibrate` measures.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
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

Call = tuple[nn.Module, dict[str, Any]]


def image(side: int = 224, batch: int = 1) -> dict[str, Any]:
    return {"pixel_values": torch.rand(batch, 3, side, side)}


def tokens(length: int, batch: int = 2) -> dict[str, Any]:
    ids = torch.arange(batch * length).reshape(batch, length) % 90 + 3
    return {"input_ids": ids, "labels": ids}


TEXT = {"vocab_size": 99, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 512, "max_position_embeddings": 512}  # fmt: skip
MODELS: dict[str, Callable[[], Call]] = {
    "resnet50": lambda: (t.ResNetForImageClassification(t.ResNetConfig()), image()),
    "resnet18, batch 4": lambda: (
        t.ResNetForImageClassification(
            t.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
        ),
        image(160, 4),
    ),
    "mobilenet_v2": lambda: (t.MobileNetV2ForImageClassification(t.MobileNetV2Config()), image()),
    "mobilenet_v1": lambda: (t.MobileNetV1ForImageClassification(t.MobileNetV1Config()), image()),
    "efficientnet": lambda: (
        t.EfficientNetForImageClassification(t.EfficientNetConfig(image_size=224)), image()
    ),
    "convnext": lambda: (t.ConvNextForImageClassification(t.ConvNextConfig()), image()),
    "segformer": lambda: (
        t.SegformerForSemanticSegmentation(t.SegformerConfig()), image(256)
    ),
    "vit": lambda: (
        t.ViTForImageClassification(t.ViTConfig(num_hidden_layers=3, hidden_size=192, intermediate_size=768,
                                                num_attention_heads=3)), image()
    ),
    "swin": lambda: (t.SwinForImageClassification(t.SwinConfig(depths=[1, 1, 2, 1])), image()),
    "bert": lambda: (t.BertForMaskedLM(t.BertConfig(**TEXT)), tokens(256)),
    "llama": lambda: (t.LlamaForCausalLM(t.LlamaConfig(**TEXT)), tokens(384)),
    "gpt2": lambda: (
        t.GPT2LMHeadModel(t.GPT2Config(vocab_size=99, n_positions=512, n_embd=128, n_layer=3, n_head=4)),
        tokens(512),
    ),
}  # fmt: skip


def build(name: str) -> Call:
    """The model in eval mode, and its inputs."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def loss_of(output: Any) -> torch.Tensor:
    """A loss, of whatever a model gives."""
    loss: torch.Tensor = output.loss if output.loss is not None else output.logits.float().pow(2).mean()
    return loss


def profiled(run: Callable[[], Any]) -> int:
    """The most bytes that `run()` holds beside what was there, as torch's profiler counts them."""
    gc.collect()
    gc.disable()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        result = run()
    del result
    kineto = seen.profiler.kineto_results  # type: ignore[union-attr]
    events = sorted((e.start_ns(), e.nbytes()) for e in kineto.events() if e.name() == "[memory]")
    most = held = 0
    for _, nbytes in events:
        held += nbytes
        most = max(most, held)
    return most


def measure(name: str, training: bool) -> int:
    """The measured peak of an inference, or of the second of two steps of SGD."""
    model, inputs = build(name)
    if not training:
        with torch.no_grad():
            return profiled(lambda: model(**inputs))
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> torch.Tensor:
        loss = loss_of(model(**inputs))
        loss.backward()
        optimizer.step()
        return loss

    step()
    optimizer.zero_grad()
    return profiled(step)


def predict(name: str, training: bool, path: Path) -> tuple[int, int, str]:
    """The peak without and with what kernels take, and how good that is."""
    from memplan_engine import observe_fake
    from memplan_engine.formats.memplan_json.calibration_format import load_calibration
    from memplan_engine.recordings.observed_flow import flow_peak
    from memplan_engine.torch_capture.training.torch_recipe import Recipe

    recipe = Recipe("sgd", loss=loss_of) if training else None
    model, inputs = build(name)
    peaks, words = [], ""
    for calibration in (None, load_calibration(path)):
        flow = observe_fake(model, (), inputs, recipe=recipe, name=name, calibration=calibration).flow
        assert flow is not None
        peaks.append(flow_peak(flow)[0])
        words = flow.calibration
    return peaks[0], peaks[1], words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibration", type=Path, help="of `memplan calibrate` (default: made now)")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    names = options.models or list(MODELS)
    if options.measure:
        for name in names:
            print(json.dumps({name: measure(name, options.training)}), flush=True)
        return
    command = [sys.executable, __file__, *names, "--measure"]
    command += ["--training"] * options.training
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured: dict[str, int] = {}
    for line in said.splitlines():
        if line.startswith("{"):
            measured |= json.loads(line)
    path = options.calibration
    if path is None:
        from memplan_engine.formats.memplan_json.calibration_format import write_calibration
        from memplan_engine.runtime.calibrate.measure_kernels import calibrate

        path = Path(tempfile.mkdtemp()) / "calibration.json"
        write_calibration(calibrate(), path)
    within = 0
    print(f"{'model':20} {'plain':>12} {'calibrated':>12} {'measured':>12} {'plain':>8} {'calibr.':>8}")
    for name in names:
        plain, calibrated, words = predict(name, options.training, path)
        real = measured[name]
        within += abs(calibrated / real - 1) <= 0.03
        print(
            f"{name:20} {plain:12,} {calibrated:12,} {real:12,} {plain / real - 1:+8.1%} "
            f"{calibrated / real - 1:+8.1%}  {words}",
            flush=True,
        )
    print(f"{within} of {len(names)} within 3 %")


if __name__ == "__main__":
    main()
