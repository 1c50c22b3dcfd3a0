"""A network in C that runs inside the planned arena, beside the same network in NumPy."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from memplan_engine import Plan, make_plan
from memplan_engine.formats.c_code.c_files import write_c
from memplan_engine.formats.c_code.c_header import CArena
from memplan_engine.graph import Graph, Op
from memplan_engine.preparation import Preparation, prepare
from tests.formats.c_code.test_c_header import STRICT, compiler
from tests.support.graphs import make_graph

Array = NDArray[Any]
SIZE = 12
SHAPES = {
    "image": (4,),
    "conv": (16, 3, 3, 4),
    "depthwise": (3, 3, 16),
    "pointwise": (16, 16),
    "dense": (10, SIZE * SIZE * 4),
}


def graph() -> Graph:
    pixels = SIZE * SIZE
    ops = (
        Op("conv", "conv", ("image",), ("conv",)),
        Op("relu", "relu", ("conv",), ("relu",)),
        Op("depthwise", "conv", ("relu",), ("depthwise",)),
        Op("pointwise", "conv", ("depthwise",), ("pointwise",)),
        Op("add", "add", ("relu", "pointwise"), ("add",)),
        Op("pool", "pool", ("add",), ("pool",)),
        Op("dense", "linear", ("pool",), ("logits",)),
    )
    wide = dict.fromkeys(("conv", "relu", "depthwise", "pointwise", "add"), pixels * 16)
    return make_graph(
        ops,
        {"image": pixels * 4, **wide, "pool": pixels * 4, "logits": 10},
        inputs=("image",),
        outputs=("logits",),
    )


def narrowed(sums: Array, shift: int) -> Array:
    return np.clip((sums.astype(np.int64) + (1 << (shift - 1))) >> shift, -128, 127)


def reference(tensors: dict[str, Array]) -> Array:
    def windows(x: Array) -> Array:
        """(size, size, channels, 3, 3)"""
        return sliding_window_view(np.pad(x, ((1, 1), (1, 1), (0, 0))), (3, 3), (0, 1))

    conv = narrowed(np.einsum("yxihw,ohwi->yxo", windows(tensors["image"]), tensors["conv"]), 8)
    relu = conv.clip(0)
    deep = narrowed(np.einsum("yxchw,hwc->yxc", windows(relu), tensors["depthwise"]), 6)
    point = narrowed(deep @ tensors["pointwise"].T, 7)
    pool = narrowed(relu + point, 1).reshape(SIZE // 2, 2, SIZE // 2, 2, 16).max(axis=(1, 3))
    return narrowed(tensors["dense"] @ pool.ravel(), 9)


def drawn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes = {**SHAPES, "image": (SIZE, SIZE, 4)}
    return {name: rng.integers(-128, 128, shape) for name, shape in shapes.items()}


def built(plan: Plan, tensors: dict[str, Array], name: str, folder: Path) -> str:
    """What the program says, compiled by the compiler `name`."""
    write_c([CArena("arena", plan)], folder / "net.h", title="a small network")
    (folder / "plan.h").write_text((folder / "net.h").read_text())
    rows = [f"#define SIZE {SIZE}", "#include <stdint.h>"]
    for tensor, values in tensors.items():
        rows.append(f"static const int8_t {tensor.upper()}[] = {{{','.join(map(str, values.ravel()))}}};")
    (folder / "weights.h").write_text("\n".join([*rows, ""]))
    source = Path(__file__).with_name("network.c")
    command = [
        compiler(name),
        "-std=c11",
        "-O1",
        *STRICT,
        "-I",
        str(folder),
        str(source),
        "-o",
        str(folder / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return subprocess.run([str(folder / name)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_it_gives_what_numpy_gives_inside_the_arena(name: str, tmp_path: Path) -> None:
    plan = make_plan(prepare(graph(), Preparation(plan_inputs=True, alignment=16)))
    # Two of the wide tensors at a time, and a third while they are added.
    assert plan.arena_bytes == 3 * SIZE * SIZE * 16
    assert plan.optimal
    for seed in range(2):
        tensors = drawn(seed)
        *logits, plan_id = built(plan, tensors, name, tmp_path).split()
        expected = reference(tensors).tolist()
        assert [int(each) for each in logits] == expected
        assert len(set(expected)) > 3
        header = (tmp_path / "net.h").read_text()
        assert f'NET_PLAN_SHA256 "{int(plan_id, 16):08x}' in header
