"""The benchmarks' instances have the optimum that they claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.families import adversarial, constrained, drawn, found, perfect
from benchmarks.families.instance import Feature, Instance
from benchmarks.solvers.question import request_of, to_problem
from memplan_engine.planner import adopt, make_plan
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.verify.validate import validate_plan
from tests.support import reference

CONSTRAINED = (
    (constrained.aligned, 60, {Feature.ALIGNMENTS}),
    (constrained.aligned_perfect, 60, {Feature.ALIGNMENTS}),
    (constrained.gapped, 60, {Feature.GAPS}),
    (constrained.gapped_perfect, 60, {Feature.GAPS}),
    (constrained.windowed, 11, {Feature.GAPS, Feature.WINDOWS}),
    (constrained.windowed_perfect, 60, {Feature.GAPS, Feature.WINDOWS}),
    (constrained.fixed, 60, {Feature.FIXED}),
)


PERFECT = (
    perfect.guillotine(100, 0),
    perfect.guillotine(150, 1, even=True),
    perfect.pinwheel(102, 2),
    perfect.guillotine(16, 3, steps=4, units=4),
)


HARD = (
    adversarial.path(3, stack=2),
    adversarial.caterpillar(3, stack=2),
    adversarial.fragmenting(3),
    adversarial.no_way_out(3),
    adversarial.in_turn(adversarial.caterpillar(2), adversarial.no_way_out(2), perfect.guillotine(20, 0)),
)


OPTIMAL = [made for make, count, _ in CONSTRAINED if (made := make(count, 0)).optimum is not None]


@pytest.mark.parametrize("instance", [*PERFECT, *HARD, *OPTIMAL], ids=lambda instance: instance.name)
def test_the_witness_needs_no_more_than_the_optimum(instance: Instance) -> None:
    assert instance.witness is not None
    plan = adopt(instance.problem, instance.witness)
    assert validate_plan(plan).valid
    assert plan.arena_bytes == instance.optimum == instance.bound == instance.capacity


@pytest.mark.parametrize("instance", [*PERFECT, *OPTIMAL], ids=lambda instance: instance.name)
def test_perfect_packings_are_full_at_every_step(instance: Instance) -> None:
    problem = instance.problem
    assert {reference.live_at(problem, step) for step in range(problem.steps)} == {instance.optimum}
    assert len(problem) == int(instance.name.split("-")[1])


@pytest.mark.parametrize(("make", "count", "asked"), CONSTRAINED)
def test_what_constrained_instances_ask_for(
    make: Callable[[int, int], Instance], count: int, asked: set[Feature]
) -> None:
    once, other = make(count, 1), make(count, 2)
    assert (len(once.problem), once.features) == (count, asked)
    assert once.problem == make(count, 1).problem != other.problem
    assert (once.family, once.name) == (other.family, f"{once.family}-s1")
    # What a solver is told is what the validator will ask for.
    assert to_problem(request_of(once, 1.0)) == once.problem


def test_alignments_fixed_offsets_and_windows_of_perfect_packings() -> None:
    aligned = constrained.aligned_perfect(60, 0)
    assert aligned.witness is not None
    for offset, alignment in zip(aligned.witness.tolist(), aligned.problem.alignment.tolist(), strict=True):
        # 2^16 divides the offset, or the alignment does and twice as much does not.
        assert offset % alignment == 0
        assert alignment == 65_536 or offset % (2 * alignment) == alignment
    fixed = constrained.fixed(60, 0, share=0.25)
    assert fixed.witness is not None
    places = [(at, low) for at, low in zip(fixed.problem.fixed, fixed.witness, strict=True) if at != FREE]
    assert len(places) == 15
    assert all(at == low for at, low in places)
    windowed = constrained.windowed_perfect(60, 0).problem
    assert len(windowed.gaps) == 20
    for row, (gap,) in windowed.gaps.items():
        assert windowed.start[row] < gap.start < gap.end < windowed.end[row]
        assert 0 < gap.high - gap.low < windowed.size[row]


def test_no_full_cut_goes_through_a_pinwheel() -> None:
    five = perfect.pinwheel(5, 0)
    problem, low = five.problem, five.witness
    assert low is not None
    for step in range(1, problem.steps):
        assert ((problem.start < step) & (step < problem.end)).any()
    for byte in range(1024, five.lower_bound, 1024):
        assert ((low < byte) & (byte < low + problem.size)).any()


def test_too_many_pieces_for_the_rectangle() -> None:
    with pytest.raises(ValueError, match="too few steps or units"):
        perfect.guillotine(17, 0, steps=4, units=4)


def test_the_same_seed_gives_the_same_instance() -> None:
    makers = (perfect.guillotine, perfect.pinwheel, drawn.mixed, drawn.training)
    for make in makers:
        assert make(60, 5).problem == make(60, 5).problem
        assert make(60, 5).problem != make(60, 6).problem
    small = perfect.guillotine(4, 0, steps=8, units=8).problem
    pieces = sorted(zip(small.start.tolist(), small.end.tolist(), small.size.tolist(), strict=True))
    assert pieces == [(0, 3, 4096), (0, 8, 4096), (3, 5, 4096), (5, 8, 4096)]


def test_what_greedy_by_size_needs() -> None:
    """Three bands instead of two, four instead of two, but for a few of the 1,024 units of each."""
    for instance, bands in ((adversarial.path(4), 3), (adversarial.caterpillar(4), 4)):
        arena = make_plan(instance.problem, "greedy_by_size").arena_bytes
        assert bands * 65_536 - 64 * 10 < arena <= bands * 65_536 + 64
        assert instance.optimum == instance.lower_bound == 2 * 65_536 + 64


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_what_first_fit_by_start_needs(phases: int) -> None:
    instance = adversarial.fragmenting(phases)
    arena = make_plan(instance.problem, "first_fit_by_start").arena_bytes
    assert instance.optimum == instance.lower_bound == 64 * 2 * 4**phases
    assert 2 * arena == (2 + phases) * instance.lower_bound


def test_load_cannot_be_reached() -> None:
    once = adversarial.no_way_out(1)
    small = make_problem(once.problem.start, once.problem.end, -(-once.problem.size // 65_536))
    # The keeper is one of those units here, and a 1,024th of one there.
    assert reference.optimum(small) == 7
    assert once.lower_bound == 5 * 65_536 + 64
    assert once.optimum == 6 * 65_536 + 64


def test_no_order_does_well_on_parts_in_turn() -> None:
    instance = adversarial.in_turn(
        adversarial.caterpillar(3), adversarial.fragmenting(3), adversarial.path(3)
    )
    for name in ("greedy_by_size", "greedy_by_area", "greedy_by_lifetime", "first_fit_by_start"):
        assert 3 * make_plan(instance.problem, name).arena_bytes >= 4 * instance.bound, name


def test_activations_live_until_their_backward_step() -> None:
    problem = drawn.training(3, 0).problem
    lives = list(zip(problem.start.tolist(), problem.end.tolist(), strict=True))
    assert lives[:3] == [(0, 6), (1, 5), (2, 4)]
    assert lives[3:9] == [(s, s + 1) for s in range(6)]
    assert lives[9:15] == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)]
    assert lives[15:] == [(5, 6), (4, 6), (3, 5)]
    assert problem.size[:3].tolist() == problem.size[15:].tolist()


def test_lists_of_buffers_on_disk(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one.96.csv").write_text("id,lower,upper,size,alignment\na,0,2,40,32\nb,1,3,33,32\n")
    (tmp_path / "fixed.csv").write_text("id,lower,upper,size,offset\na,0,2,40,8\n")
    (tmp_path / "plain.csv").write_text("id,lower,upper,size\na,0,2,40\n")
    plain, one = found.published(tmp_path)
    assert (one.name, one.target, one.capacity) == ("set/one.96", 96, 96)
    assert one.problem.size.tolist() == [64, 64]
    assert one.problem.alignment.tolist() == [1, 1]
    assert (plain.name, plain.target, plain.capacity) == ("plain", None, 40)
    assert list(found.published(tmp_path / "nowhere")) == []
    gaps = make_problem([0], [4], [8], gaps={0: (Gap(1, 2),)})
    assert found.plain("gaps", gaps) is None
