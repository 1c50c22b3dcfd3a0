"""Values of symbols, and graphs at other values of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Graph, InputError, check_graph, to_problem
from memplan_engine.formats.memplan_json.json_file import dumps, loads
from memplan_engine.graph import Symbol
from memplan_engine.symbolic import check_values, corners, resolve, samples, symbolic_problem
from memplan_engine.symbolic.symbol_values import HINT_MULTIPLE, ends, steps_between
from tests.support.symbolic_graphs import BATCH, SEQ, N, chain, gpt2

DATA = Symbol("u0", 0, None, None)


def test_hints_fill_in_and_the_order_is_that_of_the_symbols() -> None:
    assert check_values((BATCH, SEQ), {"seq": 7}) == {"batch": 2, "seq": 7}
    assert list(check_values((BATCH, SEQ), {"seq": 7, "batch": 1})) == ["batch", "seq"]


@pytest.mark.parametrize(
    ("symbols", "values", "message"),
    [
        ((N, DATA), {}, "symbol 'u0': found neither a value nor a hint, expected a value for it"),
        ((N,), {"m": 3}, "symbol 'm': found an unknown symbol, expected one of n"),
        ((), {"m": 3}, "expected no values, as the graph has no symbols"),
        ((N,), {"n": 0}, "symbol 'n': found 0, expected 1 to 64"),
        ((N,), {"n": 65}, "symbol 'n': found 65, expected 1 to 64"),
        ((N,), {"n": 2.0}, "symbol 'n': found 2.0, expected a whole number"),
        ((N,), {"n": True}, "found True, expected a whole number"),
        ((DATA,), {"u0": -1}, "symbol 'u0': found -1, expected 0 or more"),
        ((DATA,), {"u0": 2**63}, "expected 0 or more"),
    ],
)
def test_values_that_do_not_fit_are_named(symbols: tuple[Symbol, ...], values: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_values(symbols, values, "net")
    assert str(caught.value).startswith("net: ")
    assert message in str(caught.value)


def test_a_symbol_without_limit_is_looked_at_up_to_a_multiple_of_its_hint() -> None:
    assert ends(Symbol("n", 2, None, 5)) == (2, 5 * HINT_MULTIPLE)
    assert ends(DATA) == (0, HINT_MULTIPLE)
    assert ends(N) == (1, 64)


def test_corners_and_samples() -> None:
    assert corners((Symbol("n", 1, 3), Symbol("m", 5, 5))) == [{"n": 1, "m": 5}, {"n": 3, "m": 5}]
    many = tuple(Symbol(f"s{i}", 1, 9) for i in range(10))
    assert len(corners(many)) == 22
    assert corners(many)[8] == {symbol.name: 9 if symbol.name == "s3" else 1 for symbol in many}
    drawn = samples((BATCH, SEQ), 50, seed=3)
    assert drawn == samples((BATCH, SEQ), 50, seed=3)
    assert drawn != samples((BATCH, SEQ), 50, seed=4)
    assert all(1 <= point["batch"] <= 16 and 1 <= point["seq"] <= 512 for point in drawn)
    assert sum(point["seq"] < 32 for point in drawn) > 12


def test_steps_are_even_by_ratio_and_keep_both_ends() -> None:
    assert steps_between(1, 5, 10) == [1, 2, 3, 4, 5]
    assert steps_between(1, 5, 2) == [1, 5]
    assert steps_between(1, 5, 1) == [5]
    assert steps_between(1, 1024, 11) == [2**i for i in range(11)]
    assert steps_between(0, 10**6, 7) == [0, 1, 10, 100, 1000, 10**4, 10**5, 10**6]


def test_every_size_follows_the_symbols() -> None:
    graph = chain(["4*n", "n**2 + 8", "16"])
    at = resolve(graph, {"n": 10})
    assert [s.nbytes for s in at.storages] == [8, 40, 108, 16]
    assert [t.shape for t in at.tensors] == [(8,), (40,), (108,), (16,)]
    assert [t.nbytes for t in at.tensors] == [8, 40, 108, 16]
    assert at.symbols[0].hint == 10
    assert [s.formula for s in at.storages] == ["", "4*n", "n**2 + 8", "16"]
    assert resolve(at, {"n": 4}) == graph
    check_graph(at)


def test_at_the_hints_nothing_changes() -> None:
    for graph in (chain(["4*n", "n//3"]), gpt2()):
        assert resolve(graph) == graph
    plain = chain(["16"], symbols=())
    assert resolve(plain) is plain


@pytest.mark.parametrize(
    ("shape", "strides", "formulas", "expected"),
    [
        ((4, 3), (3, 1), ("n", ""), (3, 1)),
        ((3, 4), (4, 1), ("", "n"), (9, 1)),
        ((3, 4), (1, 3), ("", "n"), (1, 3)),
        ((4, 3), (1, 4), ("n", ""), (1, 9)),
        ((2, 4, 3), (0, 3, 1), ("", "n", ""), (0, 3, 1)),
        ((2, 3, 4), (12, 4, 1), ("", "", "n"), (27, 9, 1)),
        ((1, 4), (4, 1), ("", "n"), (9, 1)),
        ((3, 4), (100, 1), ("", "n"), (100, 1)),
    ],
)
def test_dense_strides_follow_the_shape(
    shape: tuple[int, ...], strides: tuple[int, ...], formulas: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    graph = chain(["400*n"])
    tensors = tuple(
        replace(t, shape=shape, strides=strides, formulas=formulas, dtype="float32", nbytes=48)
        if t.name == "a"
        else t
        for t in graph.tensors
    )
    (tensor,) = (t for t in resolve(replace(graph, tensors=tensors), {"n": 9}).tensors if t.name == "a")
    assert tensor.strides == expected
    assert tensor.shape == tuple(9 if text else size for text, size in zip(formulas, shape, strict=True))


def _view(storage: str, **fields: Any) -> Graph:
    """x → a (4n bytes) with `fields` for the tensor a."""
    graph = chain([storage])
    return check_graph(replace(graph, tensors=(graph.tensors[0], replace(graph.tensors[1], **fields))))


def test_strides_and_offset_follow_their_formulas() -> None:
    # The right half of a square of n: n rows, n//2 columns, beginning n//2 elements in.
    graph = _view(
        "4*n**2", shape=(4, 2), nbytes=32, dtype="float32", strides=(4, 1), offset=8,
        formulas=("n", "n//2"), layout=("n", "1", "4*(n - n//2)"),
    )  # fmt: skip
    tensor = resolve(graph, {"n": 9}).tensors[1]
    assert (tensor.shape, tensor.nbytes, tensor.strides, tensor.offset) == ((9, 4), 144, (9, 1), 20)
    assert resolve(resolve(graph, {"n": 9}), {"n": 4}) == graph
    # A plain shape moves, too, and a single row is contiguous.
    place: dict[str, Any] = {"strides": None, "offset": 16, "layout": ("n", "1", "4*n")}
    row = _view("4*n**2", shape=(1, 2), nbytes=8, formulas=(), **place)
    tensor = resolve(row, {"n": 5}).tensors[1]
    assert (tensor.shape, tensor.strides, tensor.offset) == ((1, 2), None, 20)
    with pytest.raises(InputError, match=r"tensor 'a', layout: found 4\*\(n - 5\) = -4 at n=4"):
        resolve(_view("4*n", shape=(1,), nbytes=4, formulas=(), layout=("1", "4*(n - 5)")), {"n": 4})


def test_a_place_known_only_at_the_hint_is_refused_where_it_is_wrong_for_certain() -> None:
    # The second half of 4 elements, with an offset that does not follow n.
    graph = _view("4*n", shape=(2,), nbytes=8, dtype="float32", offset=8, formulas=("n//2",))
    assert resolve(graph, {"n": 10}).tensors[1].offset == 8
    with pytest.raises(InputError) as caught:
        resolve(graph, {"n": 2})
    assert str(caught.value) == (
        "net: tensor 'a': found bytes 8 to 12 at n=2, its strides and offset known only at the hint,"
        " expected within the 8 bytes of storage 'a'"
    )
    holes = _view("4*n", shape=(2,), nbytes=8, dtype="float32", strides=(3,), formulas=())
    with pytest.raises(InputError, match=r"'a': found bytes 0 to 16 at n=3, its strides"):
        resolve(holes, {"n": 3})
    wrong = replace(graph.tensors[1], layout=("1", "4*n"))
    with pytest.raises(InputError, match=r"'a': found bytes 8 to 12 at n=2, expected within the 8 bytes"):
        resolve(replace(graph, tensors=(graph.tensors[0], wrong)), {"n": 2})


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (("1",), "1 layout formulas, expected one for each of 1 dimensions and one for the offset"),
        (("1", "n"), "tensor 'a', layout: found n = 4 at n = 4, expected 8, the plain number"),
        (("n", "2*n"), "tensor 'a', layout: found n = 4 at n = 4, expected 1, the plain number"),
        (("1", "2*m"), "tensor 'a', layout: found the symbol 'm'"),
    ],
)
def test_a_layout_that_does_not_fit_is_named(layout: tuple[str, ...], message: str) -> None:
    good = _view("4*n", shape=(2,), nbytes=8, dtype="float32", offset=8, formulas=("n//2",))
    good = replace(good, tensors=(good.tensors[0], replace(good.tensors[1], layout=("1", "2*n"))))
    assert loads(dumps(good).decode(), "net") == good
    text = json.dumps(json.loads(dumps(good))).replace('["1", "2*n"]', json.dumps(layout))
    with pytest.raises(InputError) as caught:
        loads(text, "net")
    assert message in str(caught.value)


def test_sizes_that_depend_on_data_get_bytes_from_their_value() -> None:
    graph = chain(["8*u0", "4"], symbols=(DATA,))
    assert graph.storages[1].nbytes == 0
    assert to_problem(graph).names == ("b",)
    assert symbolic_problem(graph).frame.names == ("a", "b")
    at = resolve(graph, {"u0": 5})
    assert at.storages[1].nbytes == 40
    assert to_problem(at).size.tolist() == [40, 4]
    assert symbolic_problem(graph).at({"u0": 5}).size.tolist() == [40, 4]
    with pytest.raises(InputError, match="neither a value nor a hint"):
        resolve(graph)


def test_elements_of_an_empty_tensor_get_bytes_by_their_type() -> None:
    graph = chain(["8*u0"], symbols=(DATA,))
    for dtype, expected in (("int64", 40), ("bfloat16", 10), ("bool", 5), ("float8_e4m3fn", 5)):
        tensors = (graph.tensors[0], replace(graph.tensors[1], dtype=dtype, formulas=("u0",)))
        assert resolve(replace(graph, tensors=tensors), {"u0": 5}).tensors[1].nbytes == expected


@pytest.mark.parametrize(
    ("formula", "n", "message"),
    [
        ("n - 3", 2, "net: storage 'a': found n - 3 = -1 at n=2, expected a whole number from 0 to 2^63-1"),
        ("n/2", 3, "storage 'a': found n/2 = 3/2 at n=3"),
        ("8//(n - 3)", 3, "storage 'a': found 8//(n - 3), a division by zero at n=3"),
        ("n**16", 64, "storage 'a': found n**16 = 79228162514264337593543950336 at n=64"),
        ("n*m", 3, "storage 'a': found the symbol 'm' in 'n*m', expected one of n"),
    ],
)
def test_impossible_sizes_name_storage_formula_and_values(formula: str, n: int, message: str) -> None:
    graph = chain(["4*n"])
    storages = (graph.storages[0], replace(graph.storages[1], formula=formula))
    with pytest.raises(InputError) as caught:
        resolve(replace(graph, storages=storages), {"n": n})
    assert message in str(caught.value)


def test_sizes_that_sum_past_the_limit_are_an_error() -> None:
    graph = chain([f"{2**57}*n", f"{2**57}*n - n"], symbols=(replace(N, hint=2),))
    with pytest.raises(InputError, match="sum passes 2"):
        resolve(graph, {"n": 40})
    with pytest.raises(InputError, match="sum passes 2"):
        symbolic_problem(graph).at({"n": 40}, origin=False)


@given(st.integers(1, 16), st.integers(1, 512))
def test_the_symbolic_problem_is_the_problem_of_the_resolved_graph(batch: int, seq: int) -> None:
    values = {"batch": batch, "seq": seq}
    ours = symbolic_problem(gpt2()).at(values)
    plain = to_problem(resolve(gpt2(), values))
    assert ours == plain
    assert ours.origin == plain.origin


def test_rounded_sizes_are_rounded_at_each_value() -> None:
    problem = symbolic_problem(chain(["5*n"]), round_sizes=True)
    assert [problem.at({"n": n}).size.tolist() for n in (1, 12, 13)] == [[64], [64], [128]]
