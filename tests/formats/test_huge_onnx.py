"""Numbers that ONNX operators take as tensors, shapes, axes, bounds and counts, at the ends of 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from memplan_engine import MemplanError, make_plan
from memplan_engine.lifetimes import to_problem
from tests.formats.onnx_models import model, node, read, value, weight

ENDS = (2**63 - 1, 2**62, 2**32, -1, -(2**63))
SHAPES: list[tuple[int | str, ...]] = [(2, 1), (1, "n"), (2**31, 2**31), (2**63 - 1, 1)]
TAKES = {
    "Reshape": "x a", "Expand": "x a", "Tile": "x a", "Pad": "x a", "ConstantOfShape": "a", "TopK": "x a",
    "Slice": "x a b", "Split": "x a", "Squeeze": "x a", "Unsqueeze": "x a", "Range": "a b c",
    "OneHot": "i a v", "Gather": "x a", "ReduceSum": "x a", "Resize": "x _ _ a", "CenterCropPad": "x a",
    "Trilu": "x a", "EyeLike": "x", "CumSum": "x a",
}  # fmt: skip
ONE_NUMBER = ["Range", "TopK", "OneHot", "Trilu", "CumSum", "Gather"]
LENGTHS = {"Pad": 4, "Squeeze": 1, "Unsqueeze": 1, "TopK": 1}


@pytest.mark.parametrize("kind", TAKES)
def test_numbers_in_tensors(tmp_path: Path, kind: str) -> None:
    refused = 0
    for shape in SHAPES:
        for numbers in [
            (1, 1),
            *((end, other) for end in ENDS for other in (end, 1)),
            *((1, e) for e in ENDS),
        ]:
            array: Any = np.resize(np.array(numbers, dtype=np.int64), LENGTHS.get(kind, 2))
            if kind in ONE_NUMBER:
                array = array[:1].reshape(() if kind != "TopK" else 1)
            weights = [
                weight("a", array),
                weight("b", array * 0 + 1),
                weight("c", np.array(1, dtype=np.int64)),
                weight("i", np.array([1, 2], dtype=np.int64)),
                weight("v", np.array([0.0, 1.0], dtype=np.float32)),
            ]
            outputs = "y q" if kind in ("TopK", "Split") else "y"
            made = model(
                [
                    node(kind, TAKES[kind], outputs),
                    node("Shape", "y", "z"),
                    node("ConstantOfShape", "z", "w"),
                ],
                [value("x", *shape)],
                [helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
                weights,
                opset=18,
            )
            try:
                make_plan(to_problem(read(tmp_path, made)), "greedy_by_size")
            except MemplanError:
                refused += 1
    # Some number is right for it, or the operator was never reached.
    assert refused < len(SHAPES) * (1 + 3 * len(ENDS))
