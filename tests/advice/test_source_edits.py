"""Edits of a source by hand: which lines change, what they become, and what stays."""

from __future__ import annotations

import ast
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from memplan_engine.advice.moved_statements import forget_names, move_statements
from memplan_engine.advice.source_edits import Edited, edited_line, unified_diff, write_in_place
from memplan_engine.graph import Graph, Op, Phase, Role, Source, Storage, Tensor

FILE = "net.py"


def graph_of(text: str, *ops: tuple[int, str, str, str], module: str = "") -> Graph:
    """A graph of ops (line of `text`, kind, inputs, output)."""
    lines = text.splitlines()
    made = {name for *_, name in ops}
    names = dict.fromkeys(["x", *(each for _, _, inputs, _ in ops for each in inputs.split()), *made])
    roles = {name: Role.ACTIVATION if name in made else Role.INPUT for name in names}
    return Graph(
        "hand",
        tuple(Storage(name, 4, roles[name]) for name in names),
        tuple(Tensor(name, (1,), "float32", 4, name) for name in names),
        tuple(
            Op(name, f"aten.{kind}", tuple(ins.split()), (name,), (), module, Source(FILE, n, lines[n - 1]))
            for n, kind, ins, name in ops
        ),
        tuple(name for name in names if name not in made),
        (),
    )


@pytest.mark.parametrize(
    ("line", "kind", "inputs", "expected"),
    [
        ("y = F.relu(x)", "relu", "x", "y = F.relu(x, inplace=True)"),
        ("y = F.leaky_relu(x, 0.2)", "leaky_relu", "x", "y = F.leaky_relu(x, 0.2, inplace=True)"),
        ("y = torch.exp(x)", "exp", "x", "y = torch.exp_(x)"),
        ("y = self.a(x).sigmoid()", "sigmoid", "x", "y = self.a(x).sigmoid_()"),
        ("x = x + w", "add", "x w", "x += w"),
        ("x = x * (w + 1)", "mul", "x w", "x *= w + 1"),
        ("y = x + w", "add", "x w", "y = x.add_(w)"),
        ("return x - (w + 1)", "sub", "x w", "return x.sub_(w + 1)"),
        ("return F.relu(x)  # ä: é", "relu", "x", "return F.relu(x, inplace=True)  # ä: é"),
    ],
)
def test_a_line_becomes_its_form_in_place(line: str, kind: str, inputs: str, expected: str) -> None:
    text = f"def f(self, x, w):\n    {line}\n"
    edited = write_in_place(text, FILE, graph_of(text, (2, kind, inputs, "y")), {"y": "x"})
    assert edited.text == f"def f(self, x, w):\n    {expected}\n"
    assert (edited.lines, edited.left) == ((2,), ())


@pytest.mark.parametrize(
    ("line", "kind", "inputs", "over"),
    [
        ("y = F.relu(x, inplace=False)", "relu", "x", "x"),
        ("y = F.relu(x) + F.relu(w)", "relu", "x", "x"),
        ("y = x + scale", "add", "x", "x"),
        ("y = x.T + w", "add", "x w", "x"),
        ("y = w - x", "sub", "w x", "x"),
        ("y = F.gelu(x)", "gelu", "x", "x"),
        ("x = w - x", "sub", "w x", "x"),
        ("y = torch.exp_(x)", "exp", "x", "x"),
    ],
)
def test_a_line_without_such_a_form_stays_and_is_named(line: str, kind: str, inputs: str, over: str) -> None:
    text = f"def f(self, x, w):\n    {line}\n"
    edited = write_in_place(text, FILE, graph_of(text, (2, kind, inputs, "y")), {"y": over})
    assert (edited.text, edited.lines) == (text, ())
    assert [line for line, _ in edited.left] == [2]


def test_of_two_changes_one_within_the_other_one_is_made() -> None:
    text = "def f(x, y):\n    x = x + F.relu(y)\n"
    graph = graph_of(text, (2, "relu", "y", "a"), (2, "add", "x a", "b"))
    edited = write_in_place(text, FILE, graph, {"a": "y", "b": "x"})
    assert edited.text.splitlines()[1] == "    x = x + F.relu(y, inplace=True)"
    assert edited.left == ((2, "one change of the line stands within another"),)
    source = graph.ops[0].source
    assert source is not None
    assert edited_line(graph, source, {"a": "y", "b": "x"}) == "x += F.relu(y, inplace=True)"


def test_a_line_that_is_in_place_in_one_run_only_stays() -> None:
    text = "def f(x):\n    return F.relu(x)\n"
    graph = graph_of(text, (2, "relu", "x", "a"), (2, "relu", "a", "b"))
    assert write_in_place(text, FILE, graph, {"b": "a"}).left == (
        (2, "the line runs several times, and not each time in place"),
    )
    assert write_in_place(text, FILE, graph, {"a": "x", "b": "a"}).lines == (2,)


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        ("return F.relu(x)", "relu", "return F.relu(x, inplace=True)"),
        ("a = torch.exp(x)  # hot", "exp", "a = torch.exp_(x)  # hot"),
        ("F.relu(x),", "relu", "F.relu(x, inplace=True),"),
        ("self.act(x)", "relu", ""),
        ("F.relu(", "relu", ""),
        ("y = F.relu(x) + F.relu(w)", "relu", ""),
    ],
)
def test_a_line_alone_tells_how_it_reads_in_place(line: str, kind: str, expected: str) -> None:
    graph = graph_of(f"\n\n\n{line}\n", (4, kind, "x", "y"))
    assert edited_line(graph, Source(FILE, 4, line), {"y": "x"}) == expected
    assert edited_line(graph, Source(FILE, 5, line), {"y": "x"}) == ""


def test_a_line_reads_in_place_only_where_all_its_ops_do() -> None:
    line = "a = torch.tanh(F.relu(x))"
    graph = graph_of(line, (1, "relu", "x", "a"), (1, "tanh", "a", "b"))
    both = edited_line(graph, Source(FILE, 1, line), {"a": "x", "b": "a"})
    assert both == "a = torch.tanh_(F.relu(x, inplace=True))"
    assert edited_line(graph, Source(FILE, 1, line), {"b": "a"}) == "a = torch.tanh_(F.relu(x))"
    line = "a = torch.tanh(x + scale)"
    graph = graph_of(line, (1, "add", "x", "a"), (1, "tanh", "a", "b"))
    assert edited_line(graph, Source(FILE, 1, line), {"a": "x", "b": "a"}) == ""


def test_a_line_that_is_in_place_in_one_run_only_reads_as_it_did() -> None:
    line = "a = F.relu(x)"
    graph = graph_of(line, (1, "relu", "x", "a"), (1, "relu", "a", "b"))
    assert edited_line(graph, Source(FILE, 1, line), {"b": "a"}) == ""


def test_a_layer_is_changed_where_it_is_made() -> None:
    text = "def init(self):\n    self.act = nn.ReLU()\n\ndef f(self, x):\n    return self.act(x)\n"
    graph = graph_of(text, (5, "relu", "x", "y"), module="act")
    edited = write_in_place(text, FILE, graph, {"y": "x"})
    assert edited.text == text.replace("nn.ReLU()", "nn.ReLU(inplace=True)")
    assert edited.lines == (2,)


def test_a_graph_of_another_version_of_the_file_changes_nothing() -> None:
    text = "def f(x):\n    return F.relu(x)\n"
    graph = graph_of(text, (2, "relu", "x", "y"))
    other = text.replace("relu(x)", "relu(x + 1)")
    assert write_in_place(other, FILE, graph, {"y": "x"}).text == other
    assert write_in_place(text, "other.py", graph, {"y": "x"}).text == text


def test_what_a_backward_pass_does_on_a_line_is_no_run_of_it() -> None:
    text = "def f(x):\n    return F.relu(x)\n"
    graph = graph_of(text, (2, "relu", "x", "y"))
    backward = replace(graph, ops=tuple(replace(op, phase=Phase.BACKWARD) for op in graph.ops))
    assert write_in_place(text, FILE, backward, {"y": "x"}).text == text


BRANCHES = """def f(x):
    a = x.big()
    b = x.big()
    a = a.exp_()
    left = a.sum()
    right = b.sum()
    return left + right
"""


def test_statements_follow_the_order_of_their_ops_as_far_as_names_let_them() -> None:
    graph = graph_of(
        BRANCHES, (3, "big", "x", "b"), (6, "sum", "b", "right"), (2, "big", "x", "a"),
        (4, "exp", "a", "a2"), (5, "sum", "a2", "left"), (7, "add", "left right", "out"),
    )  # fmt: skip
    edited = move_statements(BRANCHES, FILE, graph)
    lines = BRANCHES.splitlines()
    assert edited.text.splitlines() == [lines[n] for n in (0, 2, 5, 1, 3, 4, 6)]
    # Against the names nothing moves: left reads a after the write.
    wrong = graph_of(BRANCHES, (5, "sum", "a", "left"), (4, "exp", "a", "a2"), (2, "big", "x", "a"))
    moved = move_statements(BRANCHES, FILE, wrong).text.splitlines()
    assert moved.index(lines[1]) < moved.index(lines[3]) < moved.index(lines[4])


def test_statements_stay_where_the_order_is_theirs_and_across_what_is_no_assignment() -> None:
    text = "def f(x):\n    a = x.big()\n    print(a)\n    b = x.big()\n    return a + b\n"
    graph = graph_of(text, (4, "big", "x", "b"), (2, "big", "x", "a"))
    assert move_statements(text, FILE, graph).text == text
    assert move_statements(BRANCHES, FILE, graph_of(BRANCHES, (2, "big", "x", "a"))).text == BRANCHES


LAYERS = """class Block:
    def forward(self, x):
        return self.conv(x)

class Net:
    def forward(self, x):
        a = self.left(x)
        b = self.blocks[1](x)
        c = self.small(a)
        d = half(b)
        return c + d

def half(x):
    return x[0]
"""


def test_a_statement_has_the_ops_of_the_layers_and_functions_that_it_calls() -> None:
    # In the order left, small, blocks.1, half; each op stands in a line of what is called.
    made = [(3, "conv", "x", "a"), (3, "conv", "a", "c"), (3, "conv", "x", "b"), (14, "select", "b", "d")]
    layers = ["net.left.conv", "net.small.conv", "net.blocks.1.conv", "net"]
    graph = graph_of(LAYERS, *made)
    ops = tuple(replace(op, module=layer) for op, layer in zip(graph.ops, layers, strict=True))
    lines = LAYERS.splitlines()
    edited = move_statements(LAYERS, FILE, replace(graph, ops=ops))
    assert edited.text.splitlines() == [*lines[:7], lines[8], lines[7], *lines[9:]]
    assert edited.lines == (8, 9)
    # A layer of that name of somebody else, beside whom the others do not lie, tells nothing.
    other = replace(ops[1], module="other.small.conv")
    alike = replace(graph, ops=(ops[0], ops[2], ops[1], ops[3], other))
    assert move_statements(LAYERS, FILE, alike).text == LAYERS


def test_names_end_behind_their_last_reader_where_they_live_in_one_block() -> None:
    text = (
        "def f(self, x):\n"
        "    a = big(x)\n"
        "    s = a.sum()\n"
        "    b, c = two(x)\n"
        "    x = x + b\n"
        "    t = b + c\n"
        "    u = [s for s in c]\n"
        "    return s + t\n"
        "\n"
        "def g(x):\n"
        "    a = big(x)\n"
        "    return small(a)\n"
    )
    lines = text.splitlines()
    forgotten = forget_names(Edited(text, (3,))).text.splitlines()
    assert forgotten == [
        *lines[:3],
        "    del a",
        *lines[3:6],
        "    del b",
        lines[6],
        "    del c",
        *lines[7:],
    ]
    # Of functions in which nothing was moved nothing changes.
    assert forget_names(Edited(text, ())).text == text


READ = "the name is read below as well, where this run did not come"
ELSEWHERE = "the layer is called in another line as well, where this run did not come"


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("z = torch.exp(x)\nif skip:\n    z = z + x\nreturn z", 2, READ),
        ("z = x.exp()\nreturn z if not skip else x", 2, READ),
        ("z = x + w\nreturn z if not skip else x", 2, READ),
        ("z = torch.exp(x)\ndef later():\n    return x\nreturn z", 2, READ),
        ("x = torch.exp(x)\nreturn x + 1", 2, ""),
        ("z = torch.exp(x)\nx = z + 1\nreturn x", 2, ""),
        ("if skip:\n    z = torch.exp(x)\n    x = z\nreturn x", 3, ""),
        ("z = self.exp(x)\nreturn z", 2, "no call or operator in the line that is this op alone"),
        ("z = np.exp(x)\nreturn z", 2, "no call or operator in the line that is this op alone"),
        ("z = helper(x)\nreturn z", 2, "the op runs in what is called there, not in the line"),
    ],
)
def test_what_another_run_may_read_is_not_written_over(body: str, line: int, said: str) -> None:
    body = body.replace("\n", "\n        ")
    text = f"class N:\n    def f(self, x, w, skip):\n        {body}\nimport numpy as np\n"
    kind = "add" if "x + w" in body else "exp"
    graph = graph_of(text, (line + 1, kind, "x w" if kind == "add" else "x", "y"))
    edited = write_in_place(text, FILE, graph, {"y": "x"})
    assert (edited.text == text, edited.left) == (bool(said), ((line + 1, said),) if said else ())


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("return self.act(x)", ""),
        ("if self.training:\n        return self.act(x) + x\n    return self.act(x)", ELSEWHERE),
        ("z = self.act(x)\n    if self.training:\n        z = z + x\n    return z", READ),
    ],
)
def test_a_layer_is_changed_where_all_of_its_calls_were_seen(calls: str, said: str) -> None:
    text = f"def init(self):\n    self.act = nn.ReLU()\n\ndef f(self, x):\n    {calls}\n"
    seen = max(n for n, each in enumerate(text.splitlines(), 1) if "self.act(x)" in each)
    edited = write_in_place(text, FILE, graph_of(text, (seen, "relu", "x", "y"), module="act"), {"y": "x"})
    assert (edited.text == text, edited.left) == (bool(said), ((seen, said),) if said else ())


@pytest.mark.parametrize(
    ("code", "line", "kind", "expected"),
    [
        ("z = F.relu(\n    x,\n)", 1, "relu", "z = F.relu(\n    x, inplace=True,\n)"),
        ("z = F.relu((x))", 1, "relu", "z = F.relu((x), inplace=True)"),
        ("z = F.leaky_relu(x, negative_slope=(0.1))", 1, "leaky_relu", None),
        ("z = fn.silu(x)", 1, "silu", "z = fn.silu(x, inplace=True)"),
        ("z = torch.nn.functional.silu(x)", 1, "silu", "z = torch.nn.functional.silu(x, inplace=True)"),
        ("x = x + (w\n    * 2)", 1, "add", "x += (w\n    * 2)"),
        ("a = '\u2028'; z = torch.exp(x)", 1, "exp", "a = '\u2028'; z = torch.exp_(x)"),
        ("a = 1\f\nz = torch.exp(x)", 2, "exp", "a = 1\f\nz = torch.exp_(x)"),
    ],
)
def test_an_edit_keeps_the_form_of_a_call(code: str, line: int, kind: str, expected: str | None) -> None:
    head = "import torch.nn.functional as fn\n"
    text = head + code + "\n"
    graph = graph_of("\n" * 9, (line + 1, kind, "x w" if kind == "add" else "x", "y"))
    code_of = text.split("\n")[line].strip()
    ops = tuple(replace(op, source=Source(FILE, line + 1, code_of)) for op in graph.ops)
    edited = write_in_place(text, FILE, replace(graph, ops=ops), {"y": "x"})
    if expected is None:
        expected = code[:-1] + ", inplace=True)"
    assert edited.text == f"{head}{expected}\n"
    ast.parse(edited.text)


def test_lines_that_are_added_end_as_those_of_the_file() -> None:
    text = BRANCHES.replace("\n", "\r\n")
    graph = graph_of(BRANCHES, (2, "big", "x", "a"), (4, "exp", "a", "a2"), (5, "sum", "a2", "left"),
        (3, "big", "x", "b"), (6, "sum", "b", "right"), (7, "add", "left right", "out"))  # fmt: skip
    edited = forget_names(move_statements(text, FILE, graph))
    assert "    del a\r\n" in edited.text
    assert edited.text.count("\n") == edited.text.count("\r\n") == text.count("\n") + 2
    # GNU patch takes a name with a space in it up to a tab.
    assert unified_diff("a\n", "b\n", "my net.py").startswith("--- a/my net.py\t\n+++ b/my net.py\t\n")


@pytest.mark.parametrize("tool", [["patch", "-p1"], ["git", "apply"]])
@pytest.mark.parametrize("end", ["\n", ""])
def test_the_diff_is_applied_by_the_tools_that_people_have(tool: list[str], end: str, tmp_path: Path) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"no {tool[0]} here")
    before, after = f"a = 1\nb = 2\nc = 3{end}", f"a = 1\nb = 20\nc = 30{end}"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/net.py").write_text(before)
    (tmp_path / "out.patch").write_text(unified_diff(before, after, "folder/net.py"))
    argument = ["-i", "out.patch"] if tool[0] == "patch" else ["out.patch"]
    subprocess.run([*tool, *argument], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "folder/net.py").read_text() == after
    assert unified_diff(before, before, "x") == ""
