"""Whole scripts on fake tensors: what they allocate, and what becomes of those that misbehave."""

from __future__ import annotations

import gc
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan_engine import InputError, find_peak, observation_graph, observe_fake, observed_peak, to_problem
from memplan_engine.recordings.observed_flow import Category, Stage, state_bytes
from memplan_engine.runtime.recorder import script_run
from memplan_engine.runtime.recorder.script_run import observe_script
from tests.support.forked_scripts import ENDED, Fork, ForkedScripts
from tests.support.measured import PeakMode
from tests.support.processes import is_running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("forked_scripts")
TRAIN = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

width = int(sys.argv[1])
torch.manual_seed(0)
data = TensorDataset(torch.rand(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(1000):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_a_training_script_is_recorded_up_to_its_third_step(tmp_path: Path) -> None:
    seen = observe_script(script(tmp_path, TRAIN), ["128"])
    flow = seen.flow
    assert flow is not None
    assert flow.steps == len(flow.step_peaks) == 3
    weights = 4 * (8 * 128 + 128 + 128 * 4 + 4)
    assert state_bytes(flow) == 3 * weights + 4 * 4
    assert {Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER} == set(flow.stages)
    gradients = [row for row, each in enumerate(flow.storages.categories) if each is Category.GRADIENT]
    assert sum(flow.storages.nbytes[gradients]) == 3 * weights
    lines = {str(line) for line in flow.sources}
    assert any(line.endswith("train.py:15") for line in lines)
    graph = observation_graph(seen)
    assert find_peak(to_problem(graph, alignment=1)).nbytes == observed_peak(seen)[0]


def test_the_second_step_is_that_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real run of the same script under a recorder that knows nothing of memplan: all that it makes
    but weights and moments, at the fullest moment of its first three steps."""
    text = TRAIN.replace("num_workers=2", "num_workers=0").replace("range(1000)", "range(1)")
    text = text.replace("for x, y in loader:", "for x, y in __import__('itertools').islice(loader, 3):")
    path = script(tmp_path, text)
    kept: list[int] = []
    step: Callable[..., Any] = torch.optim.Adam.step

    def marked(self: torch.optim.Adam, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        tensors = [p for group in self.param_groups for p in group["params"]]
        tensors += [value for state in self.state.values() for value in state.values()]
        kept.append(sum(each.untyped_storage().nbytes() for each in tensors))
        return result

    monkeypatch.setattr(torch.optim.Adam, "step", marked)
    monkeypatch.setattr(sys, "argv", [str(path), "128"])
    gc.collect()
    with PeakMode() as mode:
        runpy.run_path(str(path), run_name="__main__")
    seen = observe_script(path, ["128"])
    assert observed_peak(seen)[0] == mode.peak - kept[-1]


ONE_RANK = (
    "import torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\nos.fork()\n", "train.py: found a process that is forked at .*train.py:2"),
        ("import multiprocessing as m\nm.get_context('fork').Process().start()\n", "is forked at"),
        ("import multiprocessing as m\nm.get_context('spawn').Process().start()\n", "is started at .*:2"),
        ("import os\nos.kill(os.getpid(), 40)\n", "the process was ended by signal 40$"),
        ("raise SyntaxError('odd')\n", "train.py: found SyntaxError: odd, expected what Python can read"),
        (
            "raise ValueError('no data')\n",
            "ValueError: no data at .*train.py:1, expected a script that runs as it is, .*observe FACTORY",
        ),
        (
            "import torch.distributed as dist\ndist.init_process_group('nccl')\n",
            "a process group of several ranks, made at .*train.py:2, expected .*memplan devices SCRIPT",
        ),
        (
            f"{ONE_RANK}from torch.nn.parallel import DistributedDataParallel as D\nD(torch.nn.PReLU())\n",
            "DistributedDataParallel, made at .*train.py:4, expected the model itself, or `memplan devices",
        ),
        (
            f"{ONE_RANK}from torch.distributed import fsdp\nfsdp.FullyShardedDataParallel(None)\n",
            r"\(FSDP1\), .* at .*train.py:4, expected fully_shard \(FSDP2\) and `memplan devices SCRIPT",
        ),
        ("open('nothing.csv')\n", "FileNotFoundError.*train.py:1"),
        ("import sys\nsys.exit(3)\n", "a script that ends with 3"),
        ("print('nothing')\n", "a script that runs no operator of torch, expected one that trains or infers"),
        (
            "from argparse import ArgumentParser\nparser = ArgumentParser()\n"
            "parser.add_argument('--data', required=True)\nparser.parse_args()\n",
            "a script that ends with 2: .*the following arguments are required: --data",
        ),
        ("import os\nos._exit(4)\n", "the process ended with code 4$"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
            "the process was ended by SIGKILL .the machine ran out of memory, perhaps.$",
        ),
        ("import torch\nwhile torch.rand(2).sum() > 1: pass\n", "train.py:2, which is not known"),
        ("import torch\ntorch.rand(4)[torch.rand(4) > 0.5]\n", "depends on values.*train.py:2"),
        ("def f(:\n", "train.py: line 1: found SyntaxError: invalid syntax, expected what Python can read"),
        (
            "import threading, torch\ndef work():\n    torch.nn.Linear(3, 3)(torch.rand(2, 3))\n"
            "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n",
            "a thread that works on tensors at .*train.py:3",
        ),
    ],
)  # fmt: skip
def test_scripts_that_cannot_be_recorded_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    from memplan_engine import MemplanError

    with pytest.raises(MemplanError, match=message) as error:
        observe_script(script(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_script_that_never_ends_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script_server: ForkedScripts
) -> None:
    """The time limit passes when the script has started another process."""
    started = tmp_path / "started"
    path = script(
        tmp_path,
        "import os, subprocess, sys, time\n"
        "sleeper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"half = {str(started)!r} + '.half'\n"
        "with open(half, 'w') as file:\n    file.write(str(sleeper.pid))\n"
        f"os.rename(half, {str(started)!r})\n"
        "while True: time.sleep(0.1)\n",
    )

    class Late(Fork):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            wait_until(lambda: started.exists() or self.poll() is not None)
            raise subprocess.TimeoutExpired("", timeout)

    def start(module: str, folder: Path) -> Late:
        fork = script_server(module, folder)
        return Late(fork.pid, folder / ENDED)

    monkeypatch.setattr(script_run, "start_module", start)
    with pytest.raises(InputError, match=r"train\.py: found a script that is not through after 8 s"):
        observe_script(path, seconds=8)
    sleeper = int(started.read_text())
    wait_until(lambda: not is_running(sleeper), lambda: sleeper)


def test_a_script_may_cast_its_model(tmp_path: Path) -> None:
    """In place, so that an optimizer that has its weights keeps them."""
    text = (
        "import torch\nmodel = torch.nn.Linear(8, 4)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "model.bfloat16()\nmodel(torch.rand(2, 8).bfloat16()).sum().backward()\noptimizer.step()\n"
    )
    flow = observe_script(script(tmp_path, text)).flow
    assert flow is not None
    assert flow.steps == 1
    assert state_bytes(flow) == 2 * (8 * 4 + 4)


def test_checkpoints_are_kept_in_mind_and_no_file_is_touched(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset, random_split\n"
        "data = TensorDataset(torch.rand(20, 8), torch.randint(0, 4, (20,)))\n"
        "some, others = random_split(data, [12, 8])\n"
        "model = torch.nn.Linear(8, 4)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for x, y in DataLoader(some, 4):\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()\n"
        "    torch.save({'model': model.state_dict(), 'epoch': 1}, 'best.pt')\n"
        "    seen = torch.load('best.pt', map_location='cpu')\n    assert seen['epoch'] == 1\n"
        "    model.load_state_dict(seen['model'])\n"
    )
    (tmp_path / "best.pt").write_bytes(b"of an earlier run")
    seen = observe_script(script(tmp_path, "import os\nos.chdir(os.path.dirname(__file__))\n" + text))
    assert seen.flow is not None
    assert seen.flow.steps == 3
    assert state_bytes(seen.flow) == (8 * 4 + 4) * 4
    assert (tmp_path / "best.pt").read_bytes() == b"of an earlier run"


@pytest.mark.parametrize("save", ["dcp.save({0})", "dcp.async_save({0}).result()"])
def test_distributed_checkpoints_leave_no_folder(tmp_path: Path, save: str) -> None:
    """What is loaded is read a tensor after the other: the first is there until the second is."""
    text = (
        "import os, torch\nimport torch.distributed.checkpoint as dcp\n"
        "os.chdir(os.path.dirname(__file__))\nmodel = torch.nn.Linear(64, 32)\nmodel(torch.rand(1, 64))\n"
    )
    state = "{'model': model.state_dict()}, checkpoint_id='kept'"
    path = script(tmp_path, f"{text}{save.format(state)}\ndcp.load({state})\n")
    seen = observe_script(path)
    assert seen.flow is not None
    assert observed_peak(seen)[0] == 4 * (64 * 32 + 32)
    assert sum("torch.distributed.checkpoint" in each for each in seen.flow.assumed) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]
    path.write_text(f"{text}dcp.load({state})\n")
    with pytest.raises(InputError, match=r"train\.py:6"):
        observe_script(path)


def test_a_script_may_change_its_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    text = "import os, torch\nos.chdir(os.path.join(os.path.dirname(__file__), 'below'))\ntorch.rand(1000)\n"
    before = Path.cwd()
    seen = observe_script(script(tmp_path, text))
    assert observed_peak(seen) == (4000, 0)
    assert Path.cwd() == before


@pytest.mark.usefixtures("own_processes")
def test_a_script_may_write_more_than_a_pipe_holds(tmp_path: Path) -> None:
    """64 KiB on Linux: a full pipe that is not read would hold it for ever."""
    loud = "import os, torch\nos.write(2, b'x' * 1_000_000)\ntorch.rand(1000)\n"
    assert observed_peak(observe_script(script(tmp_path, loud))) == (4000, 0)


def test_the_command_line_runs_scripts(memplan: Any, tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    code, out, _ = memplan("observe", "--fake", "train.py", "--json", "-o", "run.json", "--", "64")
    assert code == 0
    said = json.loads(out)
    assert said["scope"] == "eager_predicted"
    assert said["steps"] == 3
    assert said["peak_source"].startswith(("train.py:", "torch/optim/adam.py:"))
    assert json.loads(memplan("plan", "run.json", "--json")[1])["peak_bytes"] >= said["peak_bytes"]
    assert memplan("observe", "--fake", "gone.py")[0] == 2
    assert "script trains by itself" in memplan("observe", "--fake", "train.py", "--training", "step")[2]
    code, out, err = memplan("observe", "models.py:net", "--seconds", "3")
    assert (code, out) == (2, "")
    assert "expected a script" in err


def test_an_observation_cut_short_is_one_line_for_the_allocator(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\ntorch.rand(1000).relu()\n")
    assert memplan("observe", "--fake", "net.py", "-o", "whole.json")[0] == 0
    text = (tmp_path / "whole.json").read_text().rstrip()
    assert memplan("allocator", "whole.json")[0] == 0
    for length in (0, 1, len(text) // 2, len(text) - 1):
        (tmp_path / "short.json").write_text(text[:length])
        code, out, err = memplan("allocator", "short.json", "-o", "placed.json")
        assert (code, out) == (2, "")
        assert err.startswith("memplan: short.json: ")
        assert err.count("\n") == 1
        assert not (tmp_path / "placed.json").exists()


def test_averaged_weights_that_nobody_calls_are_state(tmp_path: Path) -> None:
    """A copy of the model that is made before the first step and kept: no part of the peak."""
    text = (
        "import copy, torch\nmodel = torch.nn.Linear(64, 32)\n{}"
        "optimizer = torch.optim.SGD(model.parameters())\nfor _ in range(3):\n"
        "    model(torch.rand(4, 64)).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n{}"
    )
    average = "    with torch.no_grad():\n        for a, b in zip(kept.parameters(), model.parameters()):\n"
    copied = text.format("kept = copy.deepcopy(model)\n", average + "            a.lerp_(b, 0.1)\n")
    plain = observe_script(script(tmp_path, text.format("", "")))
    seen = observe_script(script(tmp_path, copied))
    assert plain.flow is not None
    assert seen.flow is not None
    weights = 4 * (64 * 32 + 32)
    assert state_bytes(plain.flow) == weights
    assert state_bytes(seen.flow) == 2 * weights
    assert observed_peak(seen)[0] == observed_peak(plain)[0]


def test_weights_that_a_cast_replaces_count_while_the_model_is_built(tmp_path: Path) -> None:
    """State is what is kept to the end; those in float32 are there, all of them, before the first is cast."""
    text = "import torch\nmodel = torch.nn.Linear(64, 32).to(torch.bfloat16)\n"
    call = "with torch.inference_mode():\n    model(torch.rand(4, 64, dtype=torch.bfloat16))\n"
    seen = observe_script(script(tmp_path, text + call))
    assert seen.flow is not None
    assert state_bytes(seen.flow) == 2 * (64 * 32 + 32)
    assert observed_peak(seen)[0] == 4 * (64 * 32 + 32)


def test_transformers_sees_masks_of_ones_as_eager_mode_does(tmp_path: Path) -> None:
    """Imported by the script itself; what is not known it takes for traced."""
    text = """
import torch
from transformers.utils.import_utils import is_tracing
from transformers.masking_utils import is_tracing as asked
mask = torch.ones_like(torch.randint(3, 9, (2, 5)))
assert not is_tracing(mask) and not asked(mask)
assert asked(torch.rand(3))
"""
    seen = observe_script(script(tmp_path, text), [])
    assert observed_peak(seen)[0] == 2 * 8 * 2 * 5


def test_batches_of_a_pool_of_threads_are_seen(tmp_path: Path) -> None:
    """All three are there in the first step, the last alone in the third."""
    text = """
import torch
from concurrent.futures import ThreadPoolExecutor
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters())
with ThreadPoolExecutor(2) as pool:
    for x in pool.map(lambda seed: torch.rand(32, 64), range(3)):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
    flow = observe_script(script(tmp_path, text)).flow
    assert flow is not None
    first, second, third = flow.step_peaks
    assert first - second == second - third == 4 * 32 * 64


def test_weights_that_safetensors_loads_are_those_of_the_model(tmp_path: Path) -> None:
    """transformers loads them in threads; peaks are those of a model made from its configuration."""
    import transformers

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(vocab_size=50, max_position_embeddings=32, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "tiny")
    text = """
import sys
import torch
import transformers
model = make(transformers.LlamaForCausalLM)
optimizer = torch.optim.AdamW(model.train().parameters())
for step in range(3):
    ids = torch.randint(0, 50, (2, 8))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    make = "def make(kind):\n    return kind.from_pretrained(sys.argv[1])\n"
    loaded = observe_script(script(tmp_path, make + text), [str(tmp_path / "tiny")]).flow
    made = observe_fake(lambda: exec(text, {"make": lambda kind: kind(config)})).flow
    assert loaded is not None
    assert made is not None
    assert (loaded.step_peaks[1:], state_bytes(loaded)) == (made.step_peaks[1:], state_bytes(made))
