"""GPUs as data: the presets that the issue names, each with its figures and where they come from."""

from __future__ import annotations

import pytest

from memplan_engine.accelerators.presets import CONTEXT, GIB, MIB, NCCL, PRESETS, accelerator, blas_workspace
from memplan_engine.errors import InputError

NAMES = ["rtx4090", "a100-40", "a100-80", "h100-80", "h100-96", "h200", "b200", "mi300x"]


def test_every_preset_is_there_and_says_where_its_figures_come_from() -> None:
    assert list(PRESETS) == NAMES
    for gpu in PRESETS.values():
        assert gpu.nominal_source
        assert gpu.usable_source
        # The makers count in GB, devices in GiB: 80 GB of HBM are 80 GiB of which the driver keeps some.
        assert 0.96 * gpu.nominal_bytes < gpu.usable_bytes < 1.08 * gpu.nominal_bytes


def test_a_preset_by_hand() -> None:
    h100 = accelerator("h100-80")
    assert h100.nominal_bytes == 80_000_000_000
    assert h100.usable_bytes == 7911 * GIB // 100
    assert (h100.architecture, h100.capability) == ("sm_90", (9, 0))
    assert accelerator("b200").capability == (10, 0)
    assert accelerator("mi300x").capability is None


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'h900', expected one of rtx4090, a100-40, .*mi300x"):
        accelerator("h900")


def test_workspaces_depend_on_the_architecture() -> None:
    assert blas_workspace(accelerator("a100-40")).least_bytes == 8_519_680
    assert blas_workspace(accelerator("h200")).least_bytes == 32 * MIB
    anything = blas_workspace(None)
    assert (anything.least_bytes, anything.most_bytes) == (8_519_680, 204 * MIB)


def test_ranges_are_ranges() -> None:
    for overhead in (CONTEXT, NCCL, *map(blas_workspace, PRESETS.values())):
        assert 0 < overhead.least_bytes < overhead.most_bytes
        assert overhead.source
