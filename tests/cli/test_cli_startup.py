"""What a short `memplan plan` does not wait for, how the program ends, and the public names that are imported
when asked for."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest

import memplan_engine
from memplan_engine.cli.app import GROUPS, VERBS, app, load_verb
from memplan_engine.cli.main import HEAVY_VERBS
from tests import ROOT
from tests.support.buffer_list import BUFFERS
from tests.support.waiting import HANG_SECONDS

NOT_WAITED_FOR = {
    "memplan_engine.cli.commands.symbols_command",
    "memplan_engine.cli.commands.capture_command",
    "memplan_engine.cli.commands.capacity_option",
    "memplan_engine.cli.commands.explain_command",
    "memplan_engine.feasibility.decision",
    "memplan_engine.formats.memplan_json.json_base",
    "memplan_engine.formats.onnx_model.onnx_shapes",
    "memplan_engine.analysis.layout",
    "memplan_engine.analysis.positional",
    "memplan_engine.analysis.peak",
    "memplan_engine.rewrites.reuse",
    "memplan_engine.strategies.shared_objects.assignment",
    "memplan_engine.symbolic",
    "numba",
    "pydantic",
    "rich._emoji_codes",
    "rich.live",
    "sympy",
    "torch",
    "onnx",
}


NO_TIME_PASSES = "import time; time.perf_counter = float"
"""Kernels are interpreted for a limited time: with this they are, however slow the machine."""


def modules_after(arguments, folder, **environment):
    """Return the modules that are loaded when `memplan arguments` ends, and NumPy's number of threads."""
    script = (
        f"import atexit, os, sys; {NO_TIME_PASSES}; from memplan_engine.cli.main import main; "
        "threads = lambda: os.environ.get('OPENBLAS_NUM_THREADS'); end = os._exit; "
        "tell = lambda: print(threads(), *sys.modules, file=sys.stderr); "
        "os._exit = lambda code: (tell(), end(code)); atexit.register(tell); main()"
    )
    (folder / "list.csv").write_text(BUFFERS)
    line = [sys.executable, "-c", script, *arguments]
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, env=inherited | environment
    )
    assert done.returncode == 0, done.stderr
    # The last line: kernels may have been compiled before it, which is said, too.
    threads, *modules = done.stderr.splitlines()[-1].split()
    return set(modules), threads


def test_planning_a_list_of_buffers_waits_for_nothing_that_it_does_not_use(tmp_path):
    modules, threads = modules_after(["plan", "list.csv"], tmp_path)
    assert modules & NOT_WAITED_FOR == set()
    assert {"memplan_engine.formats.csv_tables.csv_reader", "memplan_engine.strategies.auto"} <= modules
    assert threads == "1"
    with_json, _ = modules_after(["plan", "list.csv", "-o", "out.json"], tmp_path)
    assert "memplan_engine.formats.memplan_json.json_base" in with_json
    one, _ = modules_after(["plan", "list.csv", "--strategy", "partition"], tmp_path)
    assert "memplan_engine.strategies.shared_objects.assignment" in one
    assert one & {"memplan_engine.strategies.auto", "memplan_engine.strategies.exact.exact_search"} == set()


def end_of(folder, *arguments, before="pass", **options):
    """Run `memplan arguments`, which tells on stderr when it ends in good order, after `before`."""
    script = (
        f"import atexit, sys; {NO_TIME_PASSES}; from memplan_engine.cli.main import main; "
        f"atexit.register(lambda: print('in order', file=sys.stderr)); {before}; main()"
    )
    (folder / "list.csv").write_text(BUFFERS)
    line = [sys.executable, "-c", script, *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, **options)


def test_a_planner_leaves_at_once_with_all_that_it_has_to_say(tmp_path):
    rows = "".join(f"buffer {i},{i},{i + 1},64\n" for i in range(20_000))
    (tmp_path / "many.csv").write_text("id,lower,upper,size\n" + rows)
    done = end_of(tmp_path, "plan", "many.csv", "--json")
    assert done.returncode == 0
    # More than a pipe holds.
    assert len(json.loads(done.stdout)["offsets"]) == 20_000
    assert "in order" not in done.stderr
    assert end_of(tmp_path, "plan", "list.csv", "--capacity", "100").returncode == 1
    wrong = end_of(tmp_path, "plan", "missing.csv")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("memplan: missing.csv: ")


def test_verbs_that_run_other_code_end_in_good_order(tmp_path):
    done = end_of(tmp_path, "capture", "nowhere:at_all", "-o", "no/folder.json")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "in order"
    # As does one that has read a file with PyTorch.
    done = end_of(tmp_path, "plan", "list.csv", before="sys.modules['torch'] = sys")
    assert (done.returncode, done.stderr) == (0, "in order\n")


CTRL_C_AT_IMPORT = """
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, CtrlC())
"""


@pytest.mark.parametrize(
    "module", ["memplan_engine.cli.app", "numpy", "memplan_engine.formats.csv_tables.csv_reader"]
)
def test_ctrl_c_while_importing_or_reading_is_one_line(tmp_path, module):
    before = f"exec({CTRL_C_AT_IMPORT.format(module=module)!r}, globals())"
    done = end_of(tmp_path, "plan", "list.csv", before=before)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "memplan: interrupted before there was a result\n"


def test_what_cannot_be_written_is_no_success(tmp_path):
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "memplan_engine", "--version"]
        done = subprocess.run(
            line, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG_SECONDS
        )
    assert done.returncode == 2
    assert done.stderr.startswith("memplan: cannot write: ")


def test_the_verbs_are_in_the_modules_that_the_table_says_with_the_help_of_their_own():
    for verb, (module, text) in VERBS.items():
        command = load_verb(verb)
        assert command.callback.__module__ == f"memplan_engine.cli.commands.{module}"
        assert command.get_short_help_str(1_000) == text
    registered = {each.name or each.callback.__name__ for each in app.registered_commands}
    assert registered == set(VERBS)
    heavy = {"capture_command", "run_command", "devices_command", "dashboard_command"}
    assert set(HEAVY_VERBS) == {verb for verb, (module, _) in VERBS.items() if module in heavy}


def test_the_help_waits_for_no_verb(tmp_path):
    modules, _ = modules_after(["--help"], tmp_path)
    engine = {module for module in modules if module.startswith("memplan_engine")}
    assert modules & {"numpy", "numba", "pydantic", "rich", "pandas", "sympy"} == set()
    assert engine == {
        "memplan_engine",
        *(f"memplan_engine.{name}" for name in ("errors", "kernels", "cli")),
        *(f"memplan_engine.cli.{name}" for name in ("app", "main")),
    }


def test_the_options_of_a_verb_wait_for_neither_compiler_nor_json(tmp_path):
    for verb in ("plan", "diff", "run", "capture"):
        modules, _ = modules_after([verb, "--help"], tmp_path)
        assert modules & {"numba", "pydantic", "torch", "onnx", "pandas"} == set()


def test_the_help_calls_values_by_words_and_not_by_types(capsys):
    for verb in VERBS:
        with pytest.raises(SystemExit):
            app([verb, "--help"], prog_name="memplan")
        text = capsys.readouterr().out
        assert not re.search(r"<(str|int|int range|float|path)>|\{", text), text
    for verb, usage in (("plan", "FILE"), ("diff", "BASE HEAD"), ("phases", "FILE [OTHER]")):
        with pytest.raises(SystemExit):
            app([verb, "--help"], prog_name="memplan")
        assert capsys.readouterr().out.startswith(f"Usage: memplan {verb} [OPTIONS] {usage}\n")
    with pytest.raises(SystemExit):
        app(["what-if", "--help"], prog_name="memplan")
    text = capsys.readouterr().out
    for option in ("--pin NAME=OFFSET", "--capacity SIZE", "--seconds SECONDS", "-o, --output FILE"):
        assert option in text


def test_a_small_file_is_planned_before_anything_is_compiled(tmp_path):
    cache = str(tmp_path / "cache")
    for name in ("teaching_gaps.csv", "teaching_best_fit.csv"):
        file = str(ROOT / "example_graphs" / name)
        modules, _ = modules_after(["plan", file], tmp_path, NUMBA_CACHE_DIR=cache)
        assert "numba" not in modules
    assert not (tmp_path / "cache").exists()
    # Where a search is needed, its kernels are compiled or loaded.
    modules, _ = modules_after(["plan", "list.csv", "--strategy", "search"], tmp_path)
    assert "numba" in modules


@pytest.mark.parametrize("line", [["--help"], ["frobnicate"], []])
def test_the_help_has_every_verb_in_its_group(tmp_path, line):
    done = subprocess.run(
        [sys.executable, "-m", "memplan_engine", *line], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "200"}, timeout=HANG_SECONDS,
    )  # fmt: skip
    if line == ["frobnicate"]:
        assert done.stderr == "memplan: No such command 'frobnicate'. (see --help)\n"
        return
    listed, said = {}, {}
    for row in (done.stdout + done.stderr).splitlines():
        if row.removesuffix(":") in GROUPS:
            verbs = listed.setdefault(row.removesuffix(":"), [])
        elif listed and row.startswith("   "):
            said[verbs[-1]] += f" {row.strip()}"
        elif listed and row:
            verb, sentence = row.split(maxsplit=1)
            verbs.append(verb)
            said[verb] = sentence
    assert {group: tuple(verbs) for group, verbs in listed.items()} == GROUPS
    assert said == {verb: text for verb, (_, text) in VERBS.items()}


def test_the_groups_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for group, verbs in GROUPS.items():
        assert f"| {group} | {', '.join(f'`{verb}`' for verb in verbs)} |" in readme


def public_names():
    """The public names by the modules that the stub imports them from."""
    tree = ast.parse((ROOT / "memplan_engine" / "__init__.pyi").read_text())
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_former_public_names_still_work_and_say_what_they_are_called_now():
    former = memplan_engine._FORMER
    assert not former.keys() & set(memplan_engine.__all__)
    for old, now in former.items():
        with pytest.warns(DeprecationWarning, match=rf"{old} is now called {now}; .* version 1\.0"):
            assert getattr(memplan_engine, old) is getattr(memplan_engine, now)


def test_the_public_names_are_those_of_their_modules():
    homes = public_names()
    assert len(homes) > 150
    assert set(homes) == set(memplan_engine.__all__)
    for name, module in homes.items():
        home = import_module(f"memplan_engine.{module}")
        assert getattr(memplan_engine, name) is getattr(home, name)
    assert set(memplan_engine.__all__) <= set(dir(memplan_engine))
    with pytest.raises(AttributeError, match="make_plans"):
        _ = memplan_engine.make_plans
