"""What `diff` says of the example pairs, to the byte."""

from __future__ import annotations

import memplan_examples
import numpy as np
import pytest

from memplan_engine import Plan, SolveLimits, load, make_plan
from memplan_engine.diffing.moment import Cause
from memplan_engine.diffing.regression import Change, Diff, diff
from memplan_engine.diffing.rows import diff_rows, module_rows
from memplan_engine.kernels.alignment import NOBODY


def causes(found: Diff) -> dict[Cause, int]:
    """Those that say something."""
    return {cause: nbytes for cause, nbytes in found.causes.items() if nbytes}


# The example pairs: arenas of both sides, causes and what is elsewhere, changes, peaks of both sides
PAIRS = {
    "attention": (
        (53_477_376, 117_440_512),
        {Cause.NEW: 104_857_600, Cause.GONE: -3_145_728},
        -37_748_736,
        {Change.ONLY_BASE: 2, Change.ONLY_HEAD: 21, Change.SAME: 45},
        (44, 53),
    ),
    "batch": (
        (28_311_552, 56_623_104),
        {Cause.LARGER: 28_311_552},
        0,
        {Change.GROWN: 31, Change.SAME: 2},
        (29, 29),
    ),
    "front_op": ((5_446_656, 5_446_656), {}, 0, {Change.ONLY_HEAD: 1, Change.SAME: 42}, (26, 27)),
    "kept_view": (
        (16_777_216, 20_971_520),
        {Cause.LONGER: 8_388_608, Cause.GONE: -4_096},
        -4_190_208,
        {Change.ONLY_BASE: 1, Change.LONGER: 1, Change.SAME: 26},
        (1, 8),
    ),
}


def pair(name: str, strategy: str = "auto") -> tuple[Plan, Plan]:
    limits = (SolveLimits(nodes=100_000) for _ in "12")
    paths = memplan_examples.pairs()[name]
    base, head = (make_plan(load(path), strategy, limits=next(limits)) for path in paths)
    return base, head


def test_every_pair_has_its_golden_row():
    assert set(memplan_examples.pairs()) == set(PAIRS)
    assert all(path.stat().st_size < 300_000 for files in memplan_examples.pairs().values() for path in files)


@pytest.mark.parametrize("name", PAIRS)
def test_golden_pairs(name):
    arenas, made_of, elsewhere, counts, peaks = PAIRS[name]
    found = diff(*pair(name))
    assert (found.base.arena_bytes, found.head.arena_bytes) == arenas
    assert found.demand_delta == found.arena_delta == arenas[1] - arenas[0]
    assert (causes(found), found.elsewhere) == (made_of, elsewhere)
    assert {kind: count for kind, count in found.counts.items() if count} == counts
    assert (found.base_load.peak_step, found.head_load.peak_step) == peaks
    assert found.related


@pytest.mark.parametrize("name", ["attention", "batch", "kept_view"])
def test_the_same_pair_the_other_way_round_has_the_same_causes_with_the_other_sign(name):
    base, head = pair(name)
    there, back = diff(base, head), diff(head, base)
    opposite = {
        Cause.LARGER: Cause.SMALLER,
        Cause.NEW: Cause.GONE,
        Cause.LONGER: Cause.SHORTER,
    }
    for one, other in opposite.items():
        assert (there.causes[one], there.causes[other]) == (-back.causes[other], -back.causes[one])
    assert there.elsewhere == -back.elsewhere


def test_a_copy_instead_of_a_view_ends_what_it_kept_alive():
    base, head = pair("kept_view")
    found = diff(head, base)
    assert causes(found) == {Cause.NEW: 4_096, Cause.SHORTER: -8_388_608}
    assert {kind: count for kind, count in found.counts.items() if count} == {
        Change.ONLY_HEAD: 1,
        Change.SHORTER: 1,
        Change.SAME: 26,
    }


def test_in_the_pair_with_an_op_at_the_front_everything_is_matched_and_only_the_op_is_new():
    found = diff(*pair("front_op"))
    assert (found.matching.head_of != NOBODY).all()
    (new,) = np.flatnonzero(found.matching.base_of == NOBODY)
    assert found.head.problem.names[new] == "add"
    # The additions that follow are add_1, add_2 … where they were add, add_1 …
    names = found.base.problem.names, found.head.problem.names
    moved = {names[0][base]: names[1][head] for base, head in zip(*found.matching.pairs, strict=True)}
    assert (moved["add"], moved["add_1"], moved["linear_3"]) == ("add_1", "add_2", "linear_3")


def test_the_kept_residual_is_named_with_its_line():
    found = diff(*pair("kept_view"))
    row = diff_rows(found)[0]
    assert (row.name, row.changes, row.at_peak) == ("relu", (Change.LONGER,), 8_388_608)
    assert row.provenance.source.code == "x = torch.relu(self.stem(image))"
    assert row.provenance.source.file == "example_graphs/make_pairs.py"


def test_without_its_fused_kernel_attention_holds_the_scores_of_every_pair_of_tokens():
    modules = module_rows(found := diff(*pair("attention")), found.moment)
    assert modules[0].module == "transformer.h.0.attn"
    assert [(part.name, part.delta) for part in modules[0].parts][:2] == [
        ("matmul", 50_331_648),
        ("mul", 50_331_648),
    ]
