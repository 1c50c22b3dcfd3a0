"""The library of the device guard: compiled once, kept whole or not at all, and what becomes of a run without
it. A stand-in for the compiler counts how often it is asked."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan_engine import InputError, observe_fake, observed_peak
from memplan_engine.recordings.observed_flow import state_bytes
from memplan_engine.runtime.recorder import cuda_library
from memplan_engine.runtime.recorder.cuda_library import NoGuardError, guard_content
from memplan_engine.runtime.recorder.script_run import observe_script
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from tests.support.processes import children_of
from tests.support.waiting import HANG_SECONDS

LIBRARY = b"what stands for a library"
COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "compiler {version}"; exit 0;; esac
echo run >> {log}
{work}
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then printf '%s' "{content}" > "$2"; fi
  shift
done
"""


class Compiler:
    """A script in the place of the compiler, and how often it has compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.log = folder / "cxx", folder / "log"
        self.be()
        monkeypatch.setenv("CXX", str(self.path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def be(self, version: str = "1", work: str = "true") -> None:
        text = COMPILER.format(version=version, log=self.log, work=work, content=LIBRARY.decode())
        self.path.write_text(text)
        self.path.chmod(0o755)
        cuda_library._version.cache_clear()

    @property
    def runs(self) -> int:
        return self.log.read_text().count("run") if self.log.exists() else 0

    @property
    def kept(self) -> list[Path]:
        return [path for folder in cuda_library.cache_folders() for path in folder.glob("*.so")]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(tmp_path, monkeypatch)


def test_it_is_compiled_once_for_a_compiler_and_a_source(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guard_content() == guard_content() == LIBRARY
    assert compiler.runs == 1
    compiler.be(version="2")
    assert guard_content() == LIBRARY
    assert compiler.runs == 2
    monkeypatch.setattr(torch, "__version__", "9.9")
    guard_content()
    assert compiler.runs == 3
    other = tmp_path / "guard.cpp"
    other.write_text("// another")
    monkeypatch.setattr(cuda_library, "SOURCE", other)
    guard_content()
    assert compiler.runs == len(compiler.kept) == 4


@pytest.mark.parametrize(
    "harm", ["cut short", "garbled", "empty", "a folder", "writable by others", "a link"]
)
def test_what_is_no_good_is_compiled_again(compiler: Compiler, harm: str, tmp_path: Path) -> None:
    guard_content()
    (kept,) = compiler.kept
    whole = kept.read_bytes()
    if harm == "cut short":
        kept.write_bytes(whole[:-3])
    elif harm == "garbled":
        kept.write_bytes(whole[:-1] + b"!")
    elif harm == "empty":
        kept.write_bytes(b"")
    elif harm == "a folder":
        kept.unlink()
        kept.mkdir()
    elif harm == "a link":
        (tmp_path / "elsewhere").write_bytes(whole)
        kept.unlink()
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept.chmod(0o666)
    assert guard_content() == LIBRARY
    assert compiler.runs == 2
    assert guard_content() == LIBRARY
    assert compiler.runs == 2
    assert kept.read_bytes() == whole
    assert not kept.is_symlink()


def test_without_a_folder_each_process_compiles(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert guard_content() == guard_content() == LIBRARY
    assert compiler.runs == 2


def test_a_folder_that_others_may_write_is_not_trusted(compiler: Compiler) -> None:
    guard_content()
    (kept,) = compiler.kept
    kept.parent.chmod(kept.parent.stat().st_mode | stat.S_IWOTH)
    assert guard_content() == LIBRARY
    assert compiler.runs == 2


def test_two_processes_at_once(compiler: Compiler) -> None:
    """Each compiler waits until both run."""
    compiler.be(work=f"while [ $(grep -c run {compiler.log}) -lt 2 ]; do sleep 0.01; done")
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        several = [pool.submit(guard_content) for _ in range(2)]
        assert [each.result(HANG_SECONDS) for each in several] == [LIBRARY] * 2
    assert compiler.runs == 2
    assert len(compiler.kept) == 1
    assert guard_content() == LIBRARY
    assert compiler.runs == 2
    assert not list(compiler.kept[0].parent.glob(".*.part"))


@pytest.mark.parametrize(
    ("work", "message"),
    [("echo 'guard.cpp:3: error: no such header' >&2; exit 1", "fails: guard.cpp:3: error: no such header"),
     ("exit 3", "fails: exit code 3"),
     ("exit 0", "fails: exit code 0")],
)  # fmt: skip
def test_a_compiler_that_cannot(compiler: Compiler, work: str, message: str) -> None:
    compiler.be(work=work)
    with pytest.raises(NoGuardError, match=message):
        guard_content()
    assert compiler.kept == []


def test_the_command_may_have_options(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    guard_content()
    monkeypatch.setenv("CXX", f"{compiler.path} -DOTHER")
    assert guard_content() == LIBRARY
    assert compiler.runs == 2


def test_a_compiler_that_does_not_answer(compiler: Compiler) -> None:
    compiler.path.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NoGuardError, match="does not answer"):
        guard_content()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> str:
    """No compiler, and what is said of it."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a card of its own")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    return "cuda taken as the CPU, with its kernels: no C++ compiler (/nowhere/c++)"


def test_without_a_compiler_the_cpu_stands_in_and_says_so(without: str) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.rand(4, 8)
    cpu, cuda = (
        observe_fake(model, (x,), recipe=Recipe("adam"), device=device) for device in ("cpu", "cuda")
    )
    assert cpu.flow is not None
    assert cuda.flow is not None
    assert observed_peak(cpu) == observed_peak(cuda)
    assert cpu.ops.kinds == cuda.ops.kinds
    assert cpu.flow.assumed == ()
    assert cuda.flow.assumed == (without,)
    with pytest.raises(InputError, match="found 'sm1'"):
        observe_fake(model, (x,), device="cuda", arch="sm1")


def test_the_search_path_may_have_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGuardError, match=r"no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\)"):
        guard_content()


SCRIPT = """
import torch
model = torch.nn.Linear(16, 4).cuda()
half = torch.nn.Linear(4, 4, device="cuda").to(torch.device("cuda:0"))
optimizer = torch.optim.Adam([*model.parameters(), *half.parameters()])
for _ in range(2):
    x = torch.rand(8, 16).to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        mixed = half(model(x))
        assert mixed.dtype is torch.bfloat16
        loss = mixed.float().sum() + torch.zeros(3, device="cuda").sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.usefixtures("forked_scripts")
@pytest.mark.parametrize("compiles", [False, True])
def test_scripts_that_insist_on_a_card(
    compiles: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if compiles:
        try:
            guard_content()
        except NoGuardError as error:
            pytest.skip(str(error))
    else:
        request.getfixturevalue("without")
    (tmp_path / "train.py").write_text(SCRIPT)
    seen = observe_script(tmp_path / "train.py", device="cuda")
    assert seen.flow is not None
    assert seen.flow.steps == 2
    weights = 16 * 4 + 4 + 4 * 4 + 4
    # The CPU keeps the numbers of the steps, four tensors, where it stands in.
    assert state_bytes(seen.flow) == 3 * 4 * weights + (0 if compiles else 4 * 4)
    assert set(seen.devices) == ({0} if compiles else {-1})
    (note,) = seen.flow.assumed
    assert note.startswith("cuda without a card" if compiles else "cuda taken as the CPU")


def test_the_command_line(memplan: Any, tmp_path: Path, without: str) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\ndef net(): return torch.nn.Linear(8, 4), (torch.rand(2, 8),)\n"
    )
    code, out, _ = memplan("observe", "--fake", "models.py:net", "--device", "cuda", "--arch", "sm80")
    assert code == 0
    assert "cuda taken as the CPU" in " ".join(out.split())
    for wrong, message in (
        (("models.py:net", "--fake", "--device", "tpu"), "expected one of cpu, cuda"),
        (("models.py:net", "--fake", "--device", "cuda", "--arch", "9"), "arch: found '9'"),
        (("models.py:net", "--fake", "--arch", "sm80"), "expected the device cuda"),
        (("models.py:net", "--device", "cuda"), "without --fake"),
    ):
        code, out, err = memplan("observe", *wrong)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


def test_a_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    try:
        guard_content()
    except NoGuardError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children_of(os.getpid())
    observe_fake(nn.Linear(2, 2), (torch.rand(1, 2),), device="cuda")
    assert os.listdir(tmp_path) == []
    assert children_of(os.getpid()) <= before
