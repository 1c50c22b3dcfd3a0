"""`memplan diff`: text, Markdown, JSON, exit codes, and names that would like to be more than names."""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise

import memplan_examples
import pytest
from markdown_it import MarkdownIt

from memplan_engine import adopt, diff, diff_markdown, load, make_plan, make_problem
from memplan_engine.files import write
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.reporters.diff_markdown import code, text
from tests.support.traced import Node, doubled, traced, transformer

#   steps   0   1   2   3   4     live: 100, 150, 150, 170, 120 in list.csv
#   b (50 → 80) lives one step longer, c is gone, d is new: 100, 180, 180, 80, 84
HEAD = "id,lower,upper,size\na,0,3,100\nb,1,5,80\nd,4,5,4\n"


@pytest.fixture
def both(tmp_path):
    """The arguments that name both sides: 170 bytes before, 180 after."""
    (tmp_path / "head.csv").write_text(HEAD)
    return "list.csv", "head.csv"


def test_the_text(memplan, both):
    code, out, err = memplan("diff", *both)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "list → head: arena +10 B (+5.9 %): 170 B → 180 B"
    assert lines[1:4] == [
        "Peak +10 B, 170 B → 180 B: +30 B because b is larger: 50 B → 80 B.",
        "−20 B because at the matching step 1 base holds 150 B; its own peak, 170 B, is at step 3.",
        "",
    ]
    table = {line.split("  ")[0]: re.split(r"\s{2,}", line)[1:] for line in lines[5:8]}
    assert table == {
        "arena": ["170 B", "180 B", "+10 B (+5.9 %)"],
        "demand": ["170 B", "180 B", "+10 B (+5.9 %)"],
        "packing loss": ["0 B", "0 B", "0 B"],
    }
    assert lines[8:10] == ["counted: the buffers listed", "the peak moved: step 3 in base, step 1 in head"]
    assert "2 buffers matched, of 3 in base and 3 in head" in out
    assert "1 only in base, 1 only in head, 1 grown, 1 longer-lived" in out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert cells[:3] == [
        ["larger tensors", "+30 B", "1", "b", "step 3 → step 4"],
        ["the base's peak is at another step", "−20 B", "", "", ""],
        ["demand", "+10 B", "", "", ""],
    ]
    assert ["b", "50 B", "80 B", "+30 B", "+30 B", "1–3 → 1–4", "grown, longer-lived"] in cells
    assert ["c", "120 B", "", "−120 B", "0 B", "3–4", "only in base"] in cells


def test_json_has_the_whole_diff(memplan, both):
    found = json.loads(memplan("diff", *both, "--format", "json")[1])
    assert found == json.loads(memplan("diff", *both, "--json")[1])
    assert (found["base"]["arena_bytes"], found["head"]["arena_bytes"]) == (170, 180)
    assert found["base"]["peak_step"] == 3
    deltas = ("arena_delta_bytes", "demand_delta_bytes", "packing_loss_delta_bytes", "peak_elsewhere_bytes")
    assert [found[key] for key in deltas] == [10, 10, 0, -20]
    assert found["causes_bytes"] == {
        "larger": 30, "new": 0, "longer": 0, "smaller": 0, "gone": 0, "shorter": 0,
    }  # fmt: skip
    assert sum(found["causes_bytes"].values()) + found["peak_elsewhere_bytes"] == 10
    assert found["explained_at"] == {
        "peak_of": "head",
        "base_step": 1,
        "head_step": 1,
        "base_bytes": 150,
        "head_bytes": 180,
        "footing": "same_op",
    }
    assert found["counts"]["same"] == 1
    assert found["matched"]["how"] == {"name": 2}
    assert "limit" not in found
    (b,) = [row for row in found["changes"] if row["base"] == row["head"] == "b"]
    assert (b["delta_bytes"], b["at_peak_bytes"], b["base_lifetime"], b["head_lifetime"]) == (
        30,
        30,
        [1, 4],
        [1, 5],
    )


def test_markdown_reads_well_as_a_comment(memplan, both):
    code, out, err = memplan("diff", *both, "--format", "markdown", "--fail-above", "5%")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "### 🔴 Memory: arena +10 B (+5.9 %): 170 B → 180 B"
    assert lines[2:5] == [
        "**Peak +10 B, 170 B → 180 B: +30 B because b is larger: 50 B → 80 B.**",
        "",
        "- −20 B because at the matching step 1 base holds 150 B; its own peak, 170 B, is at step 3.",
    ]
    assert lines[6:9] == [
        "| | base | head | change |",
        "|-|-:|-:|-:|",
        "| **arena** | **170 B** | **180 B** | **+10 B (+5.9 %)** |",
    ]
    assert "**Regression: +10 B is above the limit of 5 % (8 B).**" in lines
    assert "The peak moved: step 3 in base, step 1 in head." in lines
    assert out.count("<details>") == out.count("</details>") == 2
    row = "| <code>b</code> | 50 B | 80 B | +30 B | 1–3 → 1–4 | grown, longer-lived |  |  |"
    assert row in lines
    for before, line in pairwise(lines):
        # Every row has as many cells as the heading above it.
        if before.startswith("|") and line.startswith("|"):
            assert before.count("|") == line.count("|")
    assert len(out) < 65_536


@pytest.mark.parametrize(
    ("limit", "code"), [("5%", 1), ("6%", 0), ("9", 1), ("10", 0), ("10B", 0), ("1KiB", 0), ("0%", 1)]
)
def test_the_exit_code_says_whether_it_is_a_regression(memplan, both, limit, code):
    done, out, _ = memplan("diff", *both, "--fail-above", limit)
    assert done == code
    assert out.splitlines()[-1].startswith(
        "regression: +10 B is above" if code else "no regression: +10 B is"
    )
    found = json.loads(memplan("diff", *both, "--fail-above", limit, "--json")[1])
    assert found["limit"]["regression"] == bool(code)
    assert memplan("diff", *reversed(both), "--fail-above", limit)[0] == 0


def test_it_is_written_as_the_suffix_says(memplan, both, tmp_path):
    for name, begins in (("out.md", "### Memory"), ("out.json", "{"), ("out.txt", "list → head: arena")):
        assert memplan("diff", *both, "-o", name) == (0, "", "")
        assert (tmp_path / name).read_text().startswith(begins)
    assert memplan("diff", *both, "-o", "out.comment", "--format", "markdown")[0] == 0
    assert (tmp_path / "out.comment").read_text() == (tmp_path / "out.md").read_text()
    # The exit code and the file: a workflow wants both.
    assert memplan("diff", *both, "-o", "out.md", "--fail-above", "0") == (1, "", "")
    assert "Regression" in (tmp_path / "out.md").read_text()


def test_plans_stay_as_they_are_unless_a_strategy_is_asked_for(memplan, tmp_path):
    problem = load(tmp_path / "list.csv")
    write(adopt(problem, [0, 100, 150]), tmp_path / "loose.json")
    found = json.loads(memplan("diff", "list.csv", "loose.json", "--json")[1])
    assert (found["head"]["strategy"], found["head"]["arena_bytes"]) == ("imported", 270)
    assert (found["demand_delta_bytes"], found["packing_loss_delta_bytes"]) == (0, 100)
    assert found["changes"] == []
    again = json.loads(memplan("diff", "list.csv", "loose.json", "--json", "--strategy", "naive")[1])
    assert [again[side]["arena_bytes"] for side in ("base", "head")] == [270, 270]
    out = memplan("diff", "list.csv", "loose.json")[1]
    assert "base was placed by auto, head by imported" in out
    code, _, err = memplan("diff", "list.csv", "loose.json", "--alignment", "64")
    assert code == 2
    assert "loose.json: alignment: found 64, expected no alignment: a finished plan stays as it is" in err


def test_graphs_take_the_options_of_other_verbs(memplan, tmp_path):
    for name, layers in (("base", 1), ("head", 2)):
        write_json(traced(transformer(layers), name=name)[0], tmp_path / f"{name}.json")
    plain = json.loads(memplan("diff", "base.json", "head.json", "--json", "--alignment", "1")[1])
    assert plain["head"]["graph"] == "head"
    assert plain["base"]["peak_ops"] == ["softmax"]
    rounded = json.loads(
        memplan("diff", "base.json", "head.json", "--json", "--round-sizes", "--alignment", "4096")[1]
    )
    assert rounded["base"]["arena_bytes"] % 4096 == 0
    assert plain["base"]["arena_bytes"] < rounded["base"]["arena_bytes"]
    modules = [row["module"] for row in rounded["modules"]]
    assert modules
    assert all(row["buffers"][0]["source"].startswith("model.py:") for row in rounded["modules"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("none.csv", "list.csv"), "none.csv: no such file"),
        (
            ("list.csv", "list.csv", "--fail-above", "5XB"),
            "--fail-above: found '5XB', expected a share as in 5%",
        ),
        (("list.csv", "list.csv", "--strategy", "best"), "no strategy 'best'"),
        (("list.csv", "list.csv", "--in-place"), "list.csv: in place: found switched on, expected a graph"),
        (
            ("list.csv", "list.csv", "-o", "out.html"),
            "out.html: found the suffix '.html', expected .txt, .md",
        ),
        (("list.csv", "list.csv", "-o", "none/out.md"), "none/out.md: found a folder that does not exist"),
        (
            ("list.csv", "list.csv", "-o", "list.csv", "--format", "text"),
            "found the input file as the output",
        ),
        (("list.csv", "list.csv", "--json", "--format", "text"), "--json: found --format text, expected one"),
        (("list.csv", "list.csv", "--format", "html"), "Invalid value for '--format': "),
        (("list.csv", "list.csv", "--seconds", "0"), "--seconds: found 0, expected more than 0"),
        (("list.csv",), "Missing argument 'HEAD'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(memplan, arguments, told):
    code, out, err = memplan("diff", *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_plan_that_is_not_valid_is_no_side(memplan, tmp_path):
    write(adopt(load(tmp_path / "list.csv"), [0, 0, 0]), tmp_path / "wrong.json")
    code, out, err = memplan("diff", "list.csv", "wrong.json")
    assert (code, out) == (2, "")
    assert err.startswith("memplan: wrong.json: found ")
    assert "expected a plan that is valid" in err


def test_two_different_models_are_said_to_be_different(memplan):
    files = [memplan_examples.PATH / name for name in ("teaching_best_fit.csv", "mobilenet_v1_tflite.json")]
    code, out, _ = memplan("diff", *files)
    assert code == 0
    assert "warning: these look like two different models: only 0.0 % of the buffers" in out
    assert "> ⚠️ These look like two different models" in memplan("diff", *files, "--format", "markdown")[1]
    assert json.loads(memplan("diff", *files, "--json")[1])["related"] is False


HOSTILE = (
    "<script>alert(1)</script>",
    "a|b|c",
    "`rm -rf`",
    "**bold** _it_ ~~no~~",
    "[x](http://evil.example) www.evil.example",
    "![x](https://evil.example/x.png)",
    "@everyone #1 &amp;",
    "line\nbreak\x1b[31m\u202e",
    "$x$ \\| </code></details>",
    "n" * 5_000,
)


def test_names_are_text_in_markdown_whatever_they_hold():
    for name in HOSTILE:
        for shown in (code(name), text(name)):
            inside = shown.removeprefix("<code>").removesuffix("</code>")
            assert not re.search(r"[<>|`*~\[\]$\\@\n\x1b\u202e]", inside)
            assert not re.search(r"&(?!#?\w+;)", inside)
            assert not re.search(r"www\.|https?://|!\[", inside)
            assert len(inside) < 1_000
    assert html.unescape(code("h.0.attn.c_attn|x_1")) == "<code>h.0.attn.c_attn|x_1</code>"
    assert code("h.0.attn.c_attn_17") == "<code>h.0.attn.c_attn_17</code>"
    # A mention is broken up where it stands in text; in code nobody is called.
    assert text("@x") == "&#64;&#8203;x"
    assert code("@x") == "<code>&#64;x</code>"
    assert (code(""), text("_a_b_")) == ("", "&#95;a_b&#95;")


def test_hostile_names_change_neither_rows_nor_folds(memplan, tmp_path):
    base = [Node(f"n{i}", name, 64, module=name) for i, name in enumerate(HOSTILE[:-1])]
    head = [*doubled(base), Node("last", HOSTILE[0], 64, ("n0", "n1"), HOSTILE[1])]
    for name, nodes in (("base", base), ("head", head)):
        write_json(traced(nodes, name="<b>|net")[0], tmp_path / f"{name}.json")
    code, out, _ = memplan("diff", "base.json", "head.json", "--format", "markdown")
    assert code == 0
    tags = set(re.findall(r"</?\w+", out))
    assert tags == {"<details", "</details", "<summary", "</summary", "<code", "</code", "<sub", "</sub"}
    shown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(out)
    rendered = set(re.findall(r"<(\w+)", shown)) - {"table", "thead", "tbody", "tr", "th", "td"}
    assert rendered == {"h3", "p", "strong", "ul", "li", "details", "summary", "code", "sub"}
    cells = [html.unescape(cell) for cell in re.findall(r"<code>(.*?)</code>", shown)]
    assert {name for name in HOSTILE[:-1] if name.isprintable()} <= set(cells)
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} <= {5, 7, 9}
    assert "alert" in out
    plain = memplan("diff", "base.json", "head.json")[1]
    assert "\x1b" not in plain
    assert "\u202e" not in plain
    assert "<script>alert(1)</script>" in plain


def test_tables_end_where_a_comment_would_be_too_long():
    count = 500
    base = make_problem([0] * count, [2] * count, [64] * count, names=[f"layer{i}.out" for i in range(count)])
    head = make_problem([0] * count, [2] * count, [96] * count, names=[f"layer{i}.out" for i in range(count)])
    out = diff_markdown(diff(make_plan(base, "naive"), make_plan(head, "naive")))
    assert out.count("| and 460 more |") == 2
    assert len(out) < 65_536


def test_the_workflow_of_the_docs_gives_a_comment_and_fails_the_check(memplan, tmp_path):
    page = (memplan_examples.PATH.parent / "docs" / "diff.md").read_text("utf-8")
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (line,) = re.findall(r"run: memplan (diff .*)$", workflow, re.MULTILINE)
    assert (
        len(re.findall(r"run: memplan capture \S+ -o \.\./(?:base|head)\.json$", workflow, re.MULTILINE)) == 2
    )
    for side, path in zip(("base", "head"), memplan_examples.pairs()["kept_view"], strict=True):
        (tmp_path / f"{side}.json").write_bytes(path.read_bytes())
    assert memplan(*line.split()) == (1, "", "")
    assert "Regression: +4 MiB is above the limit of 5 %" in (tmp_path / "memory.md").read_text("utf-8")
    assert workflow.count("memory.md") == 3


def test_lists_of_one_name_are_called_as_their_files_and_speak_of_buffers(memplan, tmp_path):
    for name, size in (("before", 4), ("after", 6)):
        write_json(make_problem([0, 1], [2, 3], [size, 3], name="mine"), tmp_path / f"{name}.json")
    code, out, _ = memplan("diff", "before.json", "after.json")
    assert (code, out.splitlines()[0]) == (0, "before → after: arena +2 B (+28.6 %): 7 B → 9 B")
    assert "step 1 of head (9 B) beside step 1 of base (7 B), where the same buffer starts" in out
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "before.json").write_bytes((tmp_path / "before.json").read_bytes())
    _, out, _ = memplan("diff", "before.json", "again/before.json", "--json")
    sides = json.loads(out)
    assert (sides["base"]["graph"], sides["head"]["graph"]) == ("before.json", "again/before.json")
