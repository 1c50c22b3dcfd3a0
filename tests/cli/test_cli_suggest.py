"""`memplan suggest`: the table, JSON, the commands that it prints, what it writes, bad input."""

from __future__ import annotations

import json
import shlex
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from memplan_engine import load, validate_plan
from memplan_engine.files import write
from tests.advice.test_advise import joined, layers
from tests.advice.test_smaller_tensors import floats
from tests.formats.onnx_models import model, node, value
from tests.rewrites.test_early_updates import network
from tests.support.waiting import HANG_SECONDS

GPT2 = Path(__file__).resolve().parents[2] / "example_graphs" / "gpt2.json"
PATIENT = ("--seconds", HANG_SECONDS)


@pytest.fixture
def net(tmp_path):
    write(floats(layers(1)), tmp_path / "one.json")
    write(floats(layers(3)), tmp_path / "three.json")
    write(joined(), tmp_path / "joined.json")


def suggestions(memplan, *arguments):
    code, out, err = memplan("suggest", *arguments, *PATIENT, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_what_saves_is_listed_with_its_command_and_code(memplan, net):
    code, out, err = memplan("suggest", "one.json", "--capacity", "640", *PATIENT)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "net: arena 1.25 KiB (1,280 B), arena optimal; 640 B over the capacity"
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line[:1] == "│"]
    both, half = "In place, and bfloat16 for layers.0", "bfloat16 at the peak in layers.0"
    told = "arena optimal"
    assert rows[:3] == [
        ["1", "Write 1 result in place", "640 B", "50.0 %", "640 B", told, "bit-identical", "fits"],
        ["2", both, "960 B", "75.0 %", "320 B", told, "changes numerics", "fits"],
        ["3", half, "640 B", "50.0 %", "640 B", told, "changes numerics", "fits"],
    ]
    assert "plan  memplan plan one.json --in-place" in out
    assert "code  in net.layers.0  F.relu(x, inplace=True)  for 1 aten.relu" in out


def test_commands_for_onnx_keep_the_dimensions_that_were_bound(memplan, tmp_path):
    pool = node("MaxPool", "x", "p", kernel_shape=[2, 2], strides=[2, 2])
    x, y = value("x", "batch size", 3, "height", "height"), value("y", None, None, None, None)
    made = model([pool, node("Exp", "p", "y")], [x], [y])
    (tmp_path / "pool.onnx").write_bytes(made.SerializeToString())
    listed = suggestions(memplan, "pool.onnx", "--symbol", "height=64", "--alignment", "32")["suggestions"]
    halves = [each for each in listed if each["kinds"] == ["size"]]
    assert [each["command"].split("pool.onnx ")[1] for each in halves] == [
        "--alignment 32 --symbol height=64 --symbol s0=1"
    ]
    code, out, _ = memplan(*shlex.split(halves[0]["command"])[1:], "--json")
    assert (code, json.loads(out)["arena_bytes"]) == (0, 2 * 3 * 32 * 32 * 4)


@pytest.mark.parametrize("strategy", [[], ["--strategy", "naive"]])
def test_commands_give_the_arena_that_is_promised(memplan, net, strategy):
    for file in ("one.json", "three.json", "joined.json"):
        listed = suggestions(memplan, file, "--alignment", "32", *strategy)["suggestions"]
        assert listed
        for each in listed:
            _, verb, *arguments = shlex.split(each["command"])
            code, out, _ = memplan(verb, *arguments, "--json")
            answer = json.loads(out)
            assert code == 0
            assert answer.get("plan", answer)["arena_bytes"] == each["arena_bytes"], each["command"]


def test_gpt2_writes_98_results_in_place(memplan):
    answer = suggestions(memplan, GPT2, "--capacity", "40MiB")
    assert (answer["arena_bytes"], len(answer["tied_peaks"]), answer["complete"]) == (53_477_376, 12, True)
    best = next(each for each in answer["suggestions"] if each["kinds"] == ["in_place"])
    assert best["title"] == "Write 98 results in place"
    assert (best["saved_bytes"], best["arena_bytes"], best["fits"]) == (12_582_912, 40_894_464, True)
    first = best["code"][0]
    assert (first["file"], first["line"], first["op"]) == ("transformers/activations.py", 66, "aten.mul")
    assert (first["module"], first["ops"]) == ("transformer.h.*.mlp.act", 36)
    assert first["instead"] == "x.mul_(…)"
    assert first["expressions"] == [
        "0.044715 * torch.pow(input, 3.0)", "math.sqrt(2.0 / math.pi) * (…)", "0.5 * input * (…)",
    ]  # fmt: skip
    assert [each["line"] for each in best["code"]] == [66, 66, 66, 575, 282, 307, 571]


def test_a_long_command_becomes_one_that_writes_with_what_was_asked_for(memplan, tmp_path):
    write(floats(layers(9)), tmp_path / "nine.json")
    code, out, _ = memplan(
        "suggest", "nine.json", "--alignment", "32", "--strategy", "greedy_by_size", *PATIENT
    )
    assert code == 0
    (line,) = (line for line in out.splitlines() if "--apply 1 " in line)
    _, *arguments = shlex.split(line.removeprefix("plan "))
    code, _, _ = memplan(*arguments)
    assert code == 0
    assert load(tmp_path / "plan.json").arena_bytes == 640


def test_a_suggestion_is_written_as_plan_and_edits(memplan, net, tmp_path):
    code, _, _ = memplan(
        "suggest", "three.json", *PATIENT, "--apply", "1", "-o", "plan.json", "--save-edits", "edits.json"
    )
    assert code == 0
    plan = load(tmp_path / "plan.json")
    assert validate_plan(plan).valid
    assert plan.arena_bytes == 640


@pytest.mark.parametrize("file", ["one.json", "three.json", pytest.param(GPT2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("asked", [(), ("--strategy", "greedy_by_size", "--alignment", "32")])
def test_the_command_that_goes_with_saved_edits_gives_the_arena_that_is_promised(memplan, net, file, asked):
    for number, each in enumerate(suggestions(memplan, file, *asked)["suggestions"], 1):
        code, out, err = memplan(
            "suggest",
            file,
            *asked,
            *PATIENT,
            "--apply",
            str(number),
            "--save-edits",
            "my edits.json",
            "--json",
        )
        assert (code, len(json.loads(out)["suggestions"]) >= number) == (0, True)
        told, _, command = err.strip().partition(": memplan ")
        assert told.startswith(f"my edits.json has {len(each['edits'])} change")
        assert ("my edits.json" in command) is bool(each["edits"])
        answer = json.loads(memplan(*shlex.split(command), "--json")[1])
        assert answer.get("plan", answer)["arena_bytes"] == each["arena_bytes"], command


def test_no_suggestion_says_why(memplan, net):
    code, out, _ = memplan("suggest", "list.csv")
    assert code == 0
    assert "A list of buffers has no ops that could be rewritten. The peak: " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.json", "--apply", "9"], "--apply: found 9, expected 1 to "),
        (["one.json", "-o", "plan.json"], "--apply: found no number, expected which suggestion to write"),
        (["one.json", "--seconds", "0"], "--seconds: found 0, expected more than 0, and 1e+09 at most"),
        (["one.json", "--capacity", "much"], "--capacity: found 'much', expected bytes below 2^63"),
        (["list.csv", "--early-updates"], "list.csv: early updates: found switched on, expected a graph"),
        (
            ["one.json", "--early-updates"],
            "one.json: gradients: found no training step: no op of an optimizer",
        ),
    ],
)
def test_bad_input_is_one_line(memplan, net, arguments, message):
    code, out, err = memplan("suggest", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [("suggest",), ("fit", "--only", "gradients")])
def test_the_printed_hooks_run_and_take_the_same_steps_bit_by_bit(memplan, tmp_path, command):
    write(network(optimizer="adam"), tmp_path / "step.json")
    code, out, err = memplan(command[0], "step.json", *command[1:], *PATIENT)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    begin = next(at for at, line in enumerate(lines) if "# once, after optimizer is made" in line)
    end = next(at for at, line in enumerate(lines) if "register_post_accumulate_grad_hook" in line)
    printed = textwrap.dedent("\n".join(lines[begin : end + 1]))

    def trained(hooks):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        exec(hooks, {"optimizer": optimizer})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        before = model[0].weight.detach().clone()
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).square().mean().backward()
            assert all((each.grad is None) is bool(hooks) for each in model.parameters())
            optimizer.step()
            schedule.step()
        assert not torch.equal(before, model[0].weight)
        return model.parameters()

    assert all(map(torch.equal, trained(""), trained(printed)))
