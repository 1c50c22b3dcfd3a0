"""What If, Loop and Scan hold inside, against values by hand, flat models and ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from memplan_engine import Graph, ImportOptions, Role, load, make_plan, to_problem
from memplan_engine.analysis.claims import doubt, unknown_insides
from memplan_engine.formats.onnx_model.onnx_wire import MOST_NESTED
from memplan_engine.formats.order_files import write_order
from memplan_engine.graph import storage_bytes
from memplan_engine.profile import load_of
from memplan_engine.schedule import Schedule, in_order_of
from memplan_engine.verdict import Reason
from tests.formats.onnx_models import model, node, read, refusal, value, weight
from tests.support.dynamic_models import shapes_at, sizes_at

BOOL, I64 = TensorProto.BOOL, TensorProto.INT64
FLAG, TRIPS = value("flag", kind=BOOL), value("trips", kind=I64)
X = value("x", 4, 8)
SMALL = 4 * 8 * 4
WIDE = 4 * 512 * 4
WEIGHTS = [weight("up", np.ones((8, 512), np.float32)), weight("down", np.ones((512, 8), np.float32))]
GO = weight("go", np.bool_(True))
COUNTERS = 8 + 1
"""An iteration's number and the condition."""


def graph(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    weights: Sequence[TensorProto] = (),
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "inner", list(inputs), list(outputs), list(weights))


def plain(name: str) -> onnx.ValueInfoProto:
    """A value of which only the element type is declared."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def layers(start: str, end: str) -> list[onnx.NodeProto]:
    """At its fullest this holds two values of WIDE bytes."""
    return [
        node("MatMul", f"{start} up", "wide"),
        node("Relu", "wide", "act"),
        node("MatMul", "act down", end),
    ]


def choice(*then: onnx.NodeProto, otherwise: str = "Neg", of: str = "x", to: str = "y") -> onnx.NodeProto:
    """An If whose first branch gives "t"."""
    other = graph([node(otherwise, of, "f")], [plain("f")])
    return node("If", "flag", to, then_branch=graph(then, [plain("t")]), else_branch=other)


def turns(*nodes: onnx.NodeProto, of: str = "x", to: str = "y") -> onnx.NodeProto:
    """A Loop whose body makes "s2" of "s"."""
    inputs = [value("i", kind=I64), value("c", kind=BOOL), plain("s")]
    outputs = [value("c2", kind=BOOL), plain("s2")]
    return node(
        "Loop", f"trips go {of}", to, body=graph([*nodes, node("Identity", "c", "c2")], outputs, inputs)
    )


def branch_of(made: onnx.ModelProto, name: str) -> onnx.GraphProto:
    return next(each.g for each in made.graph.node[0].attribute if each.name == name)


def peak(made: Graph) -> int:
    """The most live bytes, without those of inputs and weights."""
    problem = to_problem(made, alignment=1)
    assert make_plan(problem).arena_bytes >= load_of(problem).peak
    return load_of(problem).peak


def storage_of(made: Graph, tensor: str) -> str:
    return next(each.storage for each in made.tensors if each.name == tensor)


NESTS = {
    "flat": (layers("x", "y"), 2 * WIDE),
    "If": ([choice(*layers("x", "t"))], 2 * WIDE),
    "Loop": ([turns(*layers("s", "s2"))], 2 * WIDE + SMALL + COUNTERS),
    "If in Loop": (
        [turns(choice(*layers("s", "t"), of="s", to="s2"))],
        2 * WIDE + SMALL + COUNTERS,
    ),
    "Loop in If": ([choice(turns(*layers("s", "s2"), to="t"))], 2 * WIDE + SMALL + COUNTERS),
    # The outer one keeps its value while the inner one, which starts with it, makes others.
    "Loop in Loop": (
        [turns(turns(*layers("s", "s2"), to="s3"), node("Neg", "s3", "s2"))],
        2 * WIDE + 2 * (SMALL + COUNTERS),
    ),
}


def nested(name: str) -> onnx.ModelProto:
    return model(NESTS[name][0], [X, FLAG, TRIPS], [value("y", 4, 8)], [*WEIGHTS, GO])


@pytest.mark.parametrize("name", NESTS)
def test_the_inside_counts(name: str, tmp_path: Path) -> None:
    made = read(tmp_path, nested(name))
    problem = to_problem(made)
    assert peak(made) == NESTS[name][1]
    assert unknown_insides(problem) == ()
    assert storage_bytes(made, Role.CONSTANT) - (GO.name in made.constants) == 2 * 8 * 512 * 4


@pytest.mark.parametrize("name", NESTS)
def test_values_inside_have_the_shapes_of_a_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: dict[str, set[tuple[int, ...]]] = {}
    run = ReferenceEvaluator.run

    def watched(self: Any, names: Any, feeds: Any, *args: Any, **more: Any) -> Any:
        found = run(self, None, feeds, *args, **{**more, "intermediate": True})
        for each, array in found.items():
            shapes.setdefault(each, set()).add(np.shape(array))
        return [found[each] for each in self.output_names]

    monkeypatch.setattr(ReferenceEvaluator, "run", watched)
    made = nested(name)
    feeds = {"x": np.ones((4, 8), np.float32), "flag": np.array(True), "trips": np.array(2)}
    ReferenceEvaluator(made).run(None, {each.name: feeds[each.name] for each in made.graph.input})
    checked = [each for each in read(tmp_path, made).tensors if each.name.rpartition(".")[2] in shapes]
    assert {"wide", "act"} <= {each.name.rpartition(".")[2] for each in checked}
    for each in checked:
        assert shapes[each.name.rpartition(".")[2]] == {each.shape}, each.name


def test_a_branch_is_followed_by_the_other_and_by_what_calls_them(tmp_path: Path) -> None:
    made = read(tmp_path, nested("If"))
    assert [(op.name, op.within) for op in made.ops] == [
        ("If_0.then.MatMul_0", (("If_0", "then"),)),
        ("If_0.then.Relu_1", (("If_0", "then"),)),
        ("If_0.then.MatMul_2", (("If_0", "then"),)),
        ("If_0.else.Neg_0", (("If_0", "else"),)),
        ("If_0", ()),
    ]
    assert storage_of(made, "If_0.then.t") == storage_of(made, "If_0.else.f") == "y"


def test_results_that_are_no_values_of_their_branch_are_copied(tmp_path: Path) -> None:
    """By hand: x is the caller's. `y` and `z` are two values in each branch: one result is given twice, the
    other one is a view of an input or a weight."""
    then = graph([node("Relu", "x", "t")], [plain("t"), plain("t")])
    other = graph([node("Identity", "x", "f")], [plain("f"), plain("w")])
    nodes = [node("If", "flag", "y z", then_branch=then, else_branch=other)]
    outputs = [value("y", 4, 8), value("z", 4, 8)]
    made = read(tmp_path, model(nodes, [X, FLAG], outputs, [weight("w", np.ones((4, 8), np.float32))]))
    assert peak(made) == 2 * SMALL
    assert [op.kind for op in made.ops] == ["Relu", "If.copy", "Identity", "If.copy", "If.copy", "If"]
    assert {storage_of(made, name) for name in ("y", "z")} == {"y", "z"}
    assert storage_of(made, "If_0.else.f") == "x"


def test_what_branches_read_is_held_to_their_end(tmp_path: Path) -> None:
    """By hand: `big`, which only the first op of a branch reads, and two values there at a time."""
    then = [node("Neg", "big", "a"), node("Neg", "a", "b"), node("Neg", "b", "t")]
    made = read(tmp_path, model([node("Relu", "x", "big"), choice(*then)], [X, FLAG], [value("y", 4, 8)]))
    assert peak(made) == 3 * SMALL
    assert {"flag", "big"} <= {*next(op for op in made.ops if op.name == "If_1").inputs}


def test_a_result_is_not_there_before_its_branch_makes_it(tmp_path: Path) -> None:
    """By hand: `y` is made in three branches, the last of which holds two values at a time before that."""
    chain = graph([node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "g")], [plain("g")])
    inner = node(
        "If", "flag", "f", then_branch=graph([node("Neg", "x", "t")], [plain("t")]), else_branch=chain
    )
    then = graph([node("Neg", "x", "t")], [plain("t")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=graph([inner], [plain("f")]))]
    made = read(tmp_path, model(nodes, [X, FLAG], [value("y", 4, 8)]))
    assert peak(made) == 2 * SMALL


def test_branches_of_different_sizes_share_the_larger(tmp_path: Path) -> None:
    """By hand: 64 rows of 8 in one branch, 16 in the other; their result negated."""
    first = [node("Slice", "x start end", "f")]
    other = graph(first, [plain("f")])
    then = graph([node("Relu", "x", "t")], [plain("t")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other), node("Neg", "y", "z")]
    weights = [weight("start", np.array([0])), weight("end", np.array([16]))]
    made = model(nodes, [value("x", 64, 8), FLAG], [value("z", "rows", 8)], weights)
    graph_ = read(tmp_path, made)
    assert peak(graph_) == 2 * 64 * 8 * 4
    assert next(each for each in graph_.storages if each.name == "y").nbytes == 64 * 8 * 4
    # Which one is larger is not clear: 8 columns and 64 rows, or 64 columns and 8 rows.
    turned = graph([node("Transpose", "x", "f")], [plain("f")])
    branch_of(made, "else_branch").CopyFrom(turned)
    made.graph.output[0].CopyFrom(value("z", "rows", "columns"))
    assert "as the branches of 'If_0' give (64, 8) and (8, 64), neither larger" in refusal(tmp_path, made)
    assert peak(read(tmp_path, made, rows=8, columns=64)) == 2 * 64 * 8 * 4
    for rows, columns in ((1, 1), (64, 64), (8, 8)):
        found = refusal(tmp_path, made, {"rows": rows, "columns": columns})
        assert f"'y': found the shape ({rows}, {columns}), expected (64, 8) or (8, 64)" in found


def test_a_condition_on_a_size_that_depends_on_a_branch_is_not_known(tmp_path: Path) -> None:
    """By hand: y has 4 rows or 8; of 4, which a run may have, two values of WIDE bytes are made."""
    then, other = (graph([made], [plain("t")]) for made in (
        node("Concat", "x x", "t", axis=0), node("Exp", "x", "t")
    ))  # fmt: skip
    nodes = [
        node("If", "flag", "y", then_branch=then, else_branch=other),
        node("Shape", "y", "shape"),
        node("Gather", "shape first", "rows"),
        node("Equal", "rows eight", "is_eight"),
        node("If", "is_eight", "z", then_branch=graph([node("Neg", "x", "t")], [plain("t")]),
             else_branch=graph(layers("x", "f"), [plain("f")])),
    ]  # fmt: skip
    weights = [*WEIGHTS, weight("first", np.int64(0)), weight("eight", np.int64(8))]
    graph_ = read(tmp_path, model(nodes, [X, FLAG], [value("z", 4, 8)], weights))
    assert peak(graph_) == 2 * WIDE
    assert [op.kind for op in graph_.ops][-1] == "If"


def test_values_for_the_result_of_a_branch_want_one_for_what_it_follows(tmp_path: Path) -> None:
    """By hand: 5 rows of 8 negated, as many turned in the other branch."""
    then, other = (graph([node(kind, "x", kind)], [plain(kind)]) for kind in ("Relu", "Transpose"))
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other), node("Neg", "y", "z")]
    made = model(nodes, [value("x", "batch", 8), FLAG], [value("z", "rows", "columns")])
    for rows, batch in ((5, 2), (2, 37)):
        found = refusal(tmp_path, made, {"rows": rows, "columns": 8})
        assert f"'y' with the shape ({rows}, 8), not ({batch}, 8) or (8, {batch})" in found
        assert "batch" in found
    assert peak(read(tmp_path, made, batch=5, rows=5, columns=8)) == 2 * 5 * 8 * 4


def test_a_shape_that_no_branch_gives_is_refused(tmp_path: Path) -> None:
    made = model([turns(choice(node("Neg", "x", "t"), to="s2"))], [X, FLAG, TRIPS], [value("y", 5, 8)], [GO])
    assert "tensor 'y': found the shape (5, 8), expected (4, 8)" in refusal(tmp_path, made)


def test_weights_inside_are_weights_and_fold(tmp_path: Path) -> None:
    """By hand: the transposed weight of 8 × 8 inside, not the one that it is made of, and a constant of 8."""
    then = graph(
        [node("Transpose", "inner", "turned"), node("MatMul", "x turned", "t")],
        [plain("t")],
        (),
        [weight("inner", np.ones((8, 8), np.float32))],
    )
    eight = node("Constant", "", "inner", value=weight("", np.ones(8, np.float32)))
    other = graph([eight, node("Add", "x inner", "f")], [plain("f")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other)]
    made = read(tmp_path, model(nodes, [X, FLAG], [value("y", 4, 8)]))
    assert [op.kind for op in made.ops] == ["MatMul", "Add", "If"]
    assert made.constants == ("If_0.then.turned", "If_0.else.inner")
    assert storage_bytes(made, Role.CONSTANT) == 8 * 8 * 4 + 8 * 4


def test_a_call_of_constants_is_a_constant(tmp_path: Path) -> None:
    then, other = (graph([node(kind, "up", kind)], [plain(kind)]) for kind in ("Neg", "Abs"))
    nodes = [node("If", "go", "w", then_branch=then, else_branch=other), node("MatMul", "x w", "y")]
    made = read(tmp_path, model(nodes, [X], [value("y", 4, 512)], [*WEIGHTS, GO]))
    assert ([op.kind for op in made.ops], made.constants) == (["MatMul"], ("w",))


def test_of_a_branch_that_is_always_taken_only_that_one_counts(tmp_path: Path) -> None:
    """As exporters write a squeeze, which asks for the rank. By hand: a view of x, then its double."""
    then = graph([node("Squeeze", "x axes", "t")], [plain("t")])
    other = graph(layers("x", "f"), [plain("f")])
    nodes = [
        node("Shape", "x", "shape"),
        node("Size", "shape", "rank"),
        node("Equal", "rank two", "is_two"),
        node("If", "is_two", "y", then_branch=then, else_branch=other),
        node("Add", "y y", "z"),
    ]
    weights = [*WEIGHTS, weight("two", np.int64(2)), weight("axes", np.array([0]))]
    made = read(tmp_path, model(nodes, [value("x", 1, 8)], [plain("z")], weights))
    assert peak(made) == 8 * 4
    assert [op.kind for op in made.ops] == ["Squeeze", "If.then", "Add"]
    assert unknown_insides(to_problem(made)) == ()
    assert storage_of(made, "y") == "x"


def test_conditions_may_depend_on_shapes_that_others_give(tmp_path: Path) -> None:
    """By hand: x is 4 × 8, turned 8 × 4, so of the second If it is the branch that makes 8 × 512."""

    def by_rows(x: str, y: str, *otherwise: onnx.NodeProto) -> list[onnx.NodeProto]:
        then = graph([node("Transpose", x, "t")], [plain("t")])
        return [
            node("Shape", x, f"{y}.shape"),
            node("Gather", f"{y}.shape first", f"{y}.rows"),
            node("Equal", f"{y}.rows four", f"{y}.is_four"),
            node("If", f"{y}.is_four", y, then_branch=then, else_branch=graph(otherwise, [plain("f")])),
        ]

    nodes = by_rows("x", "a", node("Relu", "x", "f")) + by_rows("a", "y", node("MatMul", "a wide", "f"))
    wide = weight("wide", np.ones((4, 512), np.float32))
    made = read(
        tmp_path,
        model(nodes, [X], [plain("y")], [wide, weight("first", np.int64(0)), weight("four", np.int64(4))]),
    )
    assert [op.kind for op in made.ops] == ["Transpose", "If.then", "MatMul", "If.else"]
    assert peak(made) == SMALL + 8 * 512 * 4


def scan(
    x: Sequence[int], *, opset: int = 17, batch: tuple[int, ...] = (), **axes: list[int]
) -> onnx.ModelProto:
    """A scan that adds rows of 3 × 4 to a sum, and gives the sum and all its positive parts."""
    row = [value("s", 3, 4), value("row", 3, 4)]
    body = graph(
        [node("Add", "s row", "n"), node("Relu", "n", "o")], [value("n", 3, 4), value("o", 3, 4)], row
    )
    names = "_ start x" if opset < 9 else "start x"
    nodes = [node("Scan", names, "y z", body=body, num_scan_inputs=1, **axes)]
    inputs = [value("start", *batch, 3, 4), value("x", *batch, *x)]
    return model(nodes, inputs, [value("y", *batch, 3, 4), plain("z")], opset=opset)


ROW = 3 * 4 * 4


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # All rows, the sum before and after the turn, its positive part.
        (scan([5, 3, 4]), 5 * ROW + 3 * ROW),
        # A row that is in pieces is copied.
        (scan([3, 5, 4], scan_input_axes=[1], scan_output_axes=[-1]), 5 * ROW + 4 * ROW),
        (scan([3, 4, 5], scan_input_axes=[-1]), 5 * ROW + 4 * ROW),
        # The first turn starts with what the caller has.
        (scan([1, 3, 4]), ROW + 2 * ROW),
        # Of two sequences of 5, all rows and both sums.
        (scan([5, 3, 4], opset=8, batch=(2,)), 2 * 5 * ROW + 2 * ROW + 3 * ROW),
    ],
    ids=["rows", "columns", "last", "one", "batch"],
)
def test_scans(made: onnx.ModelProto, expected: int, tmp_path: Path) -> None:
    graph_ = read(tmp_path, made)
    assert unknown_insides(to_problem(graph_)) == ()
    assert peak(graph_) == expected


def test_a_scan_gives_the_shapes_of_a_run(tmp_path: Path) -> None:
    made = scan([5, 3, 4])
    feeds = {"start": np.ones((3, 4), np.float32), "x": np.ones((5, 3, 4), np.float32)}
    shapes = {each.name: each.shape for each in read(tmp_path, made).tensors}
    assert [shapes["y"], shapes["z"]] == [each.shape for each in ReferenceEvaluator(made).run(None, feeds)]


def collecting(trips: str, condition: str, goes_on: str = "Identity") -> onnx.ModelProto:
    """A Loop that adds 1 and collects all sums; with `goes_on` Not its condition is another one each turn."""
    body = graph(
        [node("Add", "s one", "s2"), node(goes_on, "c", "c2"), node("Relu", "s2", "o")],
        [value("c2", kind=BOOL), plain("s2"), plain("o")],
        [value("i", kind=I64), value("c", kind=BOOL), plain("s")],
    )
    weights = [weight("one", np.float32(1)), weight("five", np.int64(5)), weight("single", np.int64(1)), GO]
    outputs = [value("y", 3, 4), plain("z")]
    nodes = [helper.make_node("Loop", [trips, condition, "x"], ["y", "z"], body=body)]
    return model(nodes, [value("x", 3, 4), TRIPS, FLAG], outputs, weights)


@pytest.mark.parametrize("condition", ["", "go"])
def test_loops_that_collect(condition: str, tmp_path: Path) -> None:
    """By hand: all rows, counters, the sum before and after the turn, its positive part."""
    made = collecting("five", condition)
    assert peak(read(tmp_path, made)) == 5 * ROW + COUNTERS + 3 * ROW
    single = read(tmp_path, collecting("single", condition))
    assert peak(single) == ROW + COUNTERS + 2 * ROW


@pytest.mark.parametrize(
    ("trips", "condition", "goes_on", "conditions"),
    [("trips", "go", "Identity", 1), ("five", "flag", "Identity", 1), ("five", "go", "Not", 2)],
)
def test_a_loop_that_may_stop_collects_an_unknown_number(
    trips: str, condition: str, goes_on: str, conditions: int, tmp_path: Path
) -> None:
    made = collecting(trips, condition, goes_on)
    assert "tensor 'z'" in refusal(tmp_path, made)
    made.graph.output[1].CopyFrom(value("z", 5, 3, 4))
    assert peak(read(tmp_path, made)) == 5 * ROW + 8 + conditions + 3 * ROW


@pytest.mark.parametrize(
    ("trips", "condition"),
    [("zero", ""), ("zero", "go"), ("zero", "flag"), ("", "no"), ("five", "no"), ("trips", "no")],
)
def test_a_loop_without_a_turn_copies_what_it_starts_with(trips: str, condition: str, tmp_path: Path) -> None:
    """By hand: the copy of x, and no rows."""
    made = collecting(trips, condition)
    made.graph.initializer.extend([weight("zero", np.int64(0)), weight("no", np.bool_(False))])
    graph_ = read(tmp_path, made)
    assert [op.kind for op in graph_.ops] == ["Loop.skipped"]
    assert {each.name: each.shape for each in graph_.tensors}["z"] == (0, 3, 4)
    assert peak(graph_) == ROW
    assert unknown_insides(to_problem(graph_)) == ()


def test_a_scan_of_no_rows_copies_what_it_starts_with(tmp_path: Path) -> None:
    graph_ = read(tmp_path, scan([0, 3, 4]))
    assert [op.kind for op in graph_.ops] == ["Scan.skipped"]
    assert peak(graph_) == ROW


def test_a_loop_that_never_ends_is_a_loop(tmp_path: Path) -> None:
    endless = turns(node("Neg", "s", "s2"))
    del endless.input[:2]
    endless.input[:] = ["", "", *endless.input]
    # By hand: the value before and after the turn.
    assert peak(read(tmp_path, model([endless], [X], [value("y", 4, 8)]))) == 2 * SMALL + COUNTERS


@pytest.mark.parametrize("declared", [True, False])
def test_what_a_value_has_grown_to_is_bound_by_a_name(declared: bool, tmp_path: Path) -> None:
    """By hand: x and 60 rows more of 8, and 512 of each."""
    grows = turns(node("ReduceMean", "s", "m", axes=[0]), node("Concat", "s m", "s2", axis=0), to="many")
    if declared:
        body = grows.attribute[0].g
        body.input[2].CopyFrom(value("s", "before", 8))
        body.output[1].CopyFrom(value("s2", "after", 8))
    nodes = [grows, node("MatMul", "many up", "y")]
    made = model(nodes, [X, TRIPS], [value("y", "rows", 512)], [*WEIGHTS, GO])
    assert "tensors 'many', 'y': found no fixed shape, as it depends on the turns" in refusal(tmp_path, made)
    names = {"rows": 64} if declared else {"rows": 64, "many[1]": 8}
    graph_ = read(tmp_path, made, **names)
    assert {each.name: each.shape for each in graph_.tensors}["many"] == (64, 8)
    assert peak(graph_) == 64 * (8 + 512) * 4
    assert doubt(to_problem(graph_)) is Reason.UNKNOWN_INSIDE


def test_a_branch_may_give_what_has_grown(tmp_path: Path) -> None:
    """By hand: 16 rows of 8, and as many negated."""
    grows = turns(node("Concat", "s s", "s2", axis=0), to="t")
    made = model(
        [choice(grows), node("Neg", "y", "z")], [X, FLAG, TRIPS], [value("z", "rows", "columns")], [GO]
    )
    assert "bind rows, columns with --dim" in refusal(tmp_path, made)
    graph_ = read(tmp_path, made, rows=16, columns=8)
    assert peak(graph_) == 2 * 16 * 8 * 4
    assert doubt(to_problem(graph_)) is Reason.UNKNOWN_INSIDE


@pytest.mark.parametrize("condition", ["", "go", "flag"])
def test_a_loop_of_at_most_one_turn_has_grown_once(condition: str, tmp_path: Path) -> None:
    """By hand: twice the rows of x, and as many negated."""
    grows = turns(node("Concat", "s s", "s2", axis=0))
    grows.input[:2] = ["single", condition]
    nodes = [grows, node("Neg", "y", "z")]
    weights = [weight("single", np.int64(1)), GO]
    made = model(nodes, [X, FLAG], [value("z", "rows", "columns")], weights)
    assert peak(read(tmp_path, made)) == 2 * 8 * 8 * 4
    # Turned, it is 8 × 4, or still 4 × 8 where the condition is false.
    grows.attribute[0].g.node[0].CopyFrom(node("Transpose", "s", "s2"))
    made = model(nodes, [X, FLAG], [value("z", "rows", "columns")], weights)
    if condition == "flag":
        expected = "found the shape (9, 9), expected (8, 4) or (4, 8)"
        assert expected in refusal(tmp_path, made, {"rows": 9, "columns": 9})
    assert peak(read(tmp_path, made, rows=8, columns=4)) == 2 * SMALL


def test_a_shape_that_no_turn_gives_is_refused(tmp_path: Path) -> None:
    made = collecting("trips", "go")
    made.graph.output[1].CopyFrom(value("z", "rows", 3, 5))
    assert "found the shape (2, 3, 5), expected (?, 3, 4)" in refusal(tmp_path, made, {"rows": 2})


@pytest.mark.parametrize("name", ["grows", "slices", "sequence"])
def test_what_cannot_be_known_stays_one_op(name: str, tmp_path: Path) -> None:
    sequence = [node("SequenceConstruct", "s s", "q"), node("SequenceAt", "q i", "s2")]
    slices = [node("Unsqueeze", "i axes", "at"), node("Slice", "s none at", "cut"), node("Neg", "s", "s2")]
    bodies = {"grows": [node("Concat", "s s", "s2", axis=0)], "slices": slices, "sequence": sequence}
    weights = [GO, weight("axes", np.array([0])), weight("none", np.array([0]))]
    result = value("y", 16 if name == "grows" else 4, 8)
    made = read(tmp_path, model([turns(*bodies[name])], [X, TRIPS], [result], weights))
    assert [op.kind for op in made.ops] == ["Loop"]
    assert unknown_insides(to_problem(made)) == ("Loop",)


def test_an_unknown_call_inside_leaves_the_others(tmp_path: Path) -> None:
    grows = turns(node("Concat", "s s", "s2", axis=0), to="many")
    then = [grows, *layers("x", "t")]
    made = model([choice(*then)], [X, FLAG, TRIPS], [value("y", 4, 8)], [*WEIGHTS, GO])
    branch_of(made, "then_branch").value_info.append(value("many", 64, 8))
    graph_ = read(tmp_path, made)
    assert unknown_insides(to_problem(graph_)) == ("Loop",)
    assert peak(graph_) == 2 * WIDE


def test_names_inside_may_be_those_of_other_branches_and_of_values_outside(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "If_2.then.t", name="If_2.then.Neg_0"),
        node("Relu", "If_2.then.t", "wide"),
        choice(node("Neg", "wide", "t"), of="wide", to="y"),
        choice(node("Neg", "y", "t"), of="If_2.then.t", to="z"),
    ]
    made = read(tmp_path, model(nodes, [X, FLAG], [value("z", 4, 8)]))
    names = [op.name for op in made.ops]
    assert len({*names}) == len(names)
    assert ("If_2.then.Neg_0", ()) in [(op.name, op.within) for op in made.ops]
    assert peak(made) == 3 * SMALL


def test_dimensions_left_open_are_formulas_inside(tmp_path: Path) -> None:
    nodes = [turns(choice(*layers("s", "t"), of="s", to="s2"), to="last"), node("Relu", "last", "y")]
    made = model(nodes, [value("x", "batch", 8), FLAG, TRIPS], [plain("y")], [*WEIGHTS, GO])
    symbolic = read(tmp_path, made)
    assert [symbol.name for symbol in symbolic.symbols] == ["batch"]
    formulas = {each.name: each.formula for each in symbolic.storages}
    assert formulas["Loop_0.body.If_0.then.wide"] == "2048*batch"
    assert formulas["Loop_0.body.s"] == "32*batch"
    for batch in (1, 5, 64):
        bound = read(tmp_path, made, batch=batch)
        assert sizes_at(symbolic, {"batch": batch}) == [each.nbytes for each in bound.storages]
        assert shapes_at(symbolic, {"batch": batch}) == [each.shape for each in bound.tensors]
        assert peak(bound) == batch * (2 * 2048 + 32) + COUNTERS


def test_a_condition_on_a_size_is_known_only_for_a_size(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape first", "rows"),
        node("Equal", "rows two", "is_two"),
        node("If", "is_two", "y", then_branch=graph([node("Relu", "x", "t")], [plain("t")]),
             else_branch=graph(layers("x", "f"), [plain("f")])),
    ]  # fmt: skip
    weights = [*WEIGHTS, weight("first", np.int64(0)), weight("two", np.int64(2))]
    made = model(nodes, [value("x", "batch", 8)], [plain("y")], weights)
    assert peak(read(tmp_path, made)) == 2 * 2 * 2048
    assert peak(read(tmp_path, made, batch=2)) == 2 * 32
    assert peak(read(tmp_path, made, batch=3)) == 2 * 3 * 2048


def test_branches_of_which_now_one_and_now_the_other_is_larger_want_a_size(tmp_path: Path) -> None:
    ten = graph([node("Identity", "ten", "f")], [plain("f")])
    then = graph([node("Relu", "x", "t")], [plain("t")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=ten)]
    weights = [weight("ten", np.ones((10, 8), np.float32))]
    made = model(nodes, [value("x", "batch", 8), FLAG], [plain("y")], weights)
    assert "bind batch with --dim NAME=VALUE" in refusal(tmp_path, made)
    assert peak(read(tmp_path, made, batch=3)) == 10 * 8 * 4
    assert peak(read(tmp_path, made, batch=30)) == 30 * 8 * 4


def test_an_order_inside_is_written(tmp_path: Path) -> None:
    """Two wide values, made before either is summed up, in another order."""
    then = graph(
        [
            node("MatMul", "x up", "a"), node("MatMul", "x up", "b"),
            node("ReduceSum", "a", "p"), node("ReduceSum", "b", "q"), node("Add", "p q", "t"),
        ],
        [plain("t")],
    )  # fmt: skip
    other = graph([node("ReduceMax", "x", "f")], [plain("f")])
    nodes = [node("If", "flag", "y", then_branch=then, else_branch=other)]
    made = model(nodes, [X, FLAG], [value("y", 1, 1)], WEIGHTS)
    before = read(tmp_path, made)
    assert peak(before) == 2 * WIDE + 4
    order = [0, 2, 1, 3, 4, 5, 6]
    sorted_ = in_order_of(before, Schedule(tuple(order), 7))
    assert peak(sorted_) == WIDE + 8
    write_order(sorted_, tmp_path / "sorted.onnx", tmp_path / "m.onnx")
    again = load(tmp_path / "sorted.onnx", ImportOptions())
    assert isinstance(again, Graph)
    assert peak(again) == WIDE + 8
    for flag in (True, False):
        feeds = {"x": np.ones((4, 8), np.float32), "flag": np.array(flag)}
        old, new = (
            np.array([*ReferenceEvaluator(onnx.load(tmp_path / name)).run(None, feeds)]).tobytes()
            for name in ("m.onnx", "sorted.onnx")
        )
        assert old == new


def test_graphs_deep_inside_one_another(tmp_path: Path) -> None:
    """Protobuf reads no more than 100 messages inside one another, those of inferred types among them."""

    def around(depth: int) -> onnx.ModelProto:
        inner = choice(node("Neg", "x", "t"), to="y0")
        for level in range(1, depth):
            inner = node("If", "flag", f"y{level}",
                then_branch=graph([inner], [plain(f"y{level - 1}")]),
                else_branch=graph([node("Abs", "x", f"f{level}")], [plain(f"f{level}")]),
            )  # fmt: skip
        return model([inner], [X, FLAG], [value(f"y{depth - 1}", 4, 8)])

    assert peak(read(tmp_path, around(MOST_NESTED))) == SMALL
    expected = f"graphs too deep inside one another for protobuf, expected at most {MOST_NESTED}"
    assert expected in refusal(tmp_path, around(MOST_NESTED + 1))
