"""`memplan run`: what it prints and writes, saved plans, what it refuses, and .pt2 files without a pickle."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path

import pytest
import torch

from memplan_engine import InputError, load, load_observation, load_pt2, load_run
from memplan_engine.torch_capture import torch_factory

MODELS = '''
import torch
from torch import nn

class Net(nn.Module):
    """A linear layer, a ReLU that may write in place, a norm, and one more layer."""
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, x):
        self.calls.add_(1)
        return self.two(self.norm(self.one(x).relu()))

class Restless(Net):
    """Gives another result every time, whatever is put back."""
    times = 0
    def forward(self, x):
        if not torch.compiler.is_exporting():
            Restless.times += 1
        return super().forward(x) + (0.0 if torch.compiler.is_exporting() else Restless.times)

def branches():
    class Branches(torch.nn.Module):
        def forward(self, x):
            a, b, c = x.repeat(64, 1), x.repeat(64, 1), x.repeat(64, 1)
            return a.exp().sum() + b.exp().sum() + c.exp().sum()
    return Branches(), (torch.rand(4, 8),)


def net():
    return Net().eval(), (torch.rand(4, 8),)

def restless():
    return Restless().eval(), (torch.rand(4, 8),)

def fails():
    class Fails(Net):
        def forward(self, x):
            if not torch.compiler.is_exporting():
                raise ValueError("not today")
            return super().forward(x)
    return Fails(), (torch.rand(4, 8),)

def trained():
    class Trained(Net):
        def forward(self, x, t):
            return nn.functional.mse_loss(super().forward(x), t)
    return Trained().train(), (torch.rand(4, 8), torch.rand(4, 4))

def depends():
    class Depends(Net):
        def forward(self, x):
            return x if x.sum() > 0 else -x
    return Depends(), (torch.rand(4, 8),)
'''


@pytest.fixture
def run(memplan, tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    return lambda *arguments: memplan("run", *arguments)


@pytest.fixture
def plan(run, memplan):
    """A saved plan of net."""
    assert memplan("capture", "models.py:net", "-o", "net.json")[0] == 0
    assert memplan("plan", "net.json", "--strategy", "naive", "-o", "plan.json")[0] == 0
    return json.loads(Path("plan.json").read_text())


def table(text):
    """The figures by their labels."""
    lines = text.split("\n\n")[0].splitlines()
    return {line[:18].strip(): line[18:] for line in lines}


def test_a_model_of_a_file_runs_and_is_equal(run):
    """By hand: 16 floats of 4 rows are 256 bytes, of 4 outputs 64; at the norm 2 × 256 and its 32."""
    code, out, _ = run("models.py:net", "--check", "--strategy", "greedy_by_size")
    assert code == 0
    said = table(out)
    assert said["model"] == "net, 5 ops, graph as captured"
    assert said["plan"] == "greedy_by_size, arena 512 B, bound 512 B"
    assert said["predicted peak"] == "544 B at layer_norm"
    assert said["measured peak"] == "544 B at layer_norm, as predicted, to the byte"
    assert said["result"] == "bitwise equal to eager"
    assert said["safety"].startswith("5 ops watched, ")
    assert "aten.layer_norm  left         1  256 B  no out overload with its arguments" in out
    assert "iteration" not in said


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--optimizer", "adam", "--functional", "--policy", "all"),
    ],
)
def test_a_whole_training_step_runs_and_updates_the_weights_alike(run, more):
    """Its result is what it leaves in the weights, too; each run starts from the same ones."""
    code, out, _ = run("models.py:trained", "--training", "step", "--check", *more)
    assert code == 0
    said = table(out)
    assert said["model"].endswith("training mode")
    assert said["measured peak"].endswith("as predicted, to the byte")
    outputs = 0 if more else 1
    assert said["result"].startswith("bitwise equal to the second eager step (loss, ")
    assert f"loss, {outputs} output" in said["result"]
    assert said["safety"].endswith("no fault")


def test_it_runs_in_the_best_order(run):
    """By hand: three of 8 KiB and the first result, then one and its result beside a sum."""
    code, out, _ = run("models.py:branches", "--reorder", "-o", "run.json")
    assert code == 0
    said = table(out)
    assert said["order"].endswith("live bytes 32 KiB → 16 KiB, proved the fewest of all orders")
    assert said["measured peak"].startswith("16 KiB (16,388 B)")
    assert said["result"] == "bitwise equal to eager"
    assert load_run("run.json").order.live_before == 32768


def test_it_runs_in_an_order_that_a_person_gives_and_refuses_one_that_is_wrong(run, memplan):
    memplan("capture", "models.py:branches", "-o", "graph.json")
    names = [op["name"] for op in json.loads(Path("graph.json").read_text())["ops"]]
    wanted = sorted(names, key=lambda name: name not in ("repeat_2", "exp_2"))

    def write(order):
        steps = {name: step for step, name in enumerate(order)}
        Path("order.json").write_text(
            json.dumps({"format": "memplan/schedule", "version": 1, "steps": steps})
        )

    write(wanted)
    code, out, _ = run("models.py:branches", "--schedule", "order.json")
    assert code == 0, out
    assert "by order.json" in table(out)["order"]
    write(reversed(names))
    code, _, err = run("models.py:branches", "--schedule", "order.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "order.json" in err
    code, _, err = run("models.py:branches", "--schedule", "order.json", "--reorder")
    assert code == 2
    assert "--schedule: found --reorder, too, expected one of them" in err


def test_an_optimizer_needs_a_step_and_a_step_a_factory(run):
    code, _, err = run("models.py:trained", "--optimizer", "adam")
    assert code == 2
    assert "found no --training, expected --training step" in err
    Path("net.pt2").write_bytes(b"")
    code, _, err = run("net.pt2", "--training", "step")
    assert code == 2
    assert "--training: found a file, expected a factory" in err


def test_what_is_written_is_read_back(run):
    files = ("-o", "run.json", "--observation", "seen.json", "--trace", "trace.json")
    code, out, _ = run("models.py:net", "--functional", "--policy", "all", "--profile", "--json", *files)
    assert code == 0
    printed, kept = json.loads(out), load_run("run.json")
    assert printed["functional"]
    assert (printed["passed"], printed["difference_bytes"]) == (True, 0)
    assert printed["predicted_peak_bytes"] == max(kept.predicted) == max(kept.dispatch)
    assert kept.model_dump(mode="json") == {key: printed[key] for key in kept.model_dump()}
    assert kept.slab.policy == "all"
    assert {way.way for way in kept.slab.ways} == {"native", "equivalent", "generated"} or kept.slab.left
    assert kept.profile.runs >= 3
    assert min(kept.profile.eager, kept.profile.interpreter, kept.profile.slab, kept.profile.setup) > 0
    assert {kind.kind for kind in kept.profile.kinds} == set(kept.kinds)
    seen = load_observation("seen.json")
    assert seen.ops.names == kept.ops
    alone = load_run("seen.json")
    assert (alone.dispatch, alone.allocator, alone.predicted) == (kept.dispatch, kept.allocator, ())
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_another_result_is_told_and_is_exit_code_1(run):
    code, out, _ = run("models.py:restless")
    assert code == 1
    assert table(out)["result"].startswith("differs from eager by up to ")


def test_a_saved_plan_runs(run, plan):
    code, out, _ = run("models.py:net", "--plan", "plan.json")
    assert code == 0
    assert table(out)["plan"].startswith("naive from plan.json, arena 832 B")


def test_a_plan_with_an_overlap_is_refused_and_caught_when_forced(run, plan):
    plan["offsets"] = [0] * len(plan["offsets"])
    plan["arena_bytes"] = max(plan["problem"]["size"])
    Path("bad.json").write_text(json.dumps(plan))
    code, _, error = run("models.py:net", "--plan", "bad.json")
    assert code == 2
    assert error.startswith("memplan: bad.json: found linear and relu overlap at steps")
    code, out, _ = run("models.py:net", "--plan", "bad.json", "--force", "-o", "run.json")
    assert code == 1
    assert "makes buffer 'relu' at bytes 0–255, of which 0–255 (256 bytes) belong to 'linear'" in out
    assert "makes buffer 'relu'" in load_run("run.json").check.fault


def test_a_plan_in_which_buffers_overlap_in_part_is_blamed_itself(run, plan):
    """Torch refuses to write over a part of what it reads, and says that the inputs are at fault."""
    size = plan["problem"]["size"]
    plan["offsets"] = [128 * place for place in range(len(size))]
    plan["arena_bytes"] = max(low + n for low, n in zip(plan["offsets"], size, strict=True))
    Path("bad.json").write_text(json.dumps(plan))
    code, out, error = run("models.py:net", "--plan", "bad.json", "--force", "--profile", "-o", "run.json")
    assert (code, error) == (1, "")
    assert "makes buffer 'relu' at bytes 128–383, of which 128–255 (128 bytes) belong to 'linear'" in out
    assert "makes buffer 'relu'" in load_run("run.json").check.fault
    assert not load_run("run.json").equality.exact


def test_a_list_with_a_buffer_that_the_graph_lacks_is_no_plan_of_it(run, plan, memplan):
    assert memplan("plan", "net.json", "--strategy", "naive", "-o", "plan.csv")[0] == 0
    assert run("models.py:net", "--plan", "plan.csv")[0] == 0
    with Path("plan.csv").open("a") as file:
        file.write("other,0,3,64,64,1024\n")
    code, out, error = run("models.py:net", "--plan", "plan.csv")
    assert (code, out) == (2, "")
    told = "found buffer 'other', which the graph does not have, expected its storages only"
    assert error == f"memplan: plan.csv: {told}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("models.py:nothing",), "found no 'nothing' in it, expected a function of that name"),
        (("models.py:depends",), "factory models.py:depends: torch.export: found"),
        (("models.py:fails",), "fails: run: found ValueError: not today, expected a model that runs"),
        (("missing.py:net",), "FileNotFoundError: no such file: missing.py"),
        (("net",), "found 'net', expected package.module:function or file.py:function"),
        (("missing.pt2",), "missing.pt2: no such file"),
        (("list.csv",), "expected a factory or a .pt2 file: nothing else can run"),
        (("models.py:net", "--plan", "list.csv"), "expected an offset for every buffer"),
        (("models.py",), "expected models.py:factory, the function in it"),
        (("models.py:net", "--force"), "--force: found no --plan"),
        (("models.py:net", "--plan", "x.json", "--strategy", "auto"), "--strategy: found a --plan, too"),
        (("models.py:net", "--strategy", "nix"), "no strategy 'nix'"),
        (("models.py:net", "--policy", "half"), "'half' is not one of"),
        (("models.py:net", "-o", "run.csv"), "found the suffix '.csv', expected .json"),
        (("models.py:net", "-o", "nowhere/run.json"), "found a folder that does not exist"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, told):
    code, out, error = run(*arguments)
    assert (code, out) == (2, "")
    assert told in error
    assert len(error.splitlines()) == 1


def test_a_plan_of_another_graph_is_refused(run, plan):
    code, _, error = run("models.py:net", "--plan", "plan.json", "--functional")
    assert code == 2
    assert error.startswith("memplan: plan.json: found one for 'net': op 0 is")


def test_large_weights_are_announced_and_too_large_ones_refused(run, monkeypatch, caplog):
    monkeypatch.setattr(torch_factory, "LARGE_BYTES", 900)
    with caplog.at_level(logging.WARNING):
        assert run("models.py:net")[0] == 0
    assert "factory models.py:net: making 980 B of weights" in caplog.text
    monkeypatch.setattr(torch_factory, "memory_bytes", lambda: 900)
    code, _, error = run("models.py:net")
    assert code == 2
    assert "found weights of 980 B, expected at most 900 B" in error


class Lifted(torch.nn.Module):
    """Tied weights, a constant, and an integer input."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids, *, scale=2.0):
        return {"y": self.head(self.table(ids)) * scale + torch.tensor([0.5] * 8)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("pt2") / "lifted.pt2"
    model = Lifted()
    torch.export.save(torch.export.export(model, (torch.zeros(3, dtype=torch.long),)), path)
    return model, path


def rewritten(path, target, change):
    """The zip at `path` with members passed through `change(name, data)`."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return target


def test_a_pt2_file_runs_with_its_weights_and_gives_what_torch_gives(run, saved):
    model, path = saved
    program = load_pt2(path)
    ids = torch.tensor([3, 1, 7])
    (found,) = program.run((ids,))
    with torch.no_grad():
        assert torch.equal(found, model(ids)["y"])
    # Tied weights are one storage.
    assert len({tensor.untyped_storage().data_ptr() for tensor in program.state}) == 2
    code, out, _ = run(path, "--check", "--policy", "all")
    assert code == 0
    assert table(out)["result"] == "bitwise equal to interpreter"


def test_nothing_in_a_pt2_file_is_unpickled(saved, tmp_path):
    """Example inputs that are no pickle do no harm; weights that are said to be one are refused."""
    path = saved[1]
    spoilt = rewritten(
        path, tmp_path / "a.pt2", lambda name, data: b"evil" if "sample_inputs" in name else data
    )
    assert load_pt2(spoilt).run((torch.zeros(3, dtype=torch.long),))

    def pickled(name, data):
        config = name.endswith("weights_config.json")
        return data.replace(b'"use_pickle": false', b'"use_pickle": true') if config else data

    with pytest.raises(InputError, match=r"found a pickle, expected plain bytes: nothing in a file is ever"):
        load_pt2(rewritten(path, tmp_path / "b.pt2", pickled))
    shorter = rewritten(
        path, tmp_path / "c.pt2", lambda name, data: data[:-4] if "weights/weight_" in name else data
    )
    with pytest.raises(InputError, match=r"needs more bytes than its record has"):
        load_pt2(shorter)


def test_functional_makes_no_sense_of_a_file(run, saved):
    code, _, error = run(saved[1], "--functional")
    assert code == 2
    assert error.startswith("memplan: --functional: found a file")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"predicted": [1]}, "field predicted: found 1 values, expected 2, one for each op"),
        ({"kinds": ["a"]}, "field kinds: found 1 values, expected 2"),
        ({"version": 2}, "field version: found 2, expected 1"),
        ({"format": "memplan/plan"}, "expected memplan/run or memplan/observation"),
        ({"dispatch": [1, -1]}, "field dispatch"),
        ({"more": 1}, "field more: found an unknown field"),
        ({"check": {"ops": "many"}}, "field check.ops"),
    ],
)
def test_files_of_runs_that_are_not_sound(tmp_path, change, told):
    file = {"format": "memplan/run", "version": 1, "name": "x", "ops": ["a", "b"], "kinds": ["k", "k"]}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(file))
    assert load_run(path).ops == ("a", "b")
    with pytest.raises(InputError, match="the page Run shows it"):
        load(path)
    path.write_text(json.dumps(file | change))
    with pytest.raises(InputError, match=r"run\.json") as error:
        load_run(path)
    assert told in str(error.value)
