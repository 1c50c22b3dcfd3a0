"""Buckets of a symbol's range, each planned at its largest value, and sweeps over values."""

from __future__ import annotations

import pytest

from memplan_engine import InputError, SolveLimits
from memplan_engine.graph import Symbol
from memplan_engine.symbolic import (
    Proof,
    plan_buckets,
    schema_of,
    sweep,
)
from tests.support.symbolic_graphs import chain, gpt2


def test_buckets_by_hand() -> None:
    """a and b are live together: 12 n bytes, and b behind a at a multiple of 64."""
    table = plan_buckets(chain(["4*n", "8*n"]), "n", [64, 16])
    first, second = table.buckets
    assert [(b.low, b.high) for b in table.buckets] == [(1, 16), (17, 64)]
    assert (first.arena_bytes, second.arena_bytes) == (64 + 128, 256 + 512)
    assert (table.arena_bytes, table.separate_bytes, table.table_bytes) == (768, 960, 32)
    assert (first.worst_at, second.worst_at) == (1, 17)
    # At 17 the smaller one, of 68 bytes, may lie on top: 136 bytes up to the next unit, 192, and 68 more.
    assert second.worst_waste == 768 - 260
    assert all(b.report.valid and b.report.proof is Proof.PROVED for b in table.buckets)
    assert table.bucket(16) is first
    assert table.bucket(17) is second
    with pytest.raises(InputError, match="symbol 'n': found 65, expected 1 to 64"):
        table.bucket(65)


def test_a_bucket_whose_smallest_value_needs_more_is_given_more() -> None:
    table = plan_buckets(chain(["4*(64 - n) + 4", "8"]), "n", [64])
    (bucket,) = table.buckets
    assert (bucket.plan.arena_bytes, bucket.arena_bytes) == (64 + 4, 64 + 256)
    assert bucket.report.valid
    (bucket,) = plan_buckets(chain(["4*(64 - n) + 8", "4"]), "n", [64]).buckets
    assert bucket.plan.offsets.tolist() == [0, 64]
    assert bucket.report.failure is not None
    assert bucket.report.failure.values == (("n", 1),)


def test_buckets_of_a_real_graph_hold_below_their_largest_value() -> None:
    limits = SolveLimits(nodes=5_000)
    table = plan_buckets(gpt2(), "seq", [128, 256, 512], values={"batch": 4}, limits=limits)
    assert table.others == (("batch", 4),)
    assert [bucket.report.valid for bucket in table.buckets] == [True] * 3
    assert [bucket.report.proof for bucket in table.buckets] == [Proof.PROVED] * 3
    arenas = [bucket.arena_bytes for bucket in table.buckets]
    assert arenas == sorted(arenas)
    for bucket in table.buckets:
        assert bucket.worst_at == bucket.low
        assert 0 <= bucket.mean_waste <= bucket.worst_waste


@pytest.mark.parametrize(
    ("symbol", "highs", "message"),
    [
        ("m", [4], "symbol 'm': found an unknown symbol, expected one of n"),
        ("n", [], "buckets of 'n': found 0 values, expected 1 to 64"),
        ("n", [4, 8, 4], "buckets of 'n': found 4 twice"),
        ("n", [4, 65], "symbol 'n': found 65, expected 1 to 64"),
        ("n", list(range(1, 66)), "found 65 values"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(symbol: str, highs: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_buckets(chain(["4*n", "8*n"]), symbol, highs)


def test_a_sweep_by_hand() -> None:
    graph = chain(["4*n", "8*n"])
    result = sweep(graph, "n", [64, 16, 1], "greedy_by_size")
    assert result.values == (1, 16, 64)
    assert result.arena == (68, 192, 768)
    assert result.bound == (68, 192, 768)
    assert result.peak == (12, 192, 768)
    assert result.partition == (128, 192, 768)
    assert (result.symbol, result.hint, result.strategy) == ("n", 4, "greedy_by_size")
    assert sweep(graph, "n", points=10, at={"n": 7}).hint == 7
    spread = sweep(graph, "n", points=10).values
    assert (spread[0], spread[-1]) == (1, 64)
    assert 4 in spread
    assert len(spread) <= 10


def test_a_sweep_leaves_out_values_without_sizes() -> None:
    graph = chain(["4*(n - 8)", "8"], (Symbol("n", 1, 64, 16),))
    result = sweep(graph, "n", [4, 8, 12], limits=SolveLimits(nodes=1_000))
    assert (result.values, result.skipped) == ((8, 12), (4,))
    with pytest.raises(InputError, match="storage 'a': found 4"):
        sweep(graph, "n", [4])


def test_a_sweep_of_a_real_graph_keeps_its_order() -> None:
    result = sweep(gpt2(), "seq", strategy="greedy_by_size", at={"batch": 2})
    assert 30 <= len(result.values) <= 40
    assert 1024 in result.values
    assert result.others == (("batch", 2),)
    for bound, arena, partition, peak in zip(
        result.bound, result.arena, result.partition, result.peak, strict=True
    ):
        assert peak <= bound <= arena
        assert peak <= partition
    assert result.partition[0] == schema_of(gpt2(), {"batch": 2}).memory_bytes({"seq": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symbol": "m"}, "symbol 'm'"),
        ({"symbol": "n", "values": []}, "values of 'n': found 0 of them"),
        ({"symbol": "n", "values": range(1, 63)}, "values of 'n': found 62 of them, expected 2 to 60"),
        ({"symbol": "n", "points": 61}, "found 61 of them"),
        ({"symbol": "n", "values": [0]}, "symbol 'n': found 0, expected 1 to 64"),
        ({"symbol": "n", "at": {"n": 99}}, "symbol 'n': found 99"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sweep(chain(["4*n", "8*n"]), **options)
