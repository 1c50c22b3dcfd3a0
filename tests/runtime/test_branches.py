"""Comparisons of assumed numbers: which leave a doubt, against real runs where they end both ways."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import torch

from memplan_engine import InputError, observe_fake, observed_peak
from memplan_engine.recordings.observed_flow import Flow
from memplan_engine.runtime.recorder.saved_files import keeping_checkpoints
from memplan_engine.scope import Basis
from tests.support.measured import measure_call

TEXT = """\
model = torch.nn.Linear(2, 2)
best, bad, total, kept, losses = start, 0, 0.0, None, []
for step in range(2):
    out = x * 2
    loss = out.square().mean()
    value = loss.item()
{body}
"""
NUMBERS = [
    "if value < best:\n    best, bad = value, 0\nelse:\n    bad += 1",
    "if loss.item() < best: best = loss.item()",
    "if step % 2 == 0 and value < best:\n    best = value",
    "if value < best:\n    print(f'{value:.2f}', round(value, 2))\nelif step > 3:\n    pass",
    "if value < best:\n    logger.info('better: %s', value)",
    "best = min(best, value)\nprint(best)",
    "total += value\nif total / (step + 1) < best:\n    best = total / (step + 1)",
    "best = value if value < best else best",
    "losses.append(value)\nprint(max(losses), sorted(losses)[0], int(value * 100))",
    "if loss < best: best = loss.item()",
    "if loss.detach() < best: print('better')",
    "if (out > best).any(): print('more')",
    "if value < best:\n    best = value\n    torch.save({'best': best, 'model': model.state_dict()}, path)",
]
HOLDING = [
    "if value < best: kept = torch.zeros(99, 99)",
    "if value < best: kept = out + 1",
    "if value < best: out = 0\nkept = torch.zeros(99, 99)",
    "if value < best:\n    bad += 1\nif bad > 0:\n    torch.zeros(99, 99)",
    "best = min(best, value)\nkept = torch.zeros(9, 9) if best > 0 else 1",
    "if value < best and torch.zeros(99, 99).sum() == 0:\n    print('better')",
    "if value > best:\n    print('worse')\nelif torch.zeros(99, 99).sum() == 0:\n    pass",
    "if loss.detach() < best: torch.zeros(99, 99)",
    "if (out > best).all(): torch.zeros(99, 99)",
]
UNSURE = [
    "if value < best: break",
    "if value < best: losses.append(value)",
    "if value < best: kept = helper(value)",
    "kept = [value < best]",
    "while value < best: best = 0.0",
    "if value < best: step = step\nkept = torch.zeros(step)",
]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, float], Callable[[], None]]:
    """The loop of TEXT with a body, and what `best` is at its start, as a function."""

    def made(body: str, start: float) -> Callable[[], None]:
        path = tmp_path / "train.py"
        path.write_text(TEXT.format(body=indent(body, "    ")))
        code = compile(path.read_text(), str(path), "exec")
        names: dict[str, Any] = {
            "torch": torch,
            "start": start,
            "logger": logging.getLogger("train"),
            "helper": lambda value: value,
        }
        # The checkpoint's folder is there.
        names |= {"path": str(tmp_path / "best.pt")}

        def run() -> None:
            exec(code, {**names, "x": torch.rand(4, 8)})

        return run

    return made


def flow_of(run: Callable[[], None]) -> tuple[Flow, int]:
    with keeping_checkpoints():
        seen = observe_fake(run)
    assert seen.flow is not None
    return seen.flow, observed_peak(seen)[0]


def real_peaks(script: Any, body: str) -> set[int]:
    """The peaks of real runs in which every comparison ends one way, and the other."""
    return {measure_call(script(body, start)) for start in (-1e9, 1e9)}


@pytest.mark.parametrize("body", NUMBERS)
def test_what_only_numbers_depend_on_is_in_no_doubt(body: str, script: Any) -> None:
    flow, peak = flow_of(script(body, 2.0))
    assert any("compared" in note or "asked for" in note for note in flow.assumed)
    assert flow.doubts == ()
    assert real_peaks(script, body) == {peak}


@pytest.mark.parametrize("body", HOLDING)
def test_what_tensors_depend_on_is_in_doubt(body: str, script: Any) -> None:
    flow, _ = flow_of(script(body, 2.0))
    assert flow.doubts
    assert set(flow.doubts) <= set(flow.assumed)
    assert len(real_peaks(script, body)) == 2


@pytest.mark.parametrize("body", UNSURE)
def test_what_the_source_does_not_show_is_in_doubt(body: str, script: Any) -> None:
    assert flow_of(script(body, 2.0))[0].doubts, body


def test_a_loop_that_a_tensor_ends_is_refused_with_its_line(script: Any) -> None:
    for body in ("s = loss.detach()\nwhile s > 0.1: s = s / 2", "while loss.detach(): pass"):
        with pytest.raises(InputError, match=r"train\.py:\d+, which is not known"):
            flow_of(script(body, 2.0))


def test_the_assumption_that_decides_is_named_first() -> None:
    basis = Basis(assumed=("a", "b", "c"), doubts=("b",))
    assert basis.assumed_words == ("b (a run may hold more or less)", "a", "c")
    assert basis.remarks == tuple(f"assumed: {each}" for each in basis.assumed_words)
