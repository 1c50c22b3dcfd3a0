"""Graph → problem: who lives when, and who needs a place at all."""

from __future__ import annotations

import pytest

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Role, Storage, Tensor, check_graph
from memplan_engine.lifetimes import Unread, lifetimes, to_problem
from memplan_engine.schedule import Schedule, sequential


def graph(ops, storages, *, views=(), inputs=(), outputs=(), constants=()):
    """`ops`: (name, inputs, outputs[, mutates]); each storage has a tensor of its name; `views` pairs a
    further tensor with its storage."""
    lists = [({"tensors": inputs}, Role.INPUT), ({"tensors": constants}, Role.CONSTANT)]
    home = {name: name for name in storages} | dict(views)
    role = {home[name]: kind for names, kind in lists for name in names["tensors"]}
    role = {home[name]: Role.OUTPUT for name in outputs} | role
    return check_graph(
        Graph(
            "net",
            tuple(Storage(name, size, role.get(name, Role.ACTIVATION)) for name, size in storages.items()),
            tuple(Tensor(name, (), "uint8", storages[storage], storage) for name, storage in home.items()),
            tuple(Op(op[0], op[0], *op[1:]) for op in ops),
            tuple(inputs),
            tuple(outputs),
            tuple(constants),
        )
    )


def rows(problem):
    return {b.name: (b.start, b.end, b.size) for b in (problem[i] for i in range(len(problem)))}


#  step   0  1  2  3
#  a      made by 0, last read by 2       b: made by 1, read by 2       c: made by 2, output
CHAIN = graph(
    [("f", ("x", "w"), ("a",)), ("g", ("a",), ("b",)), ("h", ("a", "b"), ("c",)), ("i", ("x",), ("d",))],
    {"x": 8, "w": 100, "a": 10, "b": 20, "c": 30, "d": 40},
    inputs=("x",),
    constants=("w",),
    outputs=("c",),
)


def test_a_chain_by_hand():
    problem = to_problem(CHAIN, alignment=1)
    assert rows(problem) == {"a": (0, 3, 10), "b": (1, 3, 20), "c": (2, 4, 30), "d": (3, 4, 40)}
    assert (problem.steps, problem.name) == (4, "net")
    assert problem.origin.graph is CHAIN
    assert problem.origin.schedule == sequential(CHAIN)


def test_an_output_lives_to_the_last_step_and_an_unused_result_only_for_its_own():
    made = rows(to_problem(CHAIN))
    assert made["c"][:2] == (2, 4)
    assert made["d"][:2] == (3, 4)


def test_inputs_only_when_asked_for_and_constants_never():
    assert "x" not in rows(to_problem(CHAIN))
    problem = to_problem(CHAIN, plan_inputs=True)
    assert rows(problem)["x"] == (0, 4, 8)
    assert "w" not in rows(problem)
    assert problem.names == ("x", "a", "b", "c", "d")


def test_inputs_and_outputs_of_one_op_are_live_together():
    problem = to_problem(CHAIN)
    a, b = (problem[problem.names.index(name)] for name in "ab")
    assert b.start < a.end


def test_a_view_keeps_its_base_alive():
    net = graph(
        [("f", (), ("a",)), ("view", ("a",), ("v",)), ("g", (), ("b",)), ("h", ("v", "b"), ("c",))],
        {"a": 10, "b": 20, "c": 30},
        views=[("v", "a")],
        outputs=("c",),
    )
    assert rows(to_problem(net)) == {"a": (0, 4, 10), "b": (2, 4, 20), "c": (3, 4, 30)}


def test_an_output_that_is_a_view_keeps_its_base_to_the_end():
    net = graph(
        [("f", (), ("a",)), ("view", ("a",), ("v",)), ("g", (), ("b",))],
        {"a": 10, "b": 20},
        views=[("v", "a")],
        outputs=("v",),
    )
    assert rows(to_problem(net))["a"] == (0, 3, 10)


def test_an_op_in_place_has_one_storage_for_input_and_output():
    net = graph(
        [("f", (), ("a",)), ("relu_", ("a",), ("b",), ("a",)), ("g", ("b",), ("c",))],
        {"a": 10, "c": 5},
        views=[("b", "a")],
        outputs=("c",),
    )
    assert rows(to_problem(net)) == {"a": (0, 3, 10), "c": (2, 3, 5)}


def test_writing_in_place_without_reading_counts_as_use():
    net = graph([("f", (), ("a",)), ("g", (), ("b",)), ("zero_", (), (), ("a",))], {"a": 10, "b": 20})
    assert rows(to_problem(net))["a"] == (0, 3, 10)


def test_an_output_that_aliases_an_input_or_a_constant_needs_no_place():
    net = graph(
        [("view", ("x",), ("v",)), ("f", ("x",), ("a",))],
        {"x": 10, "w": 4, "a": 1},
        views=[("v", "x")],
        inputs=("x",),
        constants=("w",),
        outputs=("v", "w", "a"),
    )
    assert rows(to_problem(net)) == {"a": (1, 2, 1)}
    assert rows(to_problem(net, plan_inputs=True)) == {"x": (0, 2, 10), "a": (1, 2, 1)}


def test_storages_without_bytes_need_no_place():
    net = graph([("f", (), ("a", "b"))], {"a": 0, "b": 3})
    assert rows(to_problem(net)) == {"b": (0, 1, 3)}


def test_an_input_that_nothing_reads_is_there_at_step_0():
    net = graph([("f", (), ("a",)), ("g", ("a",), ("b",))], {"x": 7, "a": 1, "b": 1}, inputs=("x",))
    assert rows(to_problem(net, plan_inputs=True))["x"] == (0, 1, 7)


def test_a_graph_without_ops():
    net = graph([], {"x": 7}, inputs=("x",), outputs=("x",))
    assert (len(to_problem(net)), to_problem(net).steps) == (0, 0)
    problem = to_problem(net, plan_inputs=True)
    assert rows(problem) == {"x": (0, 1, 7)}
    assert problem.steps == 1


def test_alignment_is_64_unless_given_or_the_storage_asks_for_its_own():
    net = CHAIN
    own = Graph(
        net.name,
        tuple(Storage(s.name, s.nbytes, s.role, 256 if s.name == "b" else 0) for s in net.storages),
        net.tensors,
        net.ops,
        net.inputs,
        net.outputs,
        net.constants,
    )
    assert to_problem(own).alignment.tolist() == [64, 256, 64, 64]
    assert to_problem(own, alignment=16).alignment.tolist() == [16, 256, 16, 16]
    with pytest.raises(InputError, match="net: alignment: found 0, expected 1 or more bytes"):
        to_problem(own, alignment=0)


def test_ops_of_one_step_run_together():
    #  f and g at step 0, h at step 1, i at step 2
    schedule = Schedule((0, 0, 1, 2), 3)
    problem = to_problem(CHAIN, schedule, alignment=1)
    assert rows(problem) == {"a": (0, 2, 10), "b": (0, 2, 20), "c": (1, 3, 30), "d": (2, 3, 40)}
    assert problem.steps == 3


def test_buffers_come_in_the_order_in_which_they_become_live():
    net = graph([("f", (), ("b",)), ("g", (), ("a",)), ("h", (), ("c",))], {"c": 1, "a": 1, "b": 1})
    assert to_problem(net).names == ("b", "a", "c")


def test_what_nobody_reads_is_freed_at_once_or_held_to_the_end():
    # One output of f is read: the other goes with it. Nobody asks for either output of g.
    net = graph(
        [
            ("f", ("x",), ("a", "b")),
            ("g", (), ("c", "d")),
            ("h", ("a",), ("e",)),
            ("i", (), ("k",)),
            ("zero_", (), (), ("k",)),
        ],
        {"x": 4, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "k": 6},
        inputs=("x",),
        outputs=("e",),
    )
    freed, held = (rows(to_problem(net, unread=unread)) for unread in (Unread.FREED, Unread.HELD))
    assert freed == {
        "a": (0, 3, 1), "b": (0, 1, 2), "c": (1, 2, 3), "d": (1, 2, 4), "e": (2, 5, 5), "k": (3, 5, 6)
    }  # fmt: skip
    assert held == freed | {"c": (1, 5, 3), "d": (1, 5, 4)}


def test_rounded_sizes_are_multiples_of_their_alignment():
    net = graph([("f", (), ("a", "b", "c"))], {"a": 16, "b": 17, "c": 1})
    assert rows(to_problem(net, alignment=16, round_sizes=True)) == {
        "a": (0, 1, 16), "b": (0, 1, 32), "c": (0, 1, 16)
    }  # fmt: skip


def test_lifetimes_covers_every_storage_that_exists():
    assert lifetimes(CHAIN, sequential(CHAIN)) == {
        "x": (0, 4),
        "w": (0, 1),
        "a": (0, 3),
        "b": (1, 3),
        "c": (2, 4),
        "d": (3, 4),
    }


def test_a_schedule_that_runs_an_op_before_its_inputs_is_refused():
    message = "net: op 'g': found step 0, but 'f', which makes its input 'a', runs at step 1, expected a step"
    with pytest.raises(InputError, match=message):
        to_problem(CHAIN, Schedule((1, 0, 2, 3), 4))
    with pytest.raises(InputError, match="net: step_of_op: found 1 steps, expected 4, one for each op"):
        to_problem(CHAIN, Schedule((0,), 1))
