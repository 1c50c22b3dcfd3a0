"""What kernels take, measured and predicted, against torch's own profiler."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from memplan_engine import (  # noqa: E402
    InputError,
    capture,
    find_peak,
    load,
    observe_fake,
    observe_model,
    observed_peak,
    to_problem,
    write_observation,
)
from memplan_engine.calibration.kernel_table import with_kernels  # noqa: E402
from memplan_engine.calibration.op_features import Features  # noqa: E402
from memplan_engine.cli.app import run as main  # noqa: E402
from memplan_engine.formats.memplan_json.calibration_format import (  # noqa: E402
    dump_calibration,
    load_calibration,
    write_calibration,
)
from memplan_engine.recordings.observed_flow import flow_peak  # noqa: E402
from memplan_engine.runtime.calibrate.calibration_calls import CALLS, Call  # noqa: E402
from memplan_engine.runtime.calibrate.measure_kernels import calibrate, measure  # noqa: E402
from memplan_engine.runtime.calibrate.model_calls import AskedCall, Blank, measure_calls  # noqa: E402
from memplan_engine.runtime.recorder.fake_run import distinct_calls  # noqa: E402
from memplan_engine.scope import Scope  # noqa: E402
from memplan_engine.torch_capture.training.torch_recipe import Recipe  # noqa: E402


def profiled(run: Any) -> int:
    """The most bytes that `run()` holds, by torch's profiler."""
    with torch.profiler.profile(profile_memory=True) as seen, torch.no_grad():
        result = run()
    del result
    events = [
        (e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"
    ]
    held = most = 0
    for _, nbytes in sorted(events):
        held += nbytes
        most = max(most, held)
    return most


def few(name: str, count: int) -> Call:
    """The first `count` calls of a family."""
    return next(Call(name, count, call.draw) for call in CALLS if call.name == name)


@pytest.fixture(scope="module")
def table() -> Any:
    names = (("convolutions 3x3 to 7x7", 45), ("convolutions 1x1", 30), ("pointwise operators on images", 10))
    return calibrate(calls=tuple(few(*each) for each in names), dtypes=["float32"])


def blocks() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(32, 48, 3, padding=1),
        nn.Identity(),
        nn.Conv2d(48, 40, 1),
        nn.Identity(),
        nn.Conv2d(40, 64, 3),
    ]
    return nn.Sequential(*layers), torch.rand(2, 32, 40, 40)


def test_what_a_kernel_takes_is_what_the_profiler_counts() -> None:
    w, x = torch.rand(64, 64, 3, 3), torch.rand(2, 64, 28, 28)

    def call() -> Any:
        return torch.nn.functional.conv2d(x, w)

    with torch.no_grad():
        (seen,) = measure(call)
        result = call()
    assert seen.nbytes == profiled(call) - result.nbytes > 0
    assert seen.footprint == seen.nbytes + w.nbytes + x.nbytes + result.nbytes


def test_a_prediction_with_kernels_is_what_the_allocator_holds(table: Any, tmp_path: Path) -> None:
    model, x = blocks()
    real = profiled(lambda: model(x))
    plain = flow_peak(observe_fake(model, (x,)).flow)[0]
    seen = observe_fake(model, (x,), calibration=table)
    predicted = flow_peak(seen.flow)[0]
    assert plain < 0.9 * real
    assert predicted == pytest.approx(real, rel=0.03)
    # So few calls need not reach as far as the third.
    assert re.search("[23] of 3 operators within", seen.flow.calibration)
    write_observation(seen, tmp_path / "run.json")
    graph = load(tmp_path / "run.json")
    assert graph.scope is Scope.PREDICTED_WITH_KERNELS
    assert find_peak(to_problem(graph, alignment=1)).nbytes == predicted


def test_what_was_never_measured_is_said_to_be_unknown(table: Any) -> None:
    seen = observe_fake(nn.GELU(), (torch.rand(4, 4).double(),), calibration=table)
    assert "nothing known of aten.gelu" in seen.flow.calibration


def test_the_same_seed_draws_the_same_calls() -> None:
    calls = few("convolutions 1x1", 3)
    one, two = ([each.found for run in calls.draws(0) for each in measure(run)] for _ in range(2))
    assert one == two != [each.found for run in calls.draws(1) for each in measure(run)]


def test_the_command_line_adds_kernels(table: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Conv2d(32, 48, 3, padding=1), (torch.rand(2, 32, 40, 40),)\n"
    )
    monkeypatch.chdir(tmp_path)
    write_calibration(table, "machine.json")
    assert main(["observe", "mine.py:make", "--fake", "--calibration", "machine.json", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["scope"] == "eager_predicted_with_kernels"
    model = nn.Conv2d(32, 48, 3, padding=1)
    x = torch.rand(2, 32, 40, 40)
    assert said["peak_bytes"] == pytest.approx(profiled(lambda: model(x)), rel=0.03)
    assert main(["capture", "mine.py:make", "-o", "graph.json"]) == 0
    capsys.readouterr()
    assert main(["peak", "graph.json", "--calibration", "machine.json", "--json"]) == 0
    peak = json.loads(capsys.readouterr().out)
    assert peak["scope"] == "with_kernels"
    assert "calibrated" in peak["counted"]
    assert peak["peak_bytes"] == said["peak_bytes"]


def test_a_calibration_without_fake_is_refused(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "machine.json"
    assert main(["observe", "mine:make", "--calibration", str(path)]) == 2
    assert "--fake" in capsys.readouterr().err


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_calibration_cut_short_is_one_line(table: Any, tmp_path: Path, capsys: Any, cut: int) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(dump_calibration(table)[: -cut - 1])
    assert main(["observe", "mine:make", "--fake", "--calibration", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "machine.json" in said


def test_an_interrupted_calibration_writes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("memplan_engine.runtime.calibrate.measure_kernels.measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(["calibrate", "-o", str(tmp_path / "machine.json")])
    assert list(tmp_path.iterdir()) == []


class Net(nn.Module):
    """A convolution that no formula of `table` is of, with what takes nothing around it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(20, 12, 4, 2, 1)
        self.last = nn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        y = self.up(x).relu()
        return self.last(y.mean((2, 3)))


def own_calls(model: nn.Module, x: Any, recipe: Any = None) -> Any:
    """The calls of a model, measured alone."""
    measured = measure_calls(distinct_calls(model, (x,), recipe=recipe, name="net"))
    assert measured.failed == {}
    return measured.nbytes


def test_what_was_measured_itself_is_exact(table: Any, tmp_path: Path) -> None:
    model, x = Net(), torch.rand(3, 20, 24, 24)
    exact = replace(table, calls=own_calls(model, x))
    seen = observe_fake(model, (x,), calibration=exact)
    assert seen.flow is not None
    assert flow_peak(seen.flow)[0] == profiled(lambda: model(x))
    assert flow_peak(seen.flow)[0] > flow_peak(observe_fake(model, (x,), calibration=table).flow)[0]
    said = seen.flow.calibration
    assert "4 of 4 operators measured themselves" in said
    assert "100.0 % by calls measured themselves" in said
    assert "the kernel at the peak was measured itself" in said
    write_calibration(exact, tmp_path / "net.json")
    assert load_calibration(tmp_path / "net.json").calls == exact.calls
    other = observe_fake(model, (torch.rand(3, 20, 24, 26),), calibration=exact)
    # Of the last layer, whose shapes are the same.
    assert "1 of 4 operators measured themselves" in other.flow.calibration


def test_a_training_step_of_known_calls_is_exact(table: Any) -> None:
    model, x = Net(), torch.rand(3, 20, 24, 24)
    recipe = Recipe("sgd", loss=lambda out: out.pow(2).mean())
    seen = observe_fake(
        model, (x,), recipe=recipe, calibration=replace(table, calls=own_calls(model, x, recipe))
    )
    real = observe_model(model, (x,), recipe=recipe)
    assert flow_peak(seen.flow)[0] == observed_peak(real, "allocator")[0]


def test_kernels_in_double_precision_are_calibrated() -> None:
    table = calibrate(calls=(few("convolutions 3x3 to 7x7", 50),), dtypes=["float64"])
    assert torch.get_default_dtype() is torch.float32
    model, x = nn.Conv2d(32, 48, 3, padding=1).double(), torch.rand(2, 32, 28, 28).double()
    real = profiled(lambda: model(x))
    seen = observe_fake(model, (x,), calibration=table)
    assert flow_peak(seen.flow)[0] == pytest.approx(real, rel=0.03)
    assert flow_peak(observe_fake(model, (x,)).flow)[0] < 0.9 * real


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_calls_in_half_precision_are_exact(table: Any, dtype: Any) -> None:
    model, x = Net().to(dtype), torch.rand(3, 20, 24, 24).to(dtype)
    seen = observe_fake(model, (x,), calibration=replace(table, calls=own_calls(model, x)))
    assert flow_peak(seen.flow)[0] == profiled(lambda: model(x))


def test_patches_are_calibrated_with_the_gradients_of_tokens() -> None:
    """What a ViT's training step was missing: patches without padding, from gradients that are turned."""
    table = calibrate(calls=(few("convolutions of patches", 40),), dtypes=["float32"])
    regimes = {each.regime for each in table.formulas if each.kind.endswith("convolution_backward")}
    assert "float32 2d onednn dense kxk patches few w turned" in regimes


def test_calls_of_one_regime_may_give_more_tensors_or_fewer() -> None:
    """A regime of `split` has as many results as there are parts."""
    x = torch.rand(4, 6)
    draws = iter([lambda: x.chunk(2, 1), lambda: x.chunk(3, 1)])
    table = calibrate(calls=(Call("parts", 2, lambda _: next(draws)),), dtypes=["float32"])
    (formula,) = [each for each in table.formulas if "split" in each.kind]
    assert (formula.low["out2"], formula.high["out2"]) == (0, 32)


def test_a_call_that_cannot_run_alone_is_said_and_left_out() -> None:
    asked = distinct_calls(nn.Flatten(), (torch.rand(2, 3),), name="flat") | {
        "broken": AskedCall(
            torch.ops.aten.mm.default,
            (Blank((2, 3), (3, 1), torch.float32, 0),) * 2,
            {},
            48,
            Features("aten.mm", "", {}),
        )
    }
    measured = measure_calls(asked)
    assert set(measured.failed) == {"broken"}
    assert "broken" not in measured.nbytes


def test_calls_are_added_from_the_command_line(
    table: Any, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Conv2d(20, 12, 2, 2), (torch.rand(2, 20, 8, 8),)\n"
    )
    monkeypatch.chdir(tmp_path)
    write_calibration(table, "machine.json")
    assert main(["calibrate", "mine.py:make", "--onto", "machine.json", "-o", "mine.json", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["calls"], said["not_measured"]) == (1, {})
    both = load_calibration("mine.json")
    assert both.formulas == table.formulas
    assert next(iter(both.calls)).startswith("aten.convolution(float32[2,20,8,8], float32[12,20,2,2]")
    assert main(["calibrate", "--onto", "machine.json", "-o", "mine.json"]) == 2
    assert "no model" in capsys.readouterr().err
    other = replace(table, machine=replace(table.machine, threads=table.machine.threads + 3))
    write_calibration(other, "other.json")
    assert main(["calibrate", "mine.py:make", "--onto", "other.json", "-o", "never.json"]) == 2
    assert (
        f"{table.machine.threads + 3} threads instead of {table.machine.threads}" in capsys.readouterr().err
    )
    assert not (tmp_path / "never.json").exists()


def test_a_captured_graph_finds_a_call_by_its_tensors(table: Any) -> None:
    model, x = nn.Conv2d(20, 12, 2, 2), torch.rand(2, 20, 8, 8)
    calls = own_calls(model, x)
    graph = with_kernels(capture(model, (x,)), replace(table, calls=calls))
    assert [op.workspace.shared for op in graph.ops] == list(calls.values()) != [0]


def test_another_machine_is_named(table: Any) -> None:
    here = table.machine
    threads, processor = here.threads + 3, f"another {here.processor}"
    there = replace(here, threads=threads, capability="DEFAULT", processor=processor)
    seen = observe_fake(nn.ReLU(), (torch.rand(4),), calibration=replace(table, machine=there))
    assert f"this machine is another one ({threads} threads instead of" in seen.flow.calibration
    assert f"{processor} instead of" in seen.flow.calibration


def test_a_calibration_of_other_kernels_is_refused(table: Any) -> None:
    model, inputs = nn.ReLU(), (torch.rand(4),)
    seen = observe_fake(model, inputs, calibration=table)
    assert seen.flow is not None
    machine = table.machine
    threads = f"{machine.threads} thread{'s' * (machine.threads > 1)}"
    assert seen.flow.calibration.endswith(f"measured with {threads}, {machine.capability}")
    older = replace(table, machine=replace(machine, torch="2.9.1+cpu"))
    with pytest.raises(InputError, match=r"^ReLU: calibration: found one by torch 2\.9\.1, expected one by"):
        observe_fake(model, inputs, calibration=older)
    with pytest.raises(InputError, match=r"found the device cuda, expected the device cpu"):
        observe_fake(model, inputs, calibration=table, device="cuda")
