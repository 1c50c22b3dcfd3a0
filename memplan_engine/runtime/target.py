"""What a run is predicted for: the device, and a calibration of its kernels. Known without torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import torch_version

DEVICES = ("cpu", "cuda")
"""What a run may be predicted for."""
DEFAULT_ARCH = "sm90"
MOST_CARDS = 64
"""In one process: more devices of a kind c10 does not know (C10_COMPILE_TIME_MAX_GPUS is 120)."""
ARCHITECTURES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities of NVIDIA's cards (developer.nvidia.com/cuda-gpus) that torch's rules for attention
know: sm50 to sm121."""
_WRITTEN = re.compile(r"sm_?(\d{2,3})")


@dataclass(frozen=True, slots=True)
class Target:
    """What a run is predicted for: a `device`, the compute capability of its cards, 90 for 9.0, and how many
    there are."""

    device: str
    arch: int
    cards: int = 1


def target_of(device: str, arch: str | None, source: str, cards: int = 1) -> Target:
    """What `device` ("cpu", "cuda"), `arch` ("sm90") and a number of `cards` stand for.

    Raises
    ------
    InputError: another device, an architecture that is not known, or one for the CPU; no card, too many, or
        several for the CPU.
    """
    if device not in DEVICES:
        raise InputError(source, "device", repr(device), f"one of {', '.join(DEVICES)}")
    if arch is not None and device != "cuda":
        raise InputError(source, "arch", f"{arch!r} for the device {device!r}", "the device cuda")
    written = _WRITTEN.fullmatch(arch or DEFAULT_ARCH)
    if written is None or int(written[1]) not in ARCHITECTURES:
        known = ", ".join(f"sm{number}" for number in ARCHITECTURES)
        raise InputError(source, "arch", repr(arch), f"one of {known}")
    if not 1 <= cards <= MOST_CARDS:
        raise InputError(source, "cards", str(cards), f"1 to {MOST_CARDS}")
    if cards > 1 and device != "cuda":
        raise InputError(source, "cards", f"{cards} for the device {device!r}", "the device cuda")
    return Target(device, int(written[1]), cards)


def check_calibration(calibration: Calibration | None, device: str, source: str) -> None:
    """Raise InputError for a calibration where the kernels are those of another `device` than the CPU, or of
    another version of torch."""
    if calibration is None:
        return
    if device != "cpu":
        expected = "the device cpu, on which it was measured"
        raise InputError(source, "calibration", f"the device {device}", expected)
    measured, running = (text.partition("+")[0] for text in (calibration.machine.torch, torch_version()))
    if measured != running:
        expected = f"one by torch {running}: memplan calibrate"
        raise InputError(source, "calibration", f"one by torch {measured}", expected)
