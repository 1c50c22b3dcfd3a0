"""Formulas for what kernels take: features by hand, fits of known formulas, tables over graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import find_peak, to_problem
from memplan_engine.calibration.fit_formula import Sample, evaluate, fit, stated_error
from memplan_engine.calibration.kernel_table import Calibration, Formula, Machine, with_kernels
from memplan_engine.calibration.op_features import Features, Shown, features, graph_features
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Role, Storage, Tensor
from memplan_engine.scope import Scope

MACHINE = Machine("2.13.0+cpu", 2, "AVX512")


def shown(*shape: int) -> Shown:
    size = 4
    for each in shape:
        size *= each
    return Shown(shape, None, "float32", size)


def test_the_sizes_of_a_convolution_by_hand() -> None:
    x, w, y = shown(2, 20, 8, 8), shown(24, 20, 3, 3), shown(2, 24, 4, 4)
    found = features("aten.conv2d", [x, w], [y], threads=2)
    assert found.kind == "aten.convolution"
    assert found.regime == "float32 2d onednn dense kxk strided odd"
    assert found.sizes == {
        "x": 10240, "w": 17280, "y": 3072,
        "x16": 2 * 32 * 64 * 4, "w16": 32 * 32 * 9 * 4, "y16": 2 * 32 * 16 * 4,
        "columns": 20 * 9 * 16 * 4, "strided": 2 * 20 * 16 * 4, "unfolded": 2 * 20 * 9 * 16 * 4, "made": 3072,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("x", "w", "y", "words"),
    [
        ((1, 8, 14, 14), (8, 8, 3, 3), (1, 8, 14, 14), "2d native dense kxk unit"),
        ((1, 8, 14, 14), (8, 8, 5, 5), (1, 8, 14, 14), "2d onednn dense kxk unit odd"),
        ((2, 32, 14, 14), (32, 1, 3, 3), (2, 32, 14, 14), "2d onednn depthwise kxk unit"),
        ((2, 32, 14, 14), (32, 8, 1, 1), (2, 32, 14, 14), "2d onednn grouped 1x1 unit"),
        ((2, 3, 32, 32), (64, 3, 16, 16), (2, 64, 2, 2), "2d onednn dense kxk patches few wide"),
        ((2, 3, 28, 28), (64, 3, 14, 14), (2, 64, 2, 2), "2d onednn dense kxk patches few"),
        ((2, 32, 8, 8), (32, 16, 2, 2), (2, 16, 16, 16), "2d transposed onednn dense kxk unit"),
    ],
)
def test_the_ways_of_convolving(
    x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], words: str
) -> None:
    assert features("aten.convolution", [shown(*x), shown(*w)], [shown(*y)], 2).regime == f"float32 {words}"


def test_the_blocks_of_attention_are_those_of_the_kernel() -> None:
    """128 rows: tiles of 32 rows by 128 keys, two threads; 37,376 bytes, as torch's profiler has measured."""
    q = shown(2, 4, 128, 16)
    assert features("aten.scaled_dot_product_attention", [q, q, q], [q], 2).sizes["blocks"] == 37_376


@st.composite
def known(draw: st.DrawFn) -> tuple[tuple[dict[str, int], ...], list[dict[str, int]]]:
    names = ("x", "w", "y")
    sums = draw(
        st.lists(
            st.dictionaries(st.sampled_from(names), st.sampled_from((1, 2)), min_size=1),
            min_size=1,
            max_size=2,
        )
    )
    sizes = [{name: draw(st.integers(1, 10**6)) * 64 for name in names} for _ in range(20)]
    return tuple(sums), sizes


@given(known())
def test_a_formula_of_the_family_is_found_again(
    drawn: tuple[tuple[dict[str, int], ...], list[dict[str, int]]],
) -> None:
    sums, sizes = drawn
    samples = [
        Sample(each, evaluate(sums, each), evaluate(sums, each) + sum(each.values())) for each in sizes
    ]
    fitted = fit(samples)
    for place, sample in enumerate(samples):
        if place % 5 != 4:
            assert evaluate(fitted.sums, sample.sizes) == sample.nbytes


def test_the_error_is_that_of_samples_that_were_not_fitted() -> None:
    """Nine samples say x; the tenth took twice that: 1,000 of 4,000 kB held, when it was left out."""
    samples = [Sample({"x": 1_000_000 * n}, 1_000_000 * n, 4_000_000 * n) for n in range(1, 10)]
    fitted = fit([*samples, Sample({"x": 1_000_000}, 2_000_000, 4_000_000)])
    assert fitted.sums == ({"x": 1},)
    assert fitted.errors == (*(0.0,) * 9, 0.25)


def test_the_stated_error_is_the_rank_that_one_further_call_exceeds_once_in_twenty() -> None:
    """Of 19 errors the 19th, of 39 the 38th (0.95 · 40); of 18 none would do."""
    assert stated_error([0.01 * n for n in range(18)]) is None
    assert stated_error([0.01 * n for n in range(19)]) == 0.18
    assert stated_error([0.01 * n for n in reversed(range(39))]) == 0.37


@given(st.lists(st.floats(0, 1), min_size=20, max_size=80))
def test_at_most_one_in_twenty_of_equals_is_beyond_what_the_others_state(errors: list[float]) -> None:
    """Each of n calls in turn is the further one: no more than n/20 of them are further off than stated."""
    beyond = sum(
        error > (stated_error([*errors[:place], *errors[place + 1 :]]) or 0.0)
        for place, error in enumerate(errors)
    )
    assert beyond <= len(errors) / 20


def test_what_a_kernel_gives_is_not_there_while_a_padded_result_is() -> None:
    """A result of 3 channels is made in 16, and cut: 16 + 2 are held, then 3 stay."""
    sizes = [{"x": 2000 * n, "y16": 16_000 * n, "y": 3000 * n, "made": 3000 * n} for n in range(1, 12)]
    samples = [
        Sample(each, each["x"] + each["y16"] - each["made"], each["x"] + each["y16"]) for each in sizes
    ]
    fitted = fit(samples)
    assert max(fitted.errors) == 0
    assert evaluate(fitted.sums, sizes[3]) == samples[3].nbytes


def relu_graph(scope: Scope = Scope.WITH_TEMPORARIES) -> Graph:
    """y = relu(x), z = relu(y), 4,000 bytes each."""
    names = ("x", "y", "z")
    roles = (Role.INPUT, Role.ACTIVATION, Role.OUTPUT)
    return Graph(
        "relus",
        tuple(Storage(name, 4000, role) for name, role in zip(names, roles, strict=True)),
        tuple(Tensor(name, (1000,), "float32", 4000, name) for name in names),
        (Op("one", "aten.relu", ("x",), ("y",)), Op("two", "aten.relu", ("y",), ("z",))),
        ("x",), ("z",), scope=scope,
    )  # fmt: skip


def table(sums: tuple[dict[str, int], ...] = ({"in0": 1},), high: int = 5000) -> Calibration:
    bounds = {"in0": 0, "out0": 0}, {"in0": high, "out0": high}
    regime = "float32 dense 1 in"
    return Calibration(MACHINE, (Formula("aten.relu", regime, sums, *bounds, 10, 2, 0.0, 0.0),))


def test_kernels_take_their_place_at_the_peak() -> None:
    graph = with_kernels(relu_graph(), table())
    assert graph.scope is Scope.WITH_KERNELS
    assert [op.workspace.shared for op in graph.ops] == [4000, 4000]
    plain = find_peak(to_problem(relu_graph(), alignment=1)).nbytes
    assert find_peak(to_problem(graph, alignment=1)).nbytes == plain + 4000


def test_inside_and_outside_of_what_was_measured() -> None:
    found = graph_features(relu_graph(), 2)["one"]
    assert table().is_inside(found)
    assert not table(high=3999).is_inside(found)
    other = Features("aten.gelu", found.regime, found.sizes)
    assert table().formula(other) is None
    assert table().nbytes(other) == 0


@pytest.mark.parametrize("scope", [Scope.EAGER, Scope.WITH_KERNELS, Scope.PREDICTED_WITH_KERNELS])
def test_what_is_measured_or_calibrated_is_not_calibrated_again(scope: Scope) -> None:
    with pytest.raises(InputError, match="captured"):
        with_kernels(replace(relu_graph(), scope=scope), table())
