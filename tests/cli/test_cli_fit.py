"""`memplan fit` on models that run: what holds gradients, orders by hand, plans that run, patches that were
captured again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest

from memplan_engine.advice import fit_stages
from memplan_engine.files import write
from memplan_engine.rewrites.order.checked import checked_reorder
from memplan_engine.runtime.trial import recapture as recaptures
from memplan_engine.runtime.trial.recapture import compare_captures, recapture
from tests.rewrites.test_early_updates import by_hand
from tests.support.waiting import wait_until

NET = """
import torch
import torch.nn.functional as F
from torch import nn


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        x = self.fc(x)
        a = x.repeat(64, 1)
        b = x.repeat(64, 1)
        c = x.repeat(64, 1)
        a = F.relu(a)
        b = torch.exp(b)
        c = c + 1
        c = self.act(c)
        left = a.sum(0)
        middle = b.sum(0)
        right = c.sum(0)
        return left + middle + right


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(self.fc(x).sigmoid()).sigmoid()


def build():
    return {"model": Branches().eval(), "args": (torch.rand(4, 8),), "loss": lambda y: y.square().mean()}


def chain():
    return {"model": Chain(), "args": (torch.rand(4, 8),), "loss": lambda y: y.square().mean()}


def clipped_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def clipped():
    return {"model": Chain(), "args": (torch.rand(4, 8),), "step": clipped_step}


class Tall(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).sigmoid()
        return x


def plain_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def tall():
    return {"model": Tall(), "args": (torch.rand(2, 32),), "step": plain_step}
"""


@pytest.fixture
def run(memplan, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return memplan


@pytest.mark.slow
def test_a_patch_is_written_once_it_gave_the_same_in_fewer_bytes(run, tmp_path):
    code, out, err = run("fit", "net.py:build", "--patch", "out.patch", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    change, stages = said["patch"], {each["name"]: each for each in said["stages"]}
    # 3 × 64 × 4 × 8 floats and one more value; then one of them, beside what is left of the others.
    assert change["recaptured"] == {"same": True, "wrong": "", "before": 4 * 8192, "after": 8192 + 6 * 32}
    assert stages["captured"]["load_bytes"] == change["recaptured"]["before"]
    assert stages["reorder"]["load_bytes"] == change["recaptured"]["after"]
    # The file itself is as it was; the patch makes of it what was captured.
    assert (tmp_path / "net.py").read_text() == NET
    if shutil.which("patch"):
        subprocess.run(["patch", "-p1", "-i", "out.patch"], check=True, capture_output=True)
        after = (tmp_path / "net.py").read_text()
        assert "nn.ReLU(inplace=True)" in after
        assert "torch.exp_(b)" in after
        assert json.loads(run("fit", "net.py:build", "--json")[1])["stages"][0]["load_bytes"] == 8192 + 6 * 32


@pytest.fixture
def recaptures_here(monkeypatch, tmp_path):
    """Capture again for a patch in this process."""

    def here(factory, text, options=None, **how):
        (tmp_path / "edited.py").write_text(text)
        return compare_captures(factory, f"edited.py:{factory.partition(':')[2]}", options, **how)

    monkeypatch.setattr(recaptures, "recapture", here)


@pytest.mark.usefixtures("recaptures_here")
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.slow)])
def test_a_patch_moves_the_optimizer_into_the_backward_pass(run, tmp_path, optimizer):
    step = ("--training", "step", "--optimizer", optimizer)
    code, out, err = run("fit", "net.py:tall", *step, "--only", "gradients", "--patch", "out.patch", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    change, found = said["patch"], said["patch"]["recaptured"]
    assert (found["same"], found["wrong"]) == (True, "")
    # Six gradients of 32 × 32 floats are held before; then one after the other.
    assert found["before"] > 6 * 4096 > 3 * 4096 > found["after"]
    first = NET.splitlines().index("def plain_step(model, optimizer, x):") + 1
    assert change["lines"] == [first + 3, first + 4]
    assert change["notes"] == ["gradients freed early: none is there after the step"]
    assert "-    optimizer.step()" in change["diff"]
    assert "register_post_accumulate_grad_hook(update_now)" in (tmp_path / "out.patch").read_text()


@pytest.mark.slow
def test_what_saves_nothing_is_no_patch(run, tmp_path):
    code, out, _ = run("fit", "net.py:chain", "--training", "step", "--patch", "out.patch")
    assert code == 0
    assert "no patch" in out
    assert "gradients freed early: not in the patch" in out
    assert not (tmp_path / "out.patch").exists()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("b = torch.exp(b)", "b = torch.sin(b)"), "is not the same"),
        (("self.fc = nn.Linear(8, 8)", "self.fd = nn.Linear(8, 8)"), "state_dict"),
    ],
)
def test_an_edit_that_is_wrong_is_never_claimed(run, tmp_path, edit, said):
    (tmp_path / "edited.py").write_text(NET.replace(*edit, 1))
    found = compare_captures("net.py:build", "edited.py:build")
    assert (found.same, found.saves) == (False, False)
    assert said in found.wrong


def test_an_edit_that_saves_is_claimed_by_another_process(run):
    edited = NET
    for before, after in (
        ("F.relu(a)", "F.relu(a, inplace=True)"),
        ("torch.exp(b)", "torch.exp_(b)"),
        ("c = c + 1", "c += 1"),
        ("nn.ReLU()", "nn.ReLU(inplace=True)"),
    ):
        edited = edited.replace(before, after, 1)
    found = recapture("net.py:build", edited)
    assert (found.same, found.saves, found.wrong) == (True, True, "")
    # Before, a fourth value of 64 × 4 × 8 floats; after, the 4 × 8 floats that the third is made of.
    assert (found.before, found.after) == (4 * 8192, 3 * 8192 + 4 * 8 * 4)


def test_an_edit_that_ends_the_process_is_never_claimed(run, monkeypatch):
    ended = subprocess.CompletedProcess([], 3, stderr="first line\nlast line\n")
    monkeypatch.setattr(recaptures.subprocess, "run", lambda *given, **options: ended)
    found = recapture("net.py:build", NET)
    assert (found.same, found.saves, found.wrong) == (False, False, "last line")


@pytest.mark.slow
def test_an_edit_that_backward_forbids_is_never_claimed(run):
    wrong = NET.replace("self.fc(x).sigmoid()", "self.fc(x).sigmoid().relu_().exp_().relu_()", 1)
    found = recapture("net.py:chain", wrong, {"optimizer": "adam"})
    assert not found.same
    assert found.wrong
    assert recapture("net.py:chain", NET, {"optimizer": "adam"}).same


def test_the_line_that_forbids_freeing_is_said_in_all_places(run):
    code, out, _ = run("fit", "net.py:clipped", "--training", "step", "--optimizer", "adam", "--json")
    assert code == 0
    (group,) = json.loads(out)["gradients"]
    line = next(n for n, text in enumerate(NET.splitlines(), 1) if "clip_grad_norm_" in text)
    assert (group["free"], group["count"], group["bytes"]) == (False, 2, 4 * (64 + 8))
    assert (group["op"]["file"], group["op"]["line"]) == ("net.py", line)
    _, out, _ = run("fit", "net.py:clipped", "--training", "step", "--optimizer", "adam")
    assert (
        f"held, since one op needs all of them: aten.stack at net.py:{line}: nn.utils.clip_grad_norm_" in out
    )


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--training", "step", "--optimizer", "adam"), marks=pytest.mark.slow)]
)
def test_the_plan_of_a_fit_runs(run, options):
    code, out, err = run("fit", "net.py:build", *options, "--save-plan", "p.json", "-o", "o.csv", "--json")
    assert code == 0
    assert err.strip() == " ".join(["next: memplan run net.py:build", *options, "--plan p.json"])
    best = min(json.loads(out)["stages"], key=lambda stage: stage["arena_bytes"])
    for more in ((), ("--schedule", "o.csv")):
        code, out, _ = run("run", "net.py:build", *options, "--plan", "p.json", *more, "--json")
        said = json.loads(out)
        assert (code, said["equality"]["exact"]) == (0, True)
        assert said["slab"]["bytes"] == best["arena_bytes"]
        _, out, _ = run("run", "net.py:build", *options, "--plan", "p.json", *more)
        assert "as predicted, to the byte" in out


def test_an_order_by_hand_fixes_its_stage_and_a_wrong_one_is_refused_before_it_runs(run, tmp_path):
    run("capture", "net.py:build", "-o", "g.json")
    graph = json.loads((tmp_path / "g.json").read_text())
    names = [op["name"] for op in graph["ops"]]
    (tmp_path / "same.csv").write_text("op,step\n" + "".join(f"{n},{i}\n" for i, n in enumerate(names)))
    _, out, _ = run("fit", "net.py:build", "--only", "reorder", "--schedule", "same.csv", "--json")
    captured, ordered = json.loads(out)["stages"]
    assert captured["load_bytes"] == ordered["load_bytes"]
    assert ordered["bound_of"] == "this order"
    (tmp_path / "back.csv").write_text("op,step\n" + "".join(f"{n},{-i + 50}\n" for i, n in enumerate(names)))
    for verb in ("fit", "run"):
        code, out, err = run(verb, "net.py:build", "--schedule", "back.csv")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "back.csv" in err
    code, _, err = run("fit", "net.py:build", "--only", "in_place", "--schedule", "same.csv")
    assert (code, err) == (
        2,
        "memplan: --schedule: found no reorder in --only, expected the stage whose order it fixes\n",
    )


def test_what_cannot_be_written_is_said_before_the_search(run, tmp_path):
    for arguments, said in (
        (("-o", "order.onnx"), "only an ONNX model has nodes to sort"),
        (("-o", "nowhere/order.csv"), "an existing folder"),
        (("--patch", "out.txt"), "'.txt'"),
        (("--capacity", "1e3"), "--capacity"),
        (("--capacity", "9223372036854775808"), "below 2^63"),
    ):
        code, out, err = run("fit", "net.py:build", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
    run("capture", "net.py:build", "-o", "g.json")
    code, _, err = run("fit", "g.json", "--patch", "out.patch")
    assert (code, "file.py:factory" in err) == (2, True)


def test_a_capacity_that_nothing_meets_is_proved_in_the_words_of_decide(run):
    run("capture", "net.py:build", "-o", "g.json")
    state = json.loads(run("fit", "g.json", "--json")[1])["state_bytes"]
    code, out, _ = run("fit", "g.json", "--only", "", "--capacity", state + 30_000)
    assert code == 1
    assert (
        "Does not fit in 29.7 KiB (30,416 B), proved: 416 B state + at least 32 KiB arena (every arena for"
        in out
    )
    core = next(line for line in out.splitlines() if line.startswith("core"))
    code, decided, _ = run("plan", "g.json", "--capacity", 30_000)
    assert code == 1
    assert core.removeprefix("core").strip() in decided
    code, out, _ = run("fit", "g.json", "--capacity", 0, "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "does not fit")


def test_ctrl_c_keeps_the_stages_so_far(memplan, tmp_path, monkeypatch):
    """It ends the search that runs, and no other begins; what is written is whole."""

    def interrupted(graph, limits, *arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: limits.stopped)
        return checked_reorder(graph, limits, *arguments, **options)

    monkeypatch.setattr(fit_stages, "checked_reorder", interrupted)
    write(by_hand(), tmp_path / "net.json")
    code, out, _ = memplan("fit", "net.json", "-o", "o.json", "--json")
    said = json.loads(out)
    assert (code, said["complete"]) == (0, False)
    assert [stage["name"] for stage in said["stages"]] == ["captured", "in_place", "reorder"]
    steps = json.loads((tmp_path / "o.json").read_text())["steps"]
    assert sorted(steps.values()) == list(range(len(steps)))
    assert "ended" in memplan("fit", "net.json")[1]
