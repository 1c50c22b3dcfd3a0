"""The marker and the fixture as somebody's own tests use them, on graphs whose bytes are counted by hand."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from memplan_engine.checks.baselines import made_with
from memplan_engine.cli import app as command_line
from memplan_engine.history.measuring import reproducible_plan
from memplan_engine.pytest_plugin import marked_test
from memplan_engine.torch_capture.given_model import GivenModel
from tests import ROOT
from tests.support.chains import chain

pytest_plugins = ["pytester"]

PLUGIN = "memplan_engine.pytest_plugin.plugin_hooks"
INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
LOADING = () if INSTALLED else ("-p", PLUGIN)
HEAD = "import pytest\nfrom tests.support.chains import chain\n"
BASELINES = "test_it.memory.json"
CHECK = "memplan.check(chain(1, 1))"


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Runs in this process forget what they import: what is there before stays."""
    assert marked_test.KNOWN == ("max_arena", "max_peak", "max_reserved", "no_growth")
    reproducible_plan(chain(1024, 1024))
    GivenModel(torch.nn.ReLU(), (torch.zeros(8),)).graph()


class Session:
    """Somebody's file of tests, run in this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path

    def write(self, body: str) -> None:
        self.pytester.makepyfile(test_it=HEAD + body)

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*LOADING, "-p", "no:cacheprovider", "-rN", *arguments)

    def failure(self, *arguments: str) -> list[str]:
        """The lines of the one failure of a run."""
        lines = self.run(*arguments).outlines
        first = next(place for place, line in enumerate(lines) if line.startswith("memplan: "))
        last = next(place for place, line in enumerate(lines) if place > first and line[:3] in ("===", "---"))
        return lines[first:last]


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("COLUMNS", "200")
    return Session(pytester)


def test_figures_are_given_and_a_model_within_its_ceilings_passes(session: Session) -> None:
    # 3 KiB and 2 KiB are live together.
    session.write(
        "@pytest.mark.memplan(max_arena='5KiB', max_peak=5120)\n"
        "def test_net(memplan):\n"
        "    figures = memplan.check(chain(1024, 3072, 2048))\n"
        "    assert (figures.arena, figures.demand, figures.optimal) == (5120, 5120, True)\n"
        "def test_unmarked(memplan):\n"
        "    assert memplan.check(chain(1024, 1024)).arena == 2048\n"
    )
    session.run("--strict-markers").assert_outcomes(passed=2)
    assert not list(session.folder.glob(".memplan/**"))
    assert not (session.folder / BASELINES).exists()


def test_a_model_above_its_ceilings_says_bytes_cause_line_and_command(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.write(
        "@pytest.mark.memplan(max_arena='4KiB', max_peak=5119, no_growth=True)\n"
        "def test_net(memplan): memplan.check(chain(1024, 3072, 2048))\n"
    )
    *lines, more = session.failure()
    assert lines == [
        "memplan: net: arena 5 KiB (5,120 B) is 1 KiB above the most allowed, 4 KiB",
        "peak 5 KiB (5,120 B) is 1 B above the most allowed, 5 KiB (5,119 B)",
        "Graph peak 5 KiB at layer.2 · mul (step 2): layer.1 · mul 3 KiB (60 %), net.py:1; "
        "layer.2 · mul 2 KiB (40 %), net.py:2",
    ]
    title, _, command = more.partition(":")
    program, *arguments = shlex.split(command)
    assert (title, program) == ("see more", "memplan")
    capsys.readouterr()
    assert command_line.run(arguments) == 0
    assert "Graph peak 5 KiB at layer.2 · mul (step 2)" in capsys.readouterr().out
    assert (session.folder / ".memplan" / ".gitignore").read_text() == "*\n"


def test_a_baseline_is_asked_for_written_kept_and_grown_beyond(session: Session) -> None:
    def write(*sizes: int) -> None:
        session.write(
            "@pytest.mark.memplan(no_growth=True)\n"
            "@pytest.mark.parametrize('batch', [1, 2])\n"
            f"def test_net(memplan, batch): memplan.check(chain(*[batch * each for each in {sizes}]))\n"
        )

    write(1024, 3072, 2048)
    (line,) = session.failure("-k", "net[1]")
    command = "pytest --memplan-update 'test_it.py::test_net[1]'"
    assert line == f"memplan: net: no baseline in {BASELINES} yet, write it: {command}"

    session.run(*shlex.split(command)[1:]).stdout.fnmatch_lines([f"{BASELINES}: 1 written"])
    session.run("--memplan-update").stdout.fnmatch_lines([f"{BASELINES}: 1 written, 1 unchanged"])
    written = (session.folder / BASELINES).read_bytes()
    assert json.loads(written) == {
        "format": "memplan/baselines",
        "version": 1,
        "baselines": {
            f"test_net[{batch}]": {
                "arena": 5120 * batch,
                "peak": 5120 * batch,
                "made_with": made_with(),
                "at_peak": {"layer.* · mul": 5120 * batch},
            }
            for batch in (1, 2)
        },
    }
    session.run().assert_outcomes(passed=2)
    session.run("--memplan-update").stdout.fnmatch_lines([f"{BASELINES}: 2 unchanged"])
    assert (session.folder / BASELINES).read_bytes() == written

    write(1024, 3072, 2048, 4096)
    exact = session.failure("-k", "net[2]")
    assert exact[:2] == [
        "memplan: net: arena +2 KiB, 10 KiB → 12 KiB, peak +2 KiB, 10 KiB → 12 KiB: "
        f"more than the baseline in {BASELINES}",
        "peak +2 KiB, 10 KiB → 12 KiB: +8 KiB because layer.3 · mul (net.py:3) is new",
    ]
    assert exact[-2] == "accept it: pytest --memplan-update 'test_it.py::test_net[2]'"
    assert exact[-1].startswith("see more: memplan diff .memplan/passed/test_net-2-")
    assert command_line.run(shlex.split(exact[-1].partition(":")[2])[1:]) == 0
    assert len(exact) <= 10

    # What passed last was something else, or is on another machine: the baseline knows what its peak held.
    (passed,) = (session.folder / ".memplan" / "passed").glob("test_net-2-*")
    (other,) = (session.folder / ".memplan" / "passed").glob("test_net-1-*")
    for change in (lambda: passed.write_bytes(other.read_bytes()), passed.unlink):
        change()
        known = session.failure("-k", "net[2]")
        assert known[0] == exact[0]
        assert known[1] == "+2 KiB at the peak: layer.* · mul (2 buffers, net.py:3), 10 KiB before"
        assert known[-1].startswith("see more: memplan peak .memplan/failed/test_net-2-")
    assert (session.folder / BASELINES).read_bytes() == written

    session.run("--memplan-update").stdout.fnmatch_lines([f"{BASELINES}: 2 written"])
    session.run().assert_outcomes(passed=2)


def test_a_baseline_that_could_be_lower_is_told(session: Session) -> None:
    body = "@pytest.mark.memplan(no_growth=True)\ndef test_net(memplan): memplan.check(chain(1024, {}))\n"
    session.write(body.format(2048))
    session.run("--memplan-update")
    session.write(body.format(1024))
    told = "1 model needs less than the baseline says: pytest --memplan-update lowers it"
    result = session.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([told])
    session.run("--memplan-update").stdout.no_fnmatch_line(told)
    session.run().stdout.no_fnmatch_line(told)
    assert json.loads((session.folder / BASELINES).read_text())["baselines"]["test_net"]["arena"] == 2048


def test_each_check_of_each_test_has_a_baseline_of_its_own(session: Session) -> None:
    session.write(
        "@pytest.mark.memplan(no_growth=True)\n"
        "class TestNet:\n"
        "    @pytest.mark.parametrize('dtype', ['bf16'])\n"
        "    def test_both(self, memplan, dtype):\n"
        "        memplan.check(chain(1024, 1024), name='prefill')\n"
        "        memplan.check(chain(1024, 2048))\n"
        "        memplan.check(chain(1024, 3072))\n"
    )
    session.run("--memplan-update").assert_outcomes(passed=1)
    kept = json.loads((session.folder / BASELINES).read_text())["baselines"]
    name = "TestNet::test_both[bf16]"
    assert {key: each["arena"] for key, each in kept.items()} == {
        f"{name} prefill": 2048, f"{name} 2": 3072, f"{name} 3": 4096,
    }  # fmt: skip
    assert list(kept) == sorted(kept)


@pytest.mark.parametrize(
    ("marker", "body", "told"),
    [
        ("max_area='5KiB'", CHECK, "found max_area, expected one of max_arena, max_peak"),
        ("'5KiB'", CHECK, "found '5KiB', expected arguments by name: max_arena"),
        ("max_arena='5KuB'", CHECK, "max_arena: found '5KuB', expected bytes below 2^63"),
        ("max_peak=-1", CHECK, "max_peak: found -1, expected bytes"),
        ("max_peak=True", CHECK, "max_peak: found True, expected bytes"),
        ("no_growth='yes'", CHECK, "no_growth: found 'yes', expected True or False"),
        ("max_arena=1", "pass", "the test is marked memplan and never calls memplan.check(model, args)"),
        ("max_reserved=1", CHECK, "Graph: found a graph, expected a module or a factory"),
        ("", "memplan.check(chain(1, 1), [1])", "Graph: inputs: found some, expected none"),
        ("", "memplan.check(chain(1, 1), training=True)", "Graph: options: found training, expected none"),
        ("", "memplan.check(chain(1, 1), strategy='nosuch')", "nosuch"),
        ("", "memplan.check(len, nokw=5)", "options: found nokw, expected one of functional, dynamic, tell"),
        ("", "memplan.check(len, training=True, nokw=5)", "found nokw, expected one of gradients, "),
        ("", "import torch; memplan.check(torch.nn.ReLU(), nokw=5)", "ReLU: options: found nokw, expected"),
        ("", "from functools import partial; memplan.check(partial(divmod, 1, 0))", "builtins:divmod: found"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_one_line(session: Session, marker: str, body: str, told: str) -> None:
    session.write(f"@pytest.mark.memplan({marker})\ndef test_net(memplan): {body}\n")
    lines = session.failure()
    assert len(lines) == 1
    assert told in lines[0]


def test_what_is_called_with_nothing_is_a_factory_whatever_its_kind(session: Session) -> None:
    session.write(
        "from functools import partial\n"
        "import torch\n"
        "class Builder:\n"
        "    def __init__(self, batch): self.batch = batch\n"
        "    def __call__(self): return torch.nn.ReLU(), (torch.zeros(self.batch, 64),)\n"
        "    def net(self, batch): return Builder(batch)()\n"
        "MADE = partial(Builder(1).net, batch=8), partial(Builder(8)), Builder(8)\n"
        "@pytest.mark.parametrize('build', MADE)\n"
        "def test_net(memplan, build): assert memplan.check(build).arena == 2048\n"
        "def test_failing(memplan):\n"
        "    with pytest.raises(pytest.fail.Exception, match='factory test_it:Builder: found TypeError'):\n"
        "        memplan.check(Builder(None))\n"
    )
    session.run().assert_outcomes(passed=4)


def test_a_marked_test_takes_the_fixture(session: Session) -> None:
    session.write("@pytest.mark.memplan(max_arena=1)\ndef test_net(): pass\n")
    assert session.failure() == [
        "memplan: a test with the marker memplan takes the fixture: def test_it(memplan): memplan.check(…)"
    ]


def test_the_marker_of_a_test_goes_before_that_of_its_class_and_a_skip_is_none(session: Session) -> None:
    session.write(
        "@pytest.mark.memplan(max_arena=1, max_peak='1MiB')\n"
        "class TestNet:\n"
        "    @pytest.mark.memplan(max_arena='5KiB')\n"
        "    def test_wide(self, memplan): memplan.check(chain(1024, 3072))\n"
        "    def test_narrow(self, memplan): memplan.check(chain(1024, 3072))\n"
        "    def test_skipped(self, memplan): pytest.skip('no')\n"
    )
    session.run().assert_outcomes(passed=1, failed=1, skipped=1)


def test_a_baseline_in_conflict_is_refused_and_stays(session: Session) -> None:
    session.write("@pytest.mark.memplan(no_growth=True)\ndef test_net(memplan): memplan.check(chain(9, 9))\n")
    conflict = '<<<<<<< ours\n{"format": "memplan/baselines", "version": 1}\n>>>>>>> theirs\n'
    (session.folder / BASELINES).write_text(conflict)
    for arguments in ((), ("--memplan-update",)):
        (line,) = session.failure(*arguments)
        assert "broken JSON" in line
        assert "remove the file: pytest --memplan-update writes it" in line
    assert (session.folder / BASELINES).read_text() == conflict


def test_a_place_that_takes_no_files_hides_no_failure(session: Session) -> None:
    session.write("@pytest.mark.memplan(max_arena=1)\ndef test_net(memplan): memplan.check(chain(9, 9))\n")
    (session.folder / ".memplan").write_text("a file\n")
    lines = session.failure()
    assert lines[0].startswith("memplan: net: arena 73 B is 72 B above")
    assert [line for line in lines if "see more" in line] == []


def test_workers_of_xdist_write_one_file(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.write(
        "@pytest.mark.memplan(no_growth=True)\n"
        "@pytest.mark.parametrize('size', range(1, 9))\n"
        "def test_net(memplan, size): memplan.check(chain(1024, 1024 * size))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = session.pytester.runpytest_subprocess(*LOADING, "-n", "2", "--memplan-update")
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines([f"{BASELINES}: 8 written"])
    kept = json.loads((session.folder / BASELINES).read_text())["baselines"]
    assert {key: each["arena"] for key, each in kept.items()} == {
        f"test_net[{size}]": 1024 + 1024 * size for size in range(1, 9)
    }
    session.run().assert_outcomes(passed=8)


def test_pytest_starts_without_waiting_for_it(tmp_path: Path) -> None:
    """Of our own modules only the plugin and the errors are imported, of others none that pytest has not."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    script = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        f"code = pytest.main(['-q', '-p', {PLUGIN!r}])\n"
        "print(*sorted(each for each in set(sys.modules) - before if each.startswith('memplan')))\n"
        "heavy = {'numpy', 'numba', 'torch', 'pydantic', 'sympy', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == [
        "memplan_engine", "memplan_engine.errors", "memplan_engine.pytest_plugin", PLUGIN,
    ]  # fmt: skip
