"""Real processes: what a factory leaves is gone, one that dies is told of, and all of it in one command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan_engine.history.measuring import NODES
from memplan_engine.history.opening import open_history
from memplan_engine.preparation import Preparation
from memplan_engine.zoo.variant_keys import forget_sources, sources_digest, versions_here
from memplan_engine.zoo.variant_runs import NoLongerWantedError, run_task
from memplan_engine.zoo.zoo_values import Origin, Variant, ZooAnswer, ZooTask

MANIFEST = """
project = "shop"
capacity = "3KiB"
[[models]]
name = "net"
factory = "nets.py:net"
axes = { dtype = ["bfloat16", "float32"], batch = [2, 16] }
[[models]]
name = "odd"
factory = "nets.py:odd"
axes = { batch = [1] }
[[models]]
name = "once"
factory = "nets.py:killed_once(flag='flag')"
axes = { batch = [2] }
"""


@pytest.fixture
def run(models: Path) -> Callable[..., ZooAnswer]:
    def run(factory: str, seconds: float = 100.0, folder: str = "", **options: object) -> ZooAnswer:
        forget_sources()
        variant = Variant("m", (), Origin(factory=factory), ("auto",), Preparation())
        sources = sources_digest(variant.origin, models)
        place = folder or str(models)
        task = ZooTask(variant, ("auto",), place, "p", sources, versions_here(), NODES, 0, seconds)
        return run_task(task, **options)  # type: ignore[arg-type]

    return run


def test_the_command_plans_tells_what_failed_and_takes_the_rest_from_the_cache(
    memplan: Callable[..., tuple[int, str, str]], models: Path
) -> None:
    (models / "zoo.toml").write_text(MANIFEST)
    line = "zoo", "zoo.toml", "--cache", "kept", "--jobs", "1", "--json"
    code, out, err = memplan(*line)
    assert code == 1
    told = json.loads(out)
    assert (told["complete"], told["project"], told["capacity"]) == (True, "shop", 3072)
    points = [(each["model"], each["axes"], point) for each in told["variants"] for point in each["points"]]
    # 2 layers of 16 × 16 weights and 16 biases; two results of batch × 16 at a time. A default dtype that the
    # first has set is not there for the next.
    assert [(name, *axes.values(), point["weights"], point["arena"]) for name, axes, point in points] == [
        ("net", "bfloat16", 2, 1088, 128),
        ("net", "bfloat16", 16, 1088, 1024),
        ("net", "float32", 2, 2176, 256),
        ("net", "float32", 16, 2176, 2048),
        ("once", 2, 2176, 256),
    ]
    assert [point["over"] for _, _, point in points] == [-1856, -960, -640, 1152, -640]
    _, first, second = err.splitlines()
    assert first == (
        "odd (batch=1): factory nets.py:odd(batch=1): found ValueError: an odd batch at nets.py:14, "
        "expected a factory that runs"
    )
    assert second.startswith("once (batch=2): the process was ended by SIGKILL")
    assert second.endswith("it is tried once more")
    with open_history("history.db", read_only=True) as history:
        assert len(history.points()) == 5
        graph = history.graph(points[3][2]["graph"])
    assert {str(op.source) for op in graph.ops} == {"layers.py:11"}
    (models / "zoo.toml").write_text(MANIFEST.partition('[[models]]\nname = "odd"')[0])
    code, out, err = memplan(*line[:-1])
    assert code == 0
    assert "4 variants of 1 model: 4 from the cache, 1 over 3 KiB" in out


SCRIPT = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256, bias=False).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.zeros(int(sys.argv[1]), 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_of_a_script_each_rank_that_differs_is_a_variant(
    memplan: Callable[..., tuple[int, str, str]], models: Path
) -> None:
    (models / "train.py").write_text(SCRIPT)
    (models / "zoo.toml").write_text(
        'capacity = "rtx4090"\n[[models]]\nname = "ddp"\nscript = "train.py"\n'
        'arguments = ["{batch}"]\naxes = { batch = [64], world = [2] }\n'
    )
    line = "zoo", "zoo.toml", "--cache", "kept", "--jobs", "1", "--json"
    code, out, err = memplan(*line)
    assert code == 0, err
    told = json.loads(out)
    ((point,),) = (each["points"] for each in told["variants"])
    assert told["device"] == "rtx4090"
    assert point["variant"] == "batch=64, world=2, rank=0"
    # Weights of 256 × 256 floats; their gradient and what is sent of it; the batch. A segment of 2 MiB.
    assert point["weights"] == 262_144
    assert 2 * 262_144 + 64 * 1024 <= point["arena"] < point["reserved"] == point["needed"] == 2 << 20
    with open_history("history.db", read_only=True) as history:
        (recorded,) = history.points()
        assert len(history.graph(point["graph"]).ops) > 10
    # The run's own peak, of which the graph's is made.
    assert recorded.figures.eager == point["demand"]
    assert json.loads(memplan(*line)[1])["variants"][0]["cached"]


@pytest.mark.slow
def test_ctrl_c_and_a_kill_leave_what_is_done_and_the_next_run_does_the_rest(models: Path) -> None:
    text = MANIFEST.partition('[[models]]\nname = "odd"')[0].replace("[2, 16]", "[1, 2, 3, 4]")
    (models / "zoo.toml").write_text(text)
    line = [
        sys.executable,
        "-m",
        "memplan_engine",
        "zoo",
        "zoo.toml",
        "--cache",
        "kept",
        "--jobs",
        "2",
        "--json",
    ]

    def known() -> int:
        return len(list(models.glob("kept/points/*/[0-9a-f]*")))  # A kill may leave a draft.

    def points() -> int:
        with open_history(models / "history.db", read_only=True) as history:
            return len(history.points())

    def interrupted(by: signal.Signals, after: int) -> tuple[int, str]:
        process = subprocess.Popen(
            line, cwd=models, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        while known() < after:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(by)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out

    code, out = interrupted(signal.SIGINT, 2)
    assert code == 130
    told = json.loads(out)
    assert not told["complete"]
    assert 1 <= len(told["variants"]) == points() < 8
    assert interrupted(signal.SIGKILL, min(known() + 2, 7))[0] == -signal.SIGKILL
    before = known()
    done = subprocess.run(line, cwd=models, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # Not one was worked out twice, and all are points of one run.
    assert sum(each["cached"] for each in told["variants"]) == before
    with open_history(models / "history.db", read_only=True) as history:
        assert len(history.points()) == 8
        assert len(history.runs()) == 1


def test_a_process_that_dies_or_takes_too_long_is_an_answer(run: Callable[..., ZooAnswer]) -> None:
    died = run("nets.py:killed(batch=1)")
    assert died.died.startswith("the process was ended by SIGKILL")
    assert died.failures == ()
    ((strategy, why),) = run("nets.py:slow(batch=1)", seconds=0.3).failures
    assert (strategy, why) == ("", "not through after 0.3 s: more time (--seconds), or a smaller one")
    with pytest.raises(NoLongerWantedError):
        run("nets.py:slow(batch=1)", stop=lambda: True)


def test_a_worker_with_other_files_or_packages_answers_nothing(
    run: Callable[..., ZooAnswer], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def why(**more: str) -> str:
        ((_, reason),) = run("nets.py:net", **more).failures
        return reason

    assert "no such folder /nowhere, expected one that all machines share" in why(folder="/nowhere")
    (models / "other").mkdir()
    (models / "other" / "nets.py").write_text("def net(): pass")
    assert "is made from other files there" in why(folder=str(models / "other"))
    here = "memplan_engine.zoo.variant_runs.versions_here"
    monkeypatch.setattr(here, lambda: (*versions_here()[1:], ("python", "2.7")))
    assert "python 2.7, expected 3." in why()


def test_sources_are_the_files_below_the_folder_wherever_it_lies(models: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("nets.py", "layers.py"):
        (copy / name).write_text((models / name).read_text())

    def digest(folder: Path, factory: str = "nets.py:net") -> str:
        forget_sources()
        return sources_digest(Origin(factory=factory), folder)

    assert digest(models) == digest(copy) == digest(copy, "nets:net")
    (copy / "layers.py").write_text("# another")
    assert digest(models) != digest(copy)
    # Of packages the module is enough: what they are is a matter of versions.
    assert digest(models, "json.encoder:f") != ""
    assert digest(models, "nowhere.nothing:f") == ""


def test_without_a_scheduler_that_answers_nothing_is_made(
    memplan: Callable[..., tuple[int, str, str]], models: Path
) -> None:
    pytest.importorskip("distributed")
    (models / "zoo.toml").write_text(MANIFEST)
    code, out, err = memplan("zoo", "zoo.toml", "--scheduler", "nonsense")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "tcp://host:8786" in err
    assert not (models / "history.db").exists()
