"""Modules in checkpoints: which are wrapped, what that comes to, and the Python that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import Graph, capture_step
from memplan_engine.advice.checkpoint_code import checkpoint_code, with_checkpoints
from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.fitting.wrapping import Wrapping, find_wrapping
from memplan_engine.op_kinds.generators import GENERATOR_BYTES
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.runtime.trial.recapture import recapture

NET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)).sigmoid())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(16, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build():
    return {"model": Net(), "args": (torch.rand(256, 16),), "loss": lambda y: y.square().mean()}
"""


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(NET, found)
    made: dict[str, Any] = found["build"]()
    return made


@pytest.fixture(scope="module")
def step(built: dict[str, Any]) -> Graph:
    return capture_step(built["model"], built["args"], loss=built["loss"], optimizer="sgd")


def even(graph: Graph) -> OpTimes:
    """A microsecond for each op."""
    return OpTimes({op.name: 1e-6 for op in graph.ops}, "even")


def test_as_few_layers_are_wrapped_as_do(step: Graph) -> None:
    """Of each layer 256 × 64 × 4 B of three results are kept: 192 KiB. The last one that is wrapped is there
    again in the backward pass."""
    before = peak_in_order(step)
    counts = []
    for layers in (1, 2):
        found = find_wrapping(step, even(step), before - layers * 3 * 256 * 64 * 4)
        assert found is not None
        assert found.pattern == "layers.*"
        assert found.of == 4
        assert found.live_bytes <= before - layers * 3 * 256 * 64 * 4
        assert found.live_bytes == peak_in_order(found.graph)
        assert check_recompute(step, found.graph) == []
        again = len(found.graph.ops) - len(step.ops)
        assert found.extra_seconds == pytest.approx(1e-6 * again)
        counts.append(len(found.modules))
    assert counts == [2, 3]


def test_where_none_comes_so_low_the_lowest_is_given(step: Graph) -> None:
    found = find_wrapping(step, even(step), 0)
    assert found is not None
    assert len(found.modules) == 4
    assert 0 < found.live_bytes < peak_in_order(step) / 2


def test_batch_norm_and_what_is_called_twice_are_not_wrapped() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 16)
            self.act = nn.Sequential(nn.GELU(), nn.Sigmoid())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.second(self.act(self.norm(self.first(x)))))

    graph = capture_step(
        Twice().train(), (torch.rand(64, 16),), loss=lambda y: y.square().mean(), optimizer="sgd"
    )
    found = find_wrapping(graph, even(graph), 0)
    assert found is None or not {"norm", "act", "act.0", "act.1"} & set(found.modules)


def test_a_graph_without_a_backward_pass_has_none(step: Graph) -> None:
    forward = tuple(op for op in step.ops if op.phase == "forward")
    assert find_wrapping(replace(step, ops=forward), even(step), 0) is None


def wrapping(*modules: str) -> Wrapping:
    return Wrapping(modules, (), len(modules), None, 0, 1.0, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("modules", "names"),
    [
        (("h.0", "h.1"), '[f"h.{i}" for i in range(2)]'),
        (("a.1.h.0.b", "a.1.h.1.b", "a.1.h.2.b"), '[f"a.1.h.{i}.b" for i in range(3)]'),
        (("h.1", "h.2"), '["h.1", "h.2"]'),
        (("s.0.l.0", "s.0.l.1", "s.1.l.0"), '["s.0.l.0", "s.0.l.1", "s.1.l.0"]'),
        (("head",), '["head"]'),
    ],
)
def test_the_code_names_each_module(modules: tuple[str, ...], names: str) -> None:
    code = checkpoint_code(wrapping(*modules))
    assert f"for name in {names}:" in code
    assert eval(names) == list(modules)


def test_the_code_runs_and_gives_the_same_with_fewer_bytes(
    built: dict[str, Any], step: Graph, tmp_path: Path
) -> None:
    """As people would: pasted behind the factory, run and captured again, with the eager run beside it."""
    found = find_wrapping(step, even(step), peak_in_order(step) // 2)
    assert found is not None
    file = tmp_path / "net.py"
    file.write_text(NET)
    (again,) = recapture(f"{file}:build", [with_checkpoints(NET, "build", found)], {"optimizer": "sgd"})
    assert again.same, again.wrong
    assert again.before == peak_in_order(step)
    assert again.after == pytest.approx(found.live_bytes, rel=0.06)
    assert again.eager_before is not None
    assert again.eager_after is not None
    assert again.eager_after < 0.7 * again.eager_before


def test_the_code_keeps_the_names_of_parameters(built: dict[str, Any], step: Graph) -> None:
    found = find_wrapping(step, even(step), 0)
    assert found is not None
    model = built["model"]
    names: Callable[[], list[str]] = lambda: [name for name, _ in model.named_parameters()]  # noqa: E731
    before = names()
    exec(checkpoint_code(found), {"model": model})
    assert names() == before
    model(*built["args"]).sum().backward()


DROPPING = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.2), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def build():
    return {"model": Net().train(), "args": (torch.rand(256, 16),), "loss": lambda y: y.square().mean()}
"""


def test_random_numbers_are_drawn_again_as_torch_does(tmp_path: Path) -> None:
    """The masks of dropout are not kept, in torch's checkpoints as in what is predicted."""
    made: dict[str, Any] = {}
    exec(DROPPING, made)
    built = made["build"]()
    step = capture_step(built["model"], built["args"], loss=built["loss"], optimizer="sgd")
    found = find_wrapping(step, even(step), 0)
    assert found is not None
    assert {"aten.bernoulli_"} & {op.kind for op in found.graph.ops if op.name.endswith("_again")}
    assert found.live_bytes == peak_in_order(without_states(found.graph))
    assert check_recompute(step, found.graph) == []
    file = tmp_path / "net.py"
    file.write_text(DROPPING)
    text = with_checkpoints(DROPPING, "build", found)
    (again,) = recapture(f"{file}:build", [text], {"optimizer": "sgd"})
    assert again.same, again.wrong
    assert again.after == pytest.approx(found.live_bytes, rel=0.06)


def without_states(graph: Graph) -> Graph:
    storages = tuple(
        replace(each, nbytes=0) if each.nbytes == GENERATOR_BYTES else each for each in graph.storages
    )
    return replace(graph, storages=storages)


def products_take_long(graph: Graph) -> OpTimes:
    """20 µs for each product of matrices, and 1 µs for any other op."""
    return OpTimes({op.name: 20e-6 if op.kind == "aten.addmm" else 1e-6 for op in graph.ops}, "products")


def test_a_policy_keeps_products_where_they_take_long(
    built: dict[str, Any], step: Graph, tmp_path: Path
) -> None:
    """Of each layer sigmoid runs again, for 64 KiB, and gelu for it; the products do not."""
    times, before = products_take_long(step), peak_in_order(step)
    found = find_wrapping(step, times, before - 2 * 256 * 64 * 4)
    assert found is not None
    assert found.saved[0] == "aten.addmm"
    assert found.live_bytes == peak_in_order(found.graph) <= before - 2 * 256 * 64 * 4
    again = [op.kind for op in found.graph.ops if "_again" in op.name]
    assert "aten.sigmoid" in again
    assert "aten.addmm" not in again
    assert "SAVED = {torch.ops.aten.addmm" in checkpoint_code(found)
    file = tmp_path / "net.py"
    file.write_text(NET)
    (recaptured,) = recapture(f"{file}:build", [with_checkpoints(NET, "build", found)], {"optimizer": "sgd"})
    assert recaptured.same, recaptured.wrong
    assert recaptured.before == before
    assert recaptured.after is not None
    # torch keeps what each product gives up to then, whether the backward pass reads it or not.
    assert found.live_bytes < recaptured.after <= found.live_bytes + 4 * 256 * 16 * 4
    assert recaptured.eager_before is not None
    assert recaptured.eager_after is not None
    assert recaptured.eager_after < recaptured.eager_before
