"""`memplan observe`: models that export refuses run as they are, and what they allocate is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import memplan_engine
from memplan_engine import InputError, capture, load, load_program, make_plan, observe_model
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import capture_step

MODELS = '''
import torch
from torch import nn

class Chooses(nn.Module):
    """Which way it goes, and how much it returns, depends on the data; between, the tracer is lost."""
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x):
        hidden = self.one(x)
        hidden = hidden.relu() if hidden.sum() > 1e9 else hidden.tanh()
        torch._dynamo.graph_break()
        return self.two(hidden)[: int(x.sum() / x.sum()) + 1].clone()

class Loss(Chooses):
    def forward(self, x):
        return super().forward(x).sum()

def chooses():
    return Chooses().eval(), (torch.ones(32, 8),)

def trained():
    return Loss().train(), {"x": torch.ones(32, 8)}

def fails():
    return nn.Linear(8, 4), (torch.ones(2, 3),)
'''


@pytest.fixture
def observe(memplan, tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    return lambda *arguments: memplan("observe", *arguments)


def test_a_model_that_export_refuses_is_observed_and_planned(observe, memplan):
    """By hand: 32 × 16 floats are 2,048 bytes, 32 × 4 are 512. At the second linear layer its input and its
    output are there; of the clone 2 rows of 4 floats stay."""
    code, _, err = memplan("capture", "models.py:chooses", "-o", "graph.json")
    assert code == 2
    assert "memplan observe" in err
    code, out, _ = observe("models.py:chooses", "-o", "run.json")
    assert code == 0
    figures = {line[:16].strip(): line[16:] for line in out.splitlines()}
    assert figures["run"].startswith("chooses, ")
    assert figures["tensors peak"].startswith("4 KiB (4,096 B) during tanh: ")
    assert figures["at the end"].startswith("32 B of")
    assert "models.py:" in out
    code, out, _ = memplan("plan", "run.json", "--json")
    assert code == 0
    planned = json.loads(out)
    assert planned["lower_bound_bytes"] >= 4096
    assert load("run.json").name == "chooses"


def test_observed_figures_for_machines(observe):
    code, out, _ = observe("models.py:chooses", "--json")
    assert code == 0
    said = json.loads(out)
    tensors = next(peak for peak in said["peaks"] if peak["level"] == "dispatch")
    counted = "storages of tensors that operators returned"
    assert tensors == {
        "level": "dispatch", "counted": counted, "peak_bytes": 4096, "op": "tanh", "after_bytes": 32,
    }  # fmt: skip
    tanh = next(op for op in said["ops"] if op["name"] == "tanh")
    assert tanh["kind"] == "aten.tanh"
    assert tanh["dispatch_bytes"] == 4096
    assert max(op["allocator_bytes"] for op in said["ops"]) == said["peaks"][0]["peak_bytes"]


def test_a_training_step_is_observed_as_eager_takes_it(observe):
    """By hand: gradients of 8 × 16 + 16 + 16 × 4 + 4 parameters and the loss are 852 bytes at the end."""
    for optimizer in ("sgd", "adam"):
        code, out, _ = observe("models.py:trained", "--training", "step", "--optimizer", optimizer, "--json")
        assert code == 0
        said = json.loads(out)
        tensors = next(peak for peak in said["peaks"] if peak["level"] == "dispatch")
        assert tensors["after_bytes"] == 4 * (8 * 16 + 16 + 16 * 4 + 4) + 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["models.py:fails"], "fails: run: found RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        (["models.py:nothing"], "no 'nothing' in it"),
        (["models.py:chooses", "--optimizer", "adam"], "--optimizer: found no --training"),
        (["models.py:chooses", "-o", "run.csv"], "run.csv"),
    ],
)
def test_what_cannot_be_observed_is_one_line(observe, line, message):
    code, out, err = observe(*line)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("run.csv").exists()


class Depends(torch.nn.Module):
    """Goes by its data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y.sum() if y.sum() > -1e9 else x.sum()


@pytest.mark.parametrize("how", [capture, load_program, capture_step])
def test_every_refusal_names_the_way_out(how):
    with pytest.raises(InputError, match=r"run .*\(memplan observe FACTORY.*observe_model\)"):
        how(Depends(), (torch.ones(2, 4),))
    assert len(observe_model(Depends(), (torch.ones(2, 4),)).ops) > 2
    assert len(observe_model(Depends(), (torch.ones(2, 4),), recipe=Recipe("adamw")).ops) > 5


def test_an_unknown_optimizer_is_named():
    with pytest.raises(InputError, match="optimizer: found 'lion', expected one of sgd, adam, adamw"):
        observe_model(Depends(), (torch.ones(2, 4),), recipe=Recipe("lion"))


class Flexible(torch.nn.Module):
    """Attention that torch compiles by itself."""

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import flex_attention

        found: torch.Tensor = flex_attention(q, q, q, score_mod=lambda score, b, h, row, column: score + row)
        return found


def test_flex_attention_is_observed_and_can_be_captured_afterwards():
    """Under a mode of ours torch would not compile it, and never again: captures failed from then on."""
    q = torch.randn(1, 2, 32, 8)
    assert len(observe_model(Flexible(), (q,)).ops) > 3
    program = load_program(Flexible(), (q,))
    assert make_plan(program.graph, "greedy_by_size").arena_bytes > 0
    with torch.no_grad():
        assert torch.equal(program.run((q,)), Flexible()(q))


class Catches(torch.nn.Module):
    """Tries what fails, and does something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = x.new_empty(3).copy_(x)
        except RuntimeError:
            x = x.neg()
        return x.abs()


def test_what_a_model_catches_does_not_upset_the_observer():
    seen = observe_model(Catches(), (torch.ones(1000),))
    assert seen.ops.names[-3:] == ("copy_", "neg", "abs")
    assert len(seen.ops.begin) == len(seen.ops.end) == len(seen.ops)
    assert (seen.ops.begin <= seen.ops.end).all()


def test_lines_of_a_training_step_are_the_users_or_none(observe, tmp_path):
    """The model's layers stand in its forward; its backward pass and its optimizer were begun by memplan."""
    assert observe("models.py:trained", "--training", "step", "-o", "step.json")[0] == 0
    problem = load(tmp_path / "step.json")
    callers = [problem.callers.of(row) for row in range(len(problem))]
    files = {each.source.file for each in callers if each.source}
    assert str(tmp_path / "models.py") in files
    assert not [file for file in files if Path(memplan_engine.__file__).parent in Path(file).parents]
    assert not [file for file in files if "/autograd/" in file]
    backward = {(each.kind, each.source) for each in callers if each.module == "backward"}
    assert {("mm", None), ("tanh_backward", None)} <= backward
