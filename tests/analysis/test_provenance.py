"""Where a buffer comes from: its op, readers, module and source line."""

from __future__ import annotations

from memplan_engine.analysis.buffer_names import step_labels
from memplan_engine.analysis.peak import find_peak
from memplan_engine.analysis.provenance import UNKNOWN, Provenance, find_provenance, ops_at
from memplan_engine.graph import Graph, Op, Role, Source, Storage, Tensor, check_graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import make_problem
from memplan_engine.schedule import Schedule

FC, RELU = Source("net.py", 10, "x = self.fc(x)"), Source("net.py", 11, "x.relu_()")
NET = check_graph(
    Graph(
        "net",
        storages=(
            Storage("x", 64, Role.INPUT),
            Storage("w", 64, Role.CONSTANT),
            Storage("a", 128, Role.ACTIVATION),
            Storage("o", 32, Role.OUTPUT),
        ),
        tensors=(
            Tensor("x", (16,), "float32", 64, "x"),
            Tensor("xv", (4, 4), "float32", 64, "x"),
            Tensor("w", (16,), "float32", 64, "w"),
            Tensor("a", (2, 16), "float32", 128, "a"),
            Tensor("a2", (2, 16), "float32", 128, "a"),
            Tensor("o", (8,), "float32", 32, "o"),
        ),
        ops=(
            Op("view", "view", ("x",), ("xv",), module="fc"),
            Op("fc", "linear", ("xv", "w"), ("a",), module="fc", source=FC),
            Op("relu", "relu_", ("a",), ("a2",), mutates=("a",), module="act", source=RELU),
            Op("sum", "sum", ("a2",), ("o",)),
        ),
        inputs=("x",),
        outputs=("o",),
        constants=("w",),
    )
)


def test_an_activation_has_the_op_that_first_made_it_and_all_others_as_readers():
    known = dict(zip(to_problem(NET).names, find_provenance(to_problem(NET)), strict=True))
    assert known["a"] == Provenance(
        kind="linear",
        role=Role.ACTIVATION,
        maker=NET.ops[1],
        readers=("relu", "sum"),
        tensors=("a", "a2"),
        shape=(2, 16),
        dtype="float32",
    )
    assert (known["a"].producer, known["a"].module, known["a"].source) == ("fc", "fc", FC)
    assert known["o"].producer == "sum"
    assert known["o"].readers == ()
    assert known["o"].source is None


def test_an_input_is_made_by_no_op_and_read_by_the_one_that_views_it_first():
    problem = to_problem(NET, plan_inputs=True)
    found = find_provenance(problem)[problem.names.index("x")]
    assert (found.kind, found.role, found.producer, found.module) == ("input", Role.INPUT, "", "")
    assert found.readers == ("view", "fc")
    assert found.tensors == ("x", "xv")


def test_the_ops_of_a_step_and_their_labels():
    problem = to_problem(NET)
    assert [op.name for op in ops_at(problem, 2)] == ["relu"]
    assert step_labels(problem) == ["fc · view", "fc · linear", "act · relu_", "sum"]
    together = to_problem(NET, Schedule((0, 0, 1, 2), 3))
    assert [op.name for op in ops_at(together, 0)] == ["view", "fc"]
    assert step_labels(together) == ["fc · view, fc · linear", "act · relu_", "sum"]


def test_the_peak_knows_its_op_and_where_its_buffers_come_from():
    peak = find_peak(to_problem(NET))
    assert (peak.step, peak.nbytes, [op.name for op in peak.ops]) == (3, 160, ["sum"])
    assert [
        (part.name, part.provenance.producer, str(part.provenance.source)) for part in peak.contributors
    ] == [
        ("a", "fc", "net.py:10"),
        ("o", "sum", "None"),
    ]


def test_buffers_of_no_graph_are_just_buffers():
    problem = make_problem([0, 1], [2, 3], [4, 5])
    assert find_provenance(problem) == (UNKNOWN, UNKNOWN)
    assert UNKNOWN.kind == "buffer"
    assert ops_at(problem, 0) == ()
    assert step_labels(problem) == []
