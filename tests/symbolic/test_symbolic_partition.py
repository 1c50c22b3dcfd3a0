"""tract's memory schema, worked by hand and against its rules followed to the letter."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import InputError, lower_bound, make_plan, make_problem, to_problem, validate_plan
from memplan_engine.graph import Op, Symbol
from memplan_engine.symbolic import Requirement, build_schema, parse, resolve, schema_of, to_text
from memplan_engine.verify.validate import Rule
from tests import ROOT
from tests.support.graphs import make_graph
from tests.support.symbolic_graphs import N, chain, gpt2


def requirements(*rows: tuple[int, int, int, int | str]) -> list[Requirement]:
    return [Requirement(node, start, end, str(size)) for node, start, end, size in rows]


FIVE = requirements((1, 0, 2, 100), (2, 1, 3, 100), (3, 2, 4, 50), (4, 3, 5, 50), (5, 4, 6, 80))
"""By size, stable: 1, 2, 5, 3, 4. Node 1 opens a partition, 2 another one. 5 is free in both, whose sums are
equal, and goes to the first. 3 meets 2; 4 meets 3 and 5."""


def test_five_nodes_by_hand() -> None:
    schema = build_schema(FIVE, 6, unit=64)
    assert schema.partitions == ((0, 4, 2), (1, 3))
    assert schema.sizes_at() == (128, 128)
    assert schema.memory_bytes() == 256
    assert schema.peak() == 200
    assert schema.usage() == 200 / 256
    assert schema.resolve().offsets.tolist() == [0, 128, 0, 128, 0]
    assert [to_text(size) for size in schema.size_by_partition()] == ["100", "100"]
    assert schema.by_steps() == ((0, None), (0, 1), (2, 1), (2, 3), (4, 3), (4, None))
    assert schema.table() == (
        "step:     0 => |   1   |   *   |\n"
        "step:     1 => |   1   |   2   |\n"
        "step:     2 => |   3   |   2   |\n"
        "step:     3 => |   3   |   4   |\n"
        "step:     4 => |   5   |   4   |\n"
        "step:     5 => |   5   |   *   |\n"
        "memory_size: 200\n"
    )


def test_the_table_centres_numbers_of_any_length_and_shows_names() -> None:
    rows = [Requirement(10, 0, 1, "4", "relu"), Requirement(12345678, 1, 2, "4", "a_long_name")]
    schema = build_schema(rows, 2)
    assert schema.table() == "step:     0 => |  10   |\nstep:     1 => |12345678|\nmemory_size: 4\n"
    assert schema.table(names=True).splitlines()[:2] == [
        "step:     0 => | relu  |",
        "step:     1 => |a_long_name|",
    ]


def test_the_fullest_partition_is_taken_not_the_largest_or_the_first() -> None:
    rows = requirements((0, 0, 4, 100), (1, 1, 3, 90), (2, 3, 5, 60), (3, 5, 6, 40))
    assert build_schema(rows, 6).partitions == ((0,), (1, 2, 3))


def test_sizes_under_the_hint_decide_and_the_assignment_holds_for_all_values() -> None:
    rows = requirements((0, 0, 2, "4*n"), (1, 1, 3, "n**2"), (2, 2, 4, "100"), (3, 3, 5, "n + 3"))
    symbols = (Symbol("n", 1, None, 3),)
    small = build_schema(rows, 5, symbols=symbols, unit=1)
    assert small.partitions == ((2, 0), (1, 3))
    large = build_schema(rows, 5, {"n": 200}, symbols=symbols, unit=1)
    assert large.partitions == ((1, 3), (0, 2))
    assert [str(size) for size in small.size_by_partition()] == ["Max(100, 4*n)", "Max(n**2, n + 3)"]
    assert small.memory_bytes() == 100 + 9
    assert small.memory_bytes({"n": 30}) == 120 + 900
    assert small.peak({"n": 30}) == 120 + 900
    assert large.memory_bytes() == 40000 + 800
    assert large.memory_bytes({"n": 1}) == 4 + 100


def test_what_can_never_be_the_largest_is_left_out() -> None:
    rows = requirements((0, 0, 1, "4*n"), (1, 1, 2, "4*n + 8*m"), (2, 2, 3, "3*n"), (3, 3, 4, "64"))
    symbols = (Symbol("n", 16, None, 20), Symbol("m", 0, None, 1))
    (size,) = build_schema(rows, 4, symbols=symbols).size_by_partition()
    assert to_text(size) == "8*m + 4*n"
    (size,) = build_schema(rows, 4, symbols=(replace(symbols[0], low=15), symbols[1])).size_by_partition()
    assert to_text(size) in ("max(64, 8*m + 4*n)", "max(64, 4*n + 8*m)")


def test_a_schema_without_nodes_wastes_nothing() -> None:
    schema = build_schema([], 2)
    assert (schema.memory_bytes(), schema.peak(), schema.usage()) == (0, 0, 1.0)
    assert schema.table() == "step:     0 => ||\nstep:     1 => ||\nmemory_size: 0\n"
    assert schema.resolve().arena_bytes == 0
    assert build_schema(requirements((0, 0, 1, 0)), 1).usage() == 1.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((7, 2, 2, 4), "buffer '7': found end 2"),
        ((7, 0, 9, 4), "steps: found 4, expected at least 9"),
        ((7, 0, 2, "m"), "requirement 7: found the symbol 'm' in 'm', expected one of n"),
        ((7, 0, 2, "n - 9"), "found n - 9 = -5 at n=4"),
    ],
)
def test_requirements_that_cannot_be_met_are_named(
    row: tuple[int, int, int, int | str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build_schema(requirements(row), 4, symbols=(N,))


def test_values_are_checked() -> None:
    schema = schema_of(chain(["4*n", "8*n"]))
    for call in (schema.resolve, schema.memory_bytes, schema.peak, schema.usage, schema.sizes_at):
        with pytest.raises(InputError, match="symbol 'n': found 65, expected 1 to 64"):
            call({"n": 65})
    with pytest.raises(InputError, match="neither a value nor a hint"):
        schema_of(chain(["8*u0"], symbols=(Symbol("u0", 0),)))


def tract(sizes: list[int], spans: list[tuple[int, int]]) -> list[list[int]]:
    """`DeviceMemSchema::build` followed line by line; sorted() is stable as Rust's sorts are."""
    partitions: list[list[int]] = []
    for node in sorted(range(len(sizes)), key=lambda node: sizes[node], reverse=True):
        start, end = spans[node]
        available = [
            partition
            for partition in partitions
            if all(start >= spans[other][1] or spans[other][0] >= end for other in partition)
        ]
        available.sort(key=lambda partition: -sum(sizes[other] for other in partition))
        if available:
            available[0].append(node)
        else:
            partitions.append([node])
    return partitions


SPANS = st.tuples(st.integers(0, 15), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
NODES = st.lists(st.tuples(st.integers(0, 6).map(lambda size: 16 * size), SPANS), max_size=25)


@given(NODES)
def test_the_same_input_gives_what_tract_gives(nodes: list[tuple[int, tuple[int, int]]]) -> None:
    rows = requirements(*((i, *span, size) for i, (size, span) in enumerate(nodes)))
    schema = build_schema(rows, 21)
    expected = tract([size for size, _ in nodes], [span for _, span in nodes])
    assert [list(members) for members in schema.partitions] == expected
    problem = make_problem(
        [span[0] for _, span in nodes], [span[1] for _, span in nodes], [size for size, _ in nodes]
    )
    assert schema.peak() == lower_bound(problem).nbytes
    if nodes:
        plan = make_plan(problem, "partition")
        assert plan.objects is not None
        assert plan.objects.tolist() == schema.objects.tolist()


SIZES = st.sampled_from(["4*n", "n**2", "64", "8*(n//2 + 1)", "max(n, 40)", "2*n*m", "m", "0*n"])


@given(
    st.lists(st.tuples(SIZES, SPANS), min_size=1, max_size=20),
    st.integers(1, 64),
    st.integers(1, 300),
    st.integers(0, 99),
)
def test_the_plan_holds_for_every_value(
    nodes: list[tuple[str, tuple[int, int]]], hint: int, n: int, m: int
) -> None:
    symbols = (replace(N, high=None), Symbol("m", 0, 99, 7))
    rows = requirements(*((i, *span, size) for i, (size, span) in enumerate(nodes)))
    schema = build_schema(rows, 21, {"n": hint}, symbols=symbols, unit=64)
    at = {"n": n, "m": m}
    plan = schema.resolve(at)
    assert validate_plan(plan).valid
    assert plan.problem.size.tolist() == [parse(size).at(at) for size, _ in nodes]
    assert plan.arena_bytes <= schema.memory_bytes(at) < plan.arena_bytes + 64 + (not plan.arena_bytes)
    assert schema.peak(at) <= schema.memory_bytes(at)
    exact = parse(to_text(schema.memory_size())).at(at)
    assert exact == sum(max(plan.problem.size[list(members)].tolist()) for members in schema.partitions)
    assert parse(to_text(schema.peak_size())).at(at) == schema.peak(at)


def test_a_real_graph() -> None:
    schema = schema_of(gpt2())
    assert schema.resolve() == replace(
        make_plan(to_problem(gpt2()), "partition"), parameters=(), seconds=schema.resolve().seconds
    )
    for values in ({"batch": 1, "seq": 1}, {"batch": 3, "seq": 77}, {"batch": 16, "seq": 512}):
        plan = schema.resolve(values)
        assert validate_plan(plan).valid
        assert plan.problem == to_problem(resolve(gpt2(), values))
        assert schema.peak(values) == int(parse(to_text(schema.peak_size())).at(values))
        assert 0.8 < schema.usage(values) <= 1.0
    assert schema.usage() > 0.999


def test_nodes_of_a_graph_are_the_places_of_their_ops() -> None:
    graph = chain(["4*n", "8*n", "4*n + 4"])
    assert schema_of(graph).table() == (
        "step:     0 => |   *   |   0   |\n"
        "step:     1 => |   1   |   0   |\n"
        "step:     2 => |   1   |   2   |\n"
        "memory_size: 12*n + 4\n"
    )
    with_input = schema_of(graph, plan_inputs=True)
    assert with_input.table(names=True).splitlines()[0] == "step:     0 => |   x   |   a   |"
    assert schema_of(graph, {"n": 9}).hint == (("n", 9),)


def test_partitions_are_rounded_to_what_all_their_storages_need() -> None:
    ops = [Op("one", "op", ("x",), ("a",)), Op("two", "op", ("a",), ("b",))]
    graph = make_graph(ops, {"x": 1, "a": 10, "b": 20}, inputs=("x",), outputs=("b",))
    graph = replace(graph, storages=(*graph.storages[:2], replace(graph.storages[2], alignment=96)))
    schema = schema_of(graph)
    assert schema.unit == 192
    assert schema.sizes_at() == (192, 192)
    assert validate_plan(schema.resolve()).valid
    huge = replace(graph, storages=(*graph.storages[:2], replace(graph.storages[2], alignment=2**61 - 1)))
    with pytest.raises(InputError, match="alignment: found a common multiple of"):
        schema_of(huge)


def test_partitions_that_pass_the_limit_are_an_error() -> None:
    rows = requirements((0, 0, 2, f"{2**58}*n"), (1, 1, 2, "n"), (2, 1, 3, "1"))
    schema = build_schema(rows, 3, {"n": 1}, symbols=(Symbol("n", 1, 64, 1),), unit=2**57)
    with pytest.raises(InputError, match="partitions: found sizes that sum past 2\\^63-1"):
        schema.memory_bytes({"n": 31})
    with pytest.raises(InputError, match="a sum below 2\\^63"):
        schema.resolve({"n": 31})


def test_the_strategy_refuses_fixed_offsets_as_shared_objects_do() -> None:
    problem = make_problem([0, 1], [2, 3], [8, 8], fixed=[-1, 0])
    with pytest.raises(Exception, match="partition cannot place it: buffer '1' is fixed at offset 0"):
        make_plan(problem, "partition")


def test_a_partition_plan_that_shares_wrongly_would_be_found() -> None:
    plan = build_schema(FIVE, 6).resolve()
    assert plan.objects is not None
    wrong = replace(plan, objects=plan.objects * 0)
    assert Rule.OBJECTS in validate_plan(wrong).counts


def test_hostile_powers_do_not_take_forever() -> None:
    names = [f"s{i}" for i in range(12)]
    symbols = tuple(Symbol(name, 1, None, 1) for name in names)
    text = f"({' + '.join(names)})**16"
    schema = build_schema(requirements((0, 0, 1, text), (1, 1, 2, f"{text} + 1")), 2, symbols=symbols)
    assert "**16" in to_text(schema.memory_size())
    assert "**16" in to_text(schema.peak_size())


def test_the_example_of_the_docs_prints_what_they_show() -> None:
    text = (ROOT / "docs" / "systems" / "tract.md").read_text(encoding="utf-8")
    ((example, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue() == shown
