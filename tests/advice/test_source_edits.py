"""Edits of a source by hand: which lines change, what they become, and what stays."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from memplan_engine.advice.source_edits import edited_line, move_statements, unified_diff, write_in_place
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


def test_a_line_that_calls_branches_stays_where_it_does_not_tell_which_graph_an_op_is_in() -> None:
    text = "def f(x):\n    return torch.cond(p, one, two, (x,)) * 2\n"
    graph = graph_of(text, (2, "mul", "x", "a"), (2, "cond", "a", "b"), (2, "mul", "b", "c"))
    inner, *others = graph.ops
    graph = replace(graph, ops=(replace(inner, within=(("b", "true"),)), *others))
    edited = write_in_place(text, FILE, graph, {"a": "x", "c": "b"})
    assert edited.text == text
    assert [line for line, _ in edited.left] == [2]


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
