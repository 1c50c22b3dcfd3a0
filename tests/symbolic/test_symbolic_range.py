"""Trends of sizes, and plans checked over ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import InputError, adopt, make_plan, make_problem, to_problem, validate_plan
from memplan_engine.graph import Graph, Op, Role, Storage, Symbol, Tensor, check_graph
from memplan_engine.problem import Gap
from memplan_engine.symbolic import (
    Proof,
    Trend,
    parse,
    plan_buckets,
    resolve,
    revalidate,
    symbolic_problem,
    trend,
)
from tests.support.symbolic_graphs import BATCH, SEQ, N, chain, gpt2
from tests.symbolic.test_symbolic_expression import FORMULAS

THREE = (Symbol("n", 1, 200, 4), Symbol("seq", 1, 200, 4), Symbol("batch", 1, 200, 4))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", Trend.CONSTANT),
        ("4*seq", Trend.CONSTANT),
        ("4*n*seq + n//2", Trend.UP),
        ("4*((n + 7)//8)*8", Trend.UP),
        ("CeilDiv(n, seq)", Trend.UP),
        ("max(n, seq, 4) + min(n, 9)", Trend.UP),
        ("n**3*seq**2", Trend.UP),
        ("100 - n", Trend.DOWN),
        ("seq//n", Trend.DOWN),
        ("-3*n", Trend.DOWN),
        ("(0 - n)*(seq - 300)", Trend.UP),
        ("(0 - n)**3", Trend.DOWN),
        ("n*n - n", Trend.UP),
        ("(n - 1)*(n - 1)", Trend.UP),
        ("2*n - n", Trend.UP),
        ("n - n", Trend.CONSTANT),
        ("(n - seq)*4 + seq*4", Trend.UP),
        ("n*(seq - 1)", Trend.UP),
        ("n % 8", Trend.UNKNOWN),
        ("seq % 8", Trend.CONSTANT),
        ("n*(seq - 2)", Trend.UNKNOWN),
        ("n - n//2", Trend.UNKNOWN),
        ("(n - 3)*(n - 3)", Trend.UNKNOWN),
        ("8//(n - 3)", Trend.UNKNOWN),
    ],
)
def test_trends_by_hand(text: str, expected: Trend) -> None:
    assert trend(parse(text), "n", THREE) is expected


@given(FORMULAS, st.integers(1, 199), st.integers(1, 200), st.integers(1, 200))
def test_a_trend_is_never_refuted_by_values(text: str, n: int, seq: int, batch: int) -> None:
    formula = parse(text)
    claimed = trend(formula, "n", THREE)
    at = {"seq": seq, "batch": batch}
    before, after = formula.at({**at, "n": n}), formula.at({**at, "n": n + 1})
    far = formula.at({**at, "n": 200})
    if claimed is Trend.UP:
        assert before <= after <= far
    elif claimed is Trend.DOWN:
        assert before >= after >= far
    elif claimed is Trend.CONSTANT:
        assert before == after == far


def test_ranges_without_limit_and_huge_numbers_are_no_trouble() -> None:
    endless = (Symbol("n", 0, None, 1), Symbol("m", 0, None, 1))
    assert trend(parse("4*n - m"), "n", endless) is Trend.UP
    assert trend(parse("(n - m)*m"), "n", endless) is Trend.UP
    assert trend(parse("n*0 - m*(n - n)"), "n", endless) in (Trend.CONSTANT, Trend.UP)
    large = "*".join(["9223372036854775807"] * 40)
    assert trend(parse(f"{large}*n + n//3"), "n", endless) is Trend.UP
    assert trend(parse(f"n//({large})"), "n", endless) is Trend.UP


def test_one_symbol_that_grows_is_proved_by_its_largest_value() -> None:
    """a [0,2) lies at 0 and b [1,2) behind what a has at n = 64."""
    graph = resolve(chain(["4*n", "8*n"]), {"n": 64})
    report = revalidate(adopt(to_problem(graph), np.array([0, 256])))
    assert (report.valid, report.proof, report.points) == (True, Proof.PROVED, 1)
    assert report.arena_bytes == 256 + 512
    assert report.ranges == (("n", 1, 64),)
    assert report.limits == (("n", None),)
    assert report.summary.startswith("holds for n 1–64: proved (")


def test_the_first_failing_value_is_found_with_the_two_that_collide() -> None:
    graph = resolve(chain(["4*n", "8*n"]), {"n": 16})
    plan = adopt(to_problem(graph), np.array([0, 64]))
    assert validate_plan(plan).valid
    report = revalidate(plan)
    assert not report.valid
    assert report.failure is not None
    assert report.failure.values == (("n", 17),)
    assert report.failure.buffers == ("a", "b")
    assert report.summary == ("fails at n=17: a and b overlap at steps 1–1 in bytes 64–67 (4 bytes)")
    assert report.limits == (("n", 17),)


def test_of_two_symbols_the_first_in_order_is_named() -> None:
    symbols = (replace(BATCH, hint=2), replace(SEQ, hint=8))
    graph = chain(["batch*seq", "64"], symbols)
    report = revalidate(adopt(to_problem(graph), np.array([0, 64])))
    assert report.failure is not None
    assert report.failure.values == (("batch", 9), ("seq", 8))
    assert report.limits == (("batch", 9), ("seq", 33))


def test_a_failure_of_two_symbols_together_cannot_be_lowered() -> None:
    """batch + seq first passes 64 with both: 3 * 16 = 48 + 2, and 2 * 3 + 30."""
    symbols = (Symbol("batch", 1, 16, 2), Symbol("seq", 1, 30, 2))
    graph = chain(["3*batch + seq", "64"], symbols)
    report = revalidate(adopt(to_problem(graph), np.array([0, 64])))
    assert report.limits == (("batch", None), ("seq", None))
    assert report.failure is not None
    assert report.failure.values == (("batch", 12), ("seq", 29))


def test_a_symbol_that_does_not_grow_is_enumerated_when_its_range_is_small() -> None:
    graph = resolve(chain(["4*(n % 8)", "8"]), {"n": 4})
    held = revalidate(adopt(to_problem(graph), np.array([0, 64])))
    assert (held.valid, held.proof, held.points) == (True, Proof.PROVED, 64)
    assert held.reason == "every value of n was tried"
    tight = to_problem(graph, alignment=1)
    failed = revalidate(adopt(tight, np.array([0, 16])))
    assert failed.failure is not None
    assert failed.failure.values == (("n", 5),)


def test_a_large_range_is_sampled_and_says_so() -> None:
    wide = (Symbol("n", 1, 10**6, 4), Symbol("m", 1, 10**6, 4))
    graph = chain(["4*(n % 8) + 4*m", "8"], wide)
    held = revalidate(adopt(to_problem(graph), np.array([0, 4 * 10**6 + 64])), count=50)
    assert (held.valid, held.proof) == (True, Proof.SAMPLED)
    assert held.reason == "sizes are not known to grow with n"
    assert 50 < held.points < 120
    # m grows, so every point is tried at its largest value, and one that fails is lowered.
    failed = revalidate(adopt(to_problem(graph), np.array([0, 4 * 10**6])), count=50)
    assert failed.failure is not None
    values = dict(failed.failure.values)
    assert 4 * (values["n"] % 8) + 4 * values["m"] == 4 * 10**6 + 4


def test_values_at_which_no_model_runs_are_counted_and_left_out() -> None:
    graph = chain(["4*((n - 11)//4 + 1)", "8"], (Symbol("n", 1, 64, 20),))
    report = revalidate(adopt(to_problem(graph), np.array([0, 64])))
    assert (report.valid, report.proof, report.impossible) == (True, Proof.PROVED, 0)
    halves = chain(["5*n/2", "8"], (Symbol("n", 1, 9, 4),))
    report = revalidate(adopt(to_problem(halves, alignment=1), np.array([0, 20])))
    assert (report.valid, report.proof, report.points, report.impossible) == (True, Proof.PROVED, 4, 5)
    report = revalidate(adopt(to_problem(halves, alignment=1), np.array([0, 19])))
    assert report.failure is not None
    assert report.failure.values == (("n", 8),)
    with pytest.raises(InputError, match="storage 'a': found n - 4 = -1 at n=3"):
        plan_buckets(chain(["n - 4", "8"]), "n", [3, 64])


def test_a_buffer_without_bytes_at_the_hint_has_no_place() -> None:
    graph = chain(["4*n", "n - 4", "8"])
    plan = make_plan(graph)
    assert plan.problem.names == ("a", "c")
    report = revalidate(plan)
    assert report.failure is not None
    assert report.failure.values == (("n", 5),)
    assert report.failure.buffers == ("b",)
    assert "no place" in report.failure.message


def test_sizes_that_pass_the_limit_fail_at_the_first_such_value() -> None:
    graph = chain(["4*n", f"{2**58}*n"], (replace(N, hint=1),))
    report = revalidate(adopt(to_problem(graph), np.array([0, 256])))
    assert report.failure is not None
    assert dict(report.failure.values)["n"] in (31, 32)
    assert "2^63-1" in report.failure.message


def test_rounded_sizes_are_known_by_the_plan() -> None:
    graph = resolve(chain(["5*n", "8"]), {"n": 12})
    report = revalidate(adopt(to_problem(graph, round_sizes=True), np.array([0, 64])))
    assert report.failure is not None
    assert report.failure.values == (("n", 13),)


def test_no_limit_known_is_said() -> None:
    graph = chain(["4*n", "8"], (Symbol("n", 1, None, 4),))
    report = revalidate(adopt(to_problem(graph), np.array([0, 256])))
    assert report.ranges == (("n", 1, 64),)
    assert report.unlimited == ("n",)
    assert report.valid


def test_plans_that_cannot_be_checked_are_refused() -> None:
    plain = make_plan(make_problem([0], [1], [8]))
    with pytest.raises(InputError, match="plan: found a problem that was made of no graph"):
        revalidate(plain)
    with pytest.raises(InputError, match="symbols: found none, expected a graph with symbols"):
        revalidate(make_plan(chain(["8"], ())))
    plan = make_plan(chain(["4*n", "8"]))
    renamed = replace(plan.problem, names=("a", "z"))
    with pytest.raises(InputError, match="buffer 'z': found no storage of that name"):
        revalidate(replace(plan, problem=renamed))
    other = replace(plan.problem, size=plan.problem.size + 3)
    with pytest.raises(InputError, match="buffer 'a': found 19 bytes in the plan, expected 16, which its"):
        revalidate(replace(plan, problem=other))
    gaps = replace(plan.problem, gaps={0: (Gap(0, 1, 0, 4),)})
    with pytest.raises(InputError, match="gaps: found windows in bytes"):
        revalidate(replace(plan, problem=gaps))


@given(
    st.lists(
        st.sampled_from(["4*n", "n*n", "100", "8*(n//3)", "n % 7", "300 - 4*n", "n*n - 3*n + 3"]),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 64),
)
def test_a_report_agrees_with_trying_every_value(formulas: list[str], hint: int) -> None:
    graph = resolve(chain(formulas), {"n": hint})
    problem = symbolic_problem(graph, alignment=1)
    plan = make_plan(problem.at(), "greedy_by_size")
    report = revalidate(plan)
    bad = [
        n
        for n in range(1, 65)
        if not validate_plan(adopt(problem.at({"n": n}, origin=False), plan.offsets)).valid
    ]
    assert report.proof is Proof.PROVED
    assert report.valid is (not bad)
    if bad:
        assert report.failure is not None
        (first,) = dict(report.failure.values).values()
        assert first == bad[0]


def test_a_real_plan_over_its_range() -> None:
    plan = make_plan(gpt2(), "greedy_by_size")
    report = revalidate(plan)
    assert report.proof is Proof.PROVED
    assert report.failure is not None
    values = dict(report.failure.values)
    problem = symbolic_problem(gpt2())
    assert values == {"batch": 2, "seq": 1024}
    assert not validate_plan(adopt(problem.at(values), plan.offsets)).valid
    top = resolve(gpt2(), {"batch": 16, "seq": 2048})
    held = revalidate(make_plan(top, "greedy_by_size"))
    assert (held.valid, held.proof, held.points) == (True, Proof.PROVED, 1)


def test_the_first_failing_value_is_found_between_values_without_sizes() -> None:
    """5 n / 2 bytes below an offset of 30: sizes only for even n, 14 is the first that needs 35."""
    graph = check_graph(
        Graph(
            "net",
            (
                Storage("x", 4, Role.INPUT),
                Storage("a", 5, Role.ACTIVATION, 0, "5*n / 2"),
                Storage("b", 30, Role.OUTPUT),
            ),
            tuple(
                Tensor(name, (size,), "int8", size, name) for name, size in (("x", 4), ("a", 5), ("b", 30))
            ),
            (Op("f", "f", ("x",), ("a",)), Op("g", "g", ("a",), ("b",))),
            ("x",),
            ("b",),
            symbols=(Symbol("n", 2, 28, 2),),
        )
    )
    report = revalidate(adopt(to_problem(graph, alignment=1), np.array([0, 30])))
    assert report.failure is not None
    assert report.failure.values == (("n", 14),)
    assert report.limits == (("n", 14),)
