"""The `memplan` command: verbs, exit codes, one-line errors, JSON for machines."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys

import pytest

from memplan_engine import known_strategies, load, make_plan
from memplan_engine.files import write
from memplan_engine.plan import Plan
from tests.support.buffer_list import BUFFERS
from tests.support.waiting import HANG_SECONDS
from tests.test_lifetimes import CHAIN


def test_plan_as_a_table(memplan):
    code, out, err = memplan("plan", "list.csv")
    assert (code, err) == (0, "")
    rows = dict(re.split(" {2,}", line, maxsplit=1) for line in out.splitlines() if "  " in line)
    assert rows["graph"].strip() == "list, 3 buffers, 5 steps"
    assert rows["strategy"].startswith("auto (")
    assert rows["arena"].strip() == "170 B"
    assert rows["peak live bytes"].strip() == "170 B at step 3"
    assert "37.0 % (270 B without reuse)" in out
    assert "optimal for the buffers listed: the arena equals the live bytes at step 3 (2 buffers)" in out


def test_plan_for_machines(memplan):
    code, out, _ = memplan("plan", "list.csv", "--strategy", "linear_scan", "--json")
    found = json.loads(out)
    assert code == 0
    assert found.pop("seconds") >= 0
    assert found.pop("offsets") == {"a": 0, "b": 100, "c": 150}
    assert found == {
        "graph": "list",
        "strategy": "linear_scan",
        "parameters": {"fit": "best"},
        "buffers": 3,
        "steps": 5,
        "arena_bytes": 270,
        "workspace_bytes": 0,
        "total_bytes": 270,
        "scope": "buffers",
        "counted": "the buffers listed",
        "assumed": [],
        "doubts": [],
        "lower_bound_bytes": 170,
        "bound_kind": "load",
        "bound_step": 3,
        "optimal": False,
        "optimal_for": "the buffers listed",
        "gap": pytest.approx(100 / 170),
        "naive_bytes": 270,
        "constants_bytes": 0,
        "peak_step": 3,
        "peak_bytes": 170,
        "holes_at_peak_bytes": 100,
        "symbols": {},
        "unique_workspaces_bytes": 0,
        "shared_workspace_bytes": 0,
        "unknown_sizes": [],
        "nodes": 0,
        "threads": 1,
        "cut_short": False,
    }


def test_alignment_is_asked_for_in_bytes(memplan):
    found = json.loads(memplan("plan", "list.csv", "--alignment", "64", "--json")[1])
    assert (found["lower_bound_bytes"], found["bound_kind"], found["naive_bytes"]) == (
        178,
        "aligned load",
        312,
    )


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_a_plan_that_is_written_is_valid_and_comes_back(memplan, tmp_path, suffix):
    code, _, err = memplan("plan", "list.csv", "-o", f"out.{suffix}")
    assert (code, err) == (0, "")
    code, out, err = memplan("validate", f"out.{suffix}")
    assert (code, err) == (0, "")
    assert out.startswith("valid: 3 buffers in 170 B; optimal")
    first = json.loads(memplan("plan", f"out.{suffix}", "--strategy", "greedy_by_size", "--json")[1])
    assert first["arena_bytes"] == 170
    again = load(tmp_path / f"out.{suffix}")
    assert isinstance(again, Plan) == (suffix == "json")
    if suffix == "json":
        assert again == make_plan(load(tmp_path / "list.csv"))


def test_a_suffix_that_cannot_be_written_is_named_and_nothing_is_left(memplan, tmp_path):
    code, out, err = memplan("plan", "list.csv", "-o", "out.xml")
    assert (code, out) == (2, "")
    assert err == "memplan: out.xml: found the suffix '.xml', expected .json or .csv\n"
    assert [path.name for path in tmp_path.iterdir()] == ["list.csv"]


def test_a_folder_that_is_not_there_is_named(memplan):
    code, _, err = memplan("plan", "list.csv", "-o", "none/out.json")
    assert code == 2
    assert err == "memplan: none/out.json: found a folder that does not exist, expected an existing folder\n"


def test_compare_all_as_a_table(memplan):
    code, out, err = memplan("compare", "list.csv")
    assert (code, err) == (0, "")
    assert "list: 3 buffers, lower bound 170 B" in out
    rows = [line.split("│") for line in out.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == list(known_strategies())
    cells = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    assert cells["naive"][:3] == ["270 B", "58.8 %", "0.0 %"]
    assert [cell.strip() for cell in rows[0][1:4]] == ["auto", "170 B", "0.0 %"]
    assert rows[0][6].strip() == "arena optimal"
    assert "counted: the buffers listed" in out


def test_compare_some_for_machines_in_the_order_asked_for(memplan):
    code, out, _ = memplan("compare", "list.csv", "--strategies", "naive, auto", "--json")
    assert code == 0
    assert [(row["strategy"], row["arena_bytes"]) for row in json.loads(out)] == [
        ("naive", 270),
        ("auto", 170),
    ]


def test_peak_as_a_table_and_for_machines(memplan):
    code, out, _ = memplan("peak", "list.csv")
    assert code == 0
    sentence, title, *_ = out.splitlines()
    assert sentence == "Peak 170 B at step 3: c 120 B (71 %); b 50 B (29 %)"
    assert title.strip() == "list: 170 B live at step 3"
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines() if line[:1] == "│"]
    assert rows == [["c", "120 B", "70.6 %"], ["b", "50 B", "29.4 %"]]
    found = json.loads(memplan("peak", "list.csv", "--json")[1])
    assert (found["peak_step"], found["peak_bytes"], found["ops"]) == (3, 170, [])
    assert [(part["name"], part["bytes"]) for part in found["contributors"]] == [("c", 120), ("b", 50)]


def test_what_is_live_at_a_step_as_a_tree_and_against_another(memplan):
    found = json.loads(memplan("peak", "list.csv", "--step", "0", "--by", "module", "--json")[1])
    assert (found["step"], found["bytes"]) == (0, sum(each["bytes"] for each in found["children"]))
    code, out, _ = memplan("peak", "list.csv", "--minus", "0")
    assert (code, out.splitlines()[0]) == (0, "list, step 3 minus step 0: 70 B")
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in out.splitlines() if line[:1] == "│"]
    assert rows == [["c", "+120 B"], ["a", "−100 B"], ["b", "+50 B"]]
    code, out, err = memplan("peak", "list.csv", "--step", "99")
    assert (code, out) == (2, "")
    assert "--step: found step 99, expected 0 to" in err


def test_peak_shows_25_rows_unless_all_are_asked_for(memplan, tmp_path):
    (tmp_path / "many.csv").write_text("id,lower,upper,size\n" + "".join(f"b{i},0,1,10\n" for i in range(30)))
    short, whole = memplan("peak", "many.csv")[1], memplan("peak", "many.csv", "--all")[1]
    assert "and 5 more" in short
    assert "50 B" in short
    assert "b29" in whole
    assert "more" not in whole


def test_a_graph_has_ops_constants_and_inputs(memplan, tmp_path):
    write(CHAIN, tmp_path / "net.json")
    code, out, _ = memplan("peak", "net.json")
    assert code == 0
    assert out.splitlines()[0] == "Graph peak 70 B at i (step 3): d 40 B (57 %); c 30 B (43 %)"
    held = "on the device at most 178 B at one step: weights 100 B, activations 70 B, inputs 8 B"
    assert out.splitlines()[1] == held
    facts = json.loads(memplan("peak", "net.json", "--json")[1])
    assert facts["on_device"] == {"weights": 100, "activations": 70, "inputs": 8}
    assert "op i" in out.splitlines()[2]
    found = json.loads(memplan("plan", "net.json", "--json")[1])
    assert (found["graph"], found["buffers"], found["steps"], found["constants_bytes"]) == ("net", 4, 4, 100)
    assert json.loads(memplan("plan", "net.json", "--plan-inputs", "--json")[1])["buffers"] == 5
    assert "100 B, separate" in memplan("plan", "net.json")[1]


def test_validate_fails_with_1_and_names_both_buffers(memplan, tmp_path):
    (tmp_path / "bad.csv").write_text("id,lower,upper,size,offset\na,0,3,100,0\nb,1,4,50,90\n")
    code, out, err = memplan("validate", "bad.csv")
    assert (code, err) == (1, "")
    assert out.splitlines()[0] == "not valid"
    assert "a and b overlap at steps 1–2 in bytes 90–99 (10 bytes)" in out
    code, out, _ = memplan("validate", "bad.csv", "--json")
    found = json.loads(out)
    assert (code, found["valid"], found["counts"]) == (1, False, {"overlap": 1})
    assert found["violations"][0] | {"message": ""} == {
        "rule": "overlap",
        "buffers": ["a", "b"],
        "steps": [1, 3],
        "bytes": [90, 100],
        "message": "",
    }


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("list.csv", "list.csv: line 1: found no column offset, expected an offset for every buffer"),
        (
            "net.json",
            "net.json: found a graph, expected a finished plan, as `memplan plan FILE -o` writes it",
        ),
        (
            "problem.json",
            "problem.json: found buffers without offsets, "
            "expected a finished plan, as `memplan plan FILE -o` writes it",
        ),
    ],
)
def test_validate_wants_a_finished_plan(memplan, tmp_path, file, message):
    write(CHAIN, tmp_path / "net.json")
    write(load(tmp_path / "list.csv"), tmp_path / "problem.json")
    assert memplan("validate", file) == (2, "", f"memplan: {message}\n")


def test_strategies_with_their_sources(memplan):
    code, out, _ = memplan("strategies", "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == list(known_strategies())
    lines = [line.split("│")[1:4] for line in memplan("strategies")[1].splitlines() if line[:1] == "│"]
    # Long cells go on in the next line.
    names, _, sources = (" ".join(" ".join(cells).split()) for cells in zip(*lines, strict=True))
    for strategy in known_strategies().values():
        assert strategy.name in names.split()
        assert strategy.source in sources


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "none.csv"], "none.csv: no such file, expected the path of a file"),
        (["plan", "."], ".: found a folder, expected a file"),
        (["plan", "list.csv", "--strategy", "best"], "no strategy 'best'; there are: auto, "),
        (["compare", "list.csv", "--strategies", "auto,"], "no strategy ''; there are: auto, "),
        (["plan", "list.csv", "--alignment", "0"], "list.csv: alignment: found 0, expected 1 or more bytes"),
        (
            ["plan", "list.csv", "--alignment", "9" * 30],
            "list.csv: column alignment: found values that are not",
        ),
        (["plan", "list.csv", "--symbol", "batch"], "--symbol: found 'batch', expected NAME=VALUE"),
        (["plan", "list.csv", "--symbol", "batch=-1"], "--symbol: found 'batch=-1'"),
        (["plan", "list.csv", "--dim", "batch=" + "1" * 5000], "--symbol: found 'batch=111"),
        (["plan", "list.csv", "--dim", "=4"], "--symbol: found '=4'"),
        (["dashboard", "none.csv"], "none.csv: no such file, expected a file to open"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(memplan, arguments, message):
    code, out, err = memplan(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "Missing argument 'FILE'."),
        (["frobnicate"], "No such command 'frobnicate'."),
        (["plan", "list.csv", "--alignment", "x"], "Invalid value for '--alignment': "),
        (["plan", "list.csv", "--unread", "maybe"], "Invalid value for '--unread': "),
        (["plan", "list.csv", "--no"], "No such option: --no"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(memplan, arguments, message):
    code, out, err = memplan(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"memplan: {message}")
    assert err.endswith(" (see --help)\n")
    assert err.count("\n") == 1


def test_without_a_verb_there_is_the_help(memplan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = memplan()
    assert code == 2
    assert "Usage: memplan" in out + err
    verbs = [line.split()[0] for line in (out + err).split("Plan:")[1].splitlines() if line.strip()]
    assert verbs[:3] == ["plan", "compare", "what-if"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"id,lower,upper,size\n", "no rows"),
        (b"id,lower,upper,size\na,0,3,-1\n", "line 2, field size: found '-1'"),
        (b"id,lower,upper,size\na,0,3,nan\n", "line 2, field size: found 'nan'"),
        (b"id,lower,upper,size\na,3,3,1\n", "line 2"),
        (b"id,lower,upper,size\na,0,1,1\na,0,1,1\n", "line 3, field id: found 'a', already on line 2"),
        (b"id,lower,upper,size\na,0,1,99999999999999999999\n", "whole number below 2^63"),
        (b"id,lower,upper,size\n\xff,0,1,1\n", "0xff"),
        (b"{", "broken.csv"),
        (random.Random(1).randbytes(4096), "broken.csv"),
    ],
    ids=["empty", "no rows", "negative", "nan", "end", "twice", "huge", "latin", "brace", "garbage"],
)
@pytest.mark.parametrize("verb", ["plan", "compare", "peak", "validate"])
def test_no_verb_fails_with_a_traceback_on_a_broken_file(memplan, tmp_path, verb, content, message):
    (tmp_path / "broken.csv").write_bytes(content)
    code, out, err = memplan(verb, "broken.csv")
    assert (code, out) == (2, "")
    assert err.startswith("memplan: broken.csv")
    assert message in err
    assert err.count("\n") == 1


def test_markup_and_control_characters_in_names_are_only_text(memplan, tmp_path):
    (tmp_path / "names.csv").write_text(
        "id,lower,upper,size\n[red]x[/red],0,1,5\n\x1b[2Jy,0,1,5\n", encoding="utf-8"
    )
    out = memplan("peak", "names.csv")[1]
    assert "[red]x[/red]" in out
    assert "\x1b" not in out


def run(arguments, folder, **environment):
    (folder / "list.csv").write_text(BUFFERS.replace("a,", "é,"), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-c", "from memplan_engine.cli.main import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=HANG_SECONDS,
    )


def test_a_terminal_without_the_letters_is_no_reason_to_fail(tmp_path):
    table = run(["peak", "list.csv"], tmp_path, PYTHONIOENCODING="ascii")
    assert (table.returncode, table.stderr) == (0, b"")
    assert b"170 B live at step 3" in table.stdout
    found = json.loads(run(["plan", "list.csv", "--json"], tmp_path, PYTHONIOENCODING="ascii").stdout)
    assert found["graph"] == "list"


def test_a_reader_that_closes_the_pipe_early_is_no_failure(tmp_path):
    read, write_ = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", "from memplan_engine.cli.main import main; main()", "strategies"],
        stdout=write_,
        stderr=subprocess.PIPE,
        timeout=HANG_SECONDS,
    )
    os.close(write_)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "list.csv", "--symbol", "b=3"],
            "list.csv: symbols: found b=3, expected a graph: buffers have no ops",
        ),
        (
            ["plan", "list.csv", "-o", "list.csv"],
            "list.csv: found the input file as the output, expected another name: the input would be "
            "overwritten",
        ),
        (["plan", "list.csv", "-o", "list.txt"], "list.txt: found the suffix '.txt', expected .json or .csv"),
        (
            ["capture", "nowhere:at_all", "-o", "no/folder.json"],
            "no/folder.json: found a folder that does not exist, expected an existing folder",
        ),
    ],
)
def test_what_cannot_be_is_said_before_the_work_and_changes_nothing(memplan, tmp_path, arguments, message):
    assert memplan(*arguments) == (2, "", f"memplan: {message}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["list.csv"]
    assert (tmp_path / "list.csv").read_text() == BUFFERS


def test_an_example_tells_its_lesson(memplan, tmp_path):
    header = "# title: A lesson\n# shows: how it goes\n# optimum: 170 bytes\n# why: two of them meet\n"
    (tmp_path / "lesson.csv").write_text(header + BUFFERS)
    _, out, _ = memplan("plan", "lesson.csv")
    assert out.splitlines()[-3:] == ["A lesson", "how it goes", "optimum: 170 bytes, for two of them meet"]
    assert "lesson" not in memplan("plan", "list.csv")[1]


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "memplan_engine", "strategies"]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "memplan: cannot write: No space left on device\n"


def test_version(memplan):
    assert memplan("--version") == (0, "memplan 0.1.0\n", "")
