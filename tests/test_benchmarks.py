"""The benchmarks' instances have the optimum that they claim, and the comparison catches what is wrong."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference

from benchmarks import __main__ as runner
from benchmarks import greedy_speed, guillotine, instances, peers
from benchmarks.families import adversarial, constrained, drawn, found, perfect
from benchmarks.families.instance import Feature, Instance
from benchmarks.solvers import run
from benchmarks.solvers.catalogue import SOLVERS, Question
from benchmarks.solvers.judge import Result, disagreement, judge, unasked
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import request_of, to_problem
from benchmarks.solvers.report import cells, ratio, share_of_cores, show_families, show_sums, spread, whole
from memplan_engine.planner import adopt, make_plan
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.validate import validate_plan

ROOT = Path(__file__).resolve().parents[1]
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


TINY = Instance("tiny", make_problem([0, 0, 1], [1, 2, 2], [1, 2, 2]), optimum=4, target=4)


def verdict(name: str, answer: Answer, instance: Instance = TINY) -> str:
    return judge(instance, SOLVERS[name], 1, answer).said


def test_answers_are_held_against_the_instance() -> None:
    assert verdict("minimalloc", Answer([0, 2, 0])) == "fits"
    assert verdict("minimalloc", Answer([4, 2, 0])) == "undecided"
    assert verdict("minimalloc", Answer([0, 1, 2])) == "WRONG"
    assert verdict("minimalloc", Answer(denied=True)) == "WRONG"
    assert verdict("minimalloc", Answer(denied=True), replace(TINY, target=3)) == "does not fit"
    assert verdict("decide", Answer([4, 2, 0], bound=4), replace(TINY, target=3)) == "does not fit"
    assert verdict("minimalloc", Answer(trouble="killed")) == "killed"
    assert verdict("auto", Answer([0, 2, 0], bound=4)) == "proven"
    assert verdict("auto", Answer([4, 2, 0], bound=4)) == "no"
    assert verdict("auto", Answer([0, 2, 0], bound=5)) == "WRONG"


def test_answers_are_held_against_each_other() -> None:
    unknown = replace(TINY, optimum=None)
    fits = judge(unknown, SOLVERS["decide"], 1, Answer([0, 2, 0], bound=4, cpu=1.0))
    denies = judge(unknown, SOLVERS["cp_sat_decide"], 2, Answer(denied=True, cpu=4.0))
    open_ = judge(unknown, SOLVERS["cp_sat_decide"], 1, Answer(cpu=5.0))
    assert disagreement([fits, open_]) == ""
    assert disagreement([fits, denies]) == "cp_sat_decide:2 says that 4 bytes are too few, decide needs 4"
    assert [ratio([fits], [other]) for other in (denies, open_)] == ["0.25", "<0.2"]
    assert ratio([open_], [denies]) == ">1.25"
    assert ratio([fits, open_], [denies, denies]) == ">0.75"
    assert ratio([fits, open_], [denies, open_]) == ""


def request(instance: Instance, binary: Path | str = "", seconds: float = 5.0) -> Request:
    return request_of(instance, seconds, binary=str(binary))


def program(folder: Path, body: str) -> Path:
    """A stand-in for MiniMalloc's binary."""
    path = folder / "program"
    path.write_text(
        f"#!{sys.executable}\nimport sys\noptions = dict(a[2:].split('=') for a in sys.argv[1:])\n{body}"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


STACK = """
header, *rows = open(options["input"], newline="").read().split("\\n")[:-1]
assert header == "id,lower,upper,size,alignment"
assert options["capacity"] == "4" and options["timeout"] == "5.0s"
top, lines = 0, [header + ",offset"]
for row in rows:
    lines.append(f"{row},{top}")
    top += int(row.split(",")[3])
open(options["output"], "w").write("\\n".join(reversed(lines[1:] + [lines[0]])) + "\\n")
print("Elapsed time 0.000s", file=sys.stderr)
"""


def test_a_program_is_given_a_table_and_its_offsets_are_read(tmp_path: Path) -> None:
    answer = run.ask(SOLVERS["minimalloc"], request(TINY, program(tmp_path, STACK)))
    assert answer.offsets == [0, 1, 3]
    assert 0 < answer.cpu < 5
    # NumPy alone would take it past that.
    assert 2**20 < answer.peak_bytes < 25 * 2**20


def test_a_program_is_told_of_alignments_and_gaps(tmp_path: Path) -> None:
    copy = tmp_path / "table"
    binary = program(tmp_path, f"open({str(copy)!r}, 'w').write(open(options['input']).read())")
    run.ask(SOLVERS["minimalloc"], request(ALL_AT_ONCE, binary))
    assert copy.read_text().splitlines() == [
        "id,lower,upper,size,alignment,gaps",
        "0,0,3,48,32,",
        "1,0,4,96,1,0-2@16:32 2-3",
        "2,2,4,32,64,",
        "3,0,1,16,16,",
    ]


@pytest.mark.parametrize(
    ("said", "denied", "trouble"),
    [
        ("Elapsed time 1.0s\\nNOT_FOUND: no", True, ""),
        ("Elapsed time 1.0s\\nDEADLINE_EXCEEDED: no", False, ""),
        ("NOT_FOUND: a column", False, "NOT_FOUND: a column"),
        ("", False, "exit code 1"),
    ],
)
def test_what_a_program_says(tmp_path: Path, said: str, denied: bool, trouble: str) -> None:
    binary = program(tmp_path, f"print('{said}', file=sys.stderr)\nsys.exit(1)")
    answer = run.ask(SOLVERS["minimalloc"], request(TINY, binary))
    assert (answer.offsets, answer.denied, answer.trouble) == (None, denied, trouble)


def test_one_that_pays_no_heed_to_its_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GRACE", 0.8)
    mine = tmp_path / "id"
    binary = program(
        tmp_path, f"import os, time\nopen({str(mine)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    began = time.monotonic()
    answer = run.ask(SOLVERS["minimalloc"], request(TINY, binary, seconds=0.1))
    assert answer == Answer(trouble="pays no heed to its time limit")
    assert time.monotonic() - began < 10
    for _ in range(100):
        try:
            os.kill(int(mine.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the program goes on")


def test_the_limit_on_memory_holds_for_what_a_solver_starts(tmp_path: Path) -> None:
    binary = program(tmp_path, "held = bytearray(200_000_000)")
    free = run.ask(SOLVERS["minimalloc"], request(TINY, binary))
    bound = run.ask(SOLVERS["minimalloc"], replace(request(TINY, binary), memory_bytes=150_000_000))
    assert free.trouble == "exit code 0"
    assert bound.trouble == "MemoryError"


def test_what_runs_without_peers_and_what_is_said_about_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.solvers.catalogue.find_spec", lambda name: None)
    options = peers.options_from(["--solvers", "decide,auto:2,minimalloc,omni"])
    assert [(solver.name, threads) for solver, threads in peers.chosen(options)] == [
        ("decide", 1),
        ("auto", 2),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "minimalloc is left out: give its binary with --minimalloc PATH",
        "omni is left out: pip install 'memplan[bench]'",
    ]
    with pytest.raises(SystemExit, match="no solver 'nobody'; there are: decide, "):
        peers.chosen(peers.options_from(["--solvers", "nobody"]))


def test_ours_in_the_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Both questions, each in a child process; `path` packs to its optimum by an order of the portfolio."""
    monkeypatch.setattr(
        sys,
        "argv",
        ["peers", "--solvers", "decide,auto", "--only", "adversarial/path-*", "--data", "nowhere"],
    )
    peers.main()
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| adversarial")]
    decided, minimised = (row for row in rows if len(row) > 6)
    assert [row[3] for row in rows if row not in (decided, minimised)] == ["1 of 1", "1 of 1"]
    assert decided[1:5] == ["121", "131,136", "131,136", "decide"]
    assert decided[7] == "fits"
    assert minimised[3] == "auto"
    assert minimised[6:9] == ["131,136", "1.0000", "proven"]
    assert "Ours, not counted above" in lines[-2]


@pytest.mark.parametrize("name", [name for name, solver in SOLVERS.items() if solver.needs])
def test_peers_that_are_installed(name: str) -> None:
    solver = SOLVERS[name]
    if find_spec(solver.needs) is None:
        pytest.skip(f"{solver.needs} is not installed")
    instance = adversarial.no_way_out(1)
    # Of `tela` it is not known when it has the best that it will find.
    own = replace(request(instance, seconds=1.0 if name == "tela" else 5.0), workers=solver.workers)
    result = judge(instance, solver, 1, run.ask(solver, own))
    assert result.wrong == result.answer.trouble == ""
    assert result.arena == instance.optimum
    assert result.answer.wall > 0
    assert result.decided is (name not in ("omni", "tela"))
    if solver.question is Question.DECIDE:
        tighter = replace(instance, target=instance.lower_bound - 64)
        assert judge(tighter, solver, 1, run.ask(solver, request(tighter))).said == "does not fit"


ALL_AT_ONCE = Instance(
    "all",
    make_problem(
        [0, 0, 2, 0],
        [3, 4, 4, 1],
        [48, 96, 32, 16],
        alignment=[32, 1, 64, 16],
        fixed=[FREE, FREE, FREE, 32],
        gaps={1: (Gap(0, 2, 16, 32), Gap(2, 3))},
    ),
)
"""Buffer 1 needs its bytes 16 to 32 in steps 0 and 1, nothing in step 2, all in step 3."""


@pytest.mark.parametrize("name", ["cp_sat_decide", "cp_sat_minimise"])
def test_cp_sat_knows_every_feature(name: str) -> None:
    if find_spec("ortools") is None:
        pytest.skip("ortools is not installed")
    assert ALL_AT_ONCE.features == set(Feature)
    optimum = reference.optimum(ALL_AT_ONCE.problem)
    # Buffers 1 and 2 in step 3; 2 lies at 0, 1 above it, 0 at 64 between 1's window and the end.
    assert optimum == 128
    exact = replace(ALL_AT_ONCE, target=optimum)
    result = judge(exact, SOLVERS[name], 1, run.ask(SOLVERS[name], request(exact)))
    assert (result.arena, result.wrong, result.decided) == (optimum, "", True)
    if name == "cp_sat_decide":
        tighter = replace(exact, target=optimum - 1)
        assert (
            judge(tighter, SOLVERS[name], 1, run.ask(SOLVERS[name], request(tighter))).said == "does not fit"
        )


def test_supermalloc_has_several_threads_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    monkeypatch.setattr(peers, "ask", lambda solver, request: asked.append(request) or Answer())
    options = peers.options_from(["--solvers", "supermalloc_3,supermalloc_6:2,tela", "--runs", "2"])
    solvers = [(SOLVERS["supermalloc_3"], 1), (SOLVERS["supermalloc_6"], 2), (SOLVERS["tela"], 1)]
    groups = list(peers.solve_all(TINY, solvers, options))
    assert [(each.threads, each.workers, each.seed) for each in asked] == [
        (1, 3, 0), (1, 3, 1), (2, 6, 0), (2, 6, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [[result.seed for result in own] for own in groups] == [[0, 1]] * 3
    pytest.importorskip("omnimalloc")
    from benchmarks.solvers import supermalloc

    threads: list[int] = []
    ceiling: list[int] = []

    class Allocator:
        def __init__(self, timeout: float, num_threads: int) -> None:
            threads.append(num_threads)

        def solve(self, buffers: tuple[Any, ...]) -> Any:
            placed = [buffer.with_offset(0) for buffer in buffers]
            return SimpleNamespace(allocations=placed, peak=5, lower_bound=4, proved_optimal=False)

    monkeypatch.setattr("benchmarks.solvers.omnimalloc_pool.omnimalloc.set_max_threads", ceiling.append)
    monkeypatch.setattr(supermalloc, "SupermallocAllocator", Allocator)
    assert supermalloc.solve(asked[2]).bound == 4
    assert (threads, ceiling) == ([12], [12])


def test_tela_goes_on_until_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many backtracks each time, with the next seed; the best placement is kept."""
    pytest.importorskip("omnimalloc")
    from benchmarks.solvers import tela

    asked, offsets = [], iter(([0, 4, 2], [0, 2, 4], [0, 2, 0]))

    class Allocator:
        def __init__(self, seed: int, backtracks: int, timeout: float) -> None:
            asked.append((seed, backtracks))

        def allocate(self, buffers: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(each.with_offset(at) for each, at in zip(buffers, next(offsets), strict=True))

    monkeypatch.setattr(tela, "TelamallocAllocator", Allocator)
    answer = tela.solve(replace(request(TINY), seed=7))
    assert asked == [(7, 10_000), (8, 100_000), (9, 1_000_000)]
    assert (answer.offsets, answer.bound) == ([0, 2, 0], 0)


def test_pins_reach_omnimalloc() -> None:
    if find_spec("omnimalloc") is None:
        pytest.skip("omnimalloc is not installed")
    instance = Instance("pins", make_problem([0, 0], [2, 2], [64, 64], fixed=[FREE, 128]))
    answer = run.ask(SOLVERS["omni"], request(instance))
    assert answer.offsets == [0, 128]


def test_who_is_not_asked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert SOLVERS["auto"].cannot(ALL_AT_ONCE.features) == ""
    assert SOLVERS["minimalloc"].cannot(ALL_AT_ONCE.features) == "knows no fixed offsets"
    assert SOLVERS["omni"].cannot(ALL_AT_ONCE.features) == "knows no alignments, gaps"
    missing = unasked(ALL_AT_ONCE, SOLVERS["omni"], 1)
    show_families(Question.MINIMISE, [missing])
    assert capsys.readouterr().out == "| all | 4 | omni | knows no alignments, gaps | – | – |\n"
    assert cells([missing], [])[3:] == ["omni", "–", "", "–", "–", "knows no alignments, gaps", ""]
    show_sums(Question.MINIMISE, [judge(TINY, SOLVERS["auto"], 1, Answer([0, 2, 0], cpu=1.0)), missing])
    assert "omni" not in capsys.readouterr().out


MINIMISER = """
import csv
assert "minimize_capacity" in sys.argv[-1]
capacity = int(options["capacity"])
open({log!r}, "a").write(f"{{capacity}} {{options['timeout']}}\\n")
rows = list(csv.DictReader(open(options["input"], newline="")))
assert rows[0] == {{"id": "0", "lower": "0", "upper": "1", "size": "1", "alignment": "1"}}
if capacity == {gives}:
    offsets = {offsets}
    lines = [f"{{row['id']}},{{at}}" for row, at in zip(rows, offsets)]
    open(options["output"], "w").write("\\n".join(["id,offset", *lines]) + "\\n")
    print("Elapsed time {elapsed}s", file=sys.stderr)
else:
    print("Elapsed time 2.500s\\nNOT_FOUND: no", file=sys.stderr)
    sys.exit(1)
""".replace("\\\\", "\\")


def minimiser(folder: Path, **said: object) -> tuple[Path, Path]:
    log = folder / "asked"
    body = MINIMISER.format(log=str(log), **said).replace("options = ", "")
    path = program(folder, body)
    text = path.read_text().replace("for a in sys.argv[1:])", "for a in sys.argv[1:] if '=' in a)")
    path.write_text(text)
    return path, log


def test_minimalloc_minimises_from_two_capacities(tmp_path: Path) -> None:
    """With half of the time for 8 = twice the lower bound, and what is left for 7."""
    binary, log = minimiser(tmp_path, gives=7, offsets=[4, 2, 0], elapsed="2.400")
    answer = run.ask(SOLVERS["minimalloc_minimise"], request(TINY, binary))
    first, second = (line.split() for line in log.read_text().splitlines())
    assert (first, second[0]) == (["8", "2.5s"], "7")
    assert 2.5 < float(second[1][:-1]) < 5.0
    # It ended before its limit: no smaller arena is left.
    assert (answer.offsets, answer.bound, answer.denied) == ([4, 2, 0], 5, False)
    assert verdict("minimalloc_minimise", answer) == "WRONG"


def test_minimalloc_that_proves_its_arena_runs_once(tmp_path: Path) -> None:
    binary, log = minimiser(tmp_path, gives=8, offsets=[0, 2, 0], elapsed="0.001")
    answer = run.ask(SOLVERS["minimalloc_minimise"], request(TINY, binary))
    assert log.read_text() == "8 2.5s\n"
    assert verdict("minimalloc_minimise", answer) == "proven"


def test_minimalloc_that_runs_out_of_time_proves_nothing(tmp_path: Path) -> None:
    """Its 2.499 s may be 2.4996 of 2.5: it tells them rounded."""
    binary, log = minimiser(tmp_path, gives=8, offsets=[4, 2, 0], elapsed="2.499")
    answer = run.ask(SOLVERS["minimalloc_minimise"], request(TINY, binary))
    assert (answer.offsets, answer.bound) == ([4, 2, 0], 0)
    assert len(log.read_text().splitlines()) == 2


def test_a_solver_keeps_to_its_cores(tmp_path: Path) -> None:
    seen = tmp_path / "cores"
    binary = program(tmp_path, f"import os\nopen({str(seen)!r}, 'w').write(str(os.sched_getaffinity(0)))")
    run.ask(SOLVERS["minimalloc"], request(TINY, binary))
    assert seen.read_text() == str({max(os.sched_getaffinity(0))})


def test_which_benchmarks_run_with_which_options() -> None:
    known = ["guillotine", "instances", "peers"]
    assert runner.commands([], known) == [
        ("guillotine", ["--seeds", "3", "--seconds", "10"]), ("instances", []), ("peers", ["--seconds", "2"]),
    ]  # fmt: skip
    assert runner.commands(["--long"], known) == [
        ("guillotine", []), ("instances", ["--long"]), ("peers", ["--long"]),
    ]  # fmt: skip
    assert runner.commands(["peers", "--seconds", "1"], known) == [("peers", ["--seconds", "1"])]
    with pytest.raises(SystemExit, match="no benchmark nobody; there are: guillotine, instances, peers"):
        runner.commands(["nobody"], known)
    with pytest.raises(SystemExit, match="whose option"):
        runner.commands(["--seconds", "1"], known)


def test_sums_count_what_both_settled(capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(TINY, name="other")
    results = [
        judge(TINY, SOLVERS["auto"], 1, Answer([0, 2, 0], cpu=1.0)),
        judge(TINY, SOLVERS["omni"], 1, Answer([0, 2, 0], cpu=4.0)),
        judge(other, SOLVERS["auto"], 1, Answer([4, 2, 0], cpu=2.0)),
        judge(other, SOLVERS["omni"], 1, Answer(trouble="killed")),
    ]
    show_sums(Question.MINIMISE, results)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| auto | 2 | 1 | 3.00 | 1 | 1.00 | 1.00 | 1 |",
        "| omni | 2 | 1 | >4.00 | 1 | 1.00 | 4.00 | 0.25 |",
    ]
    assert cells(results[3:], results[2:3])[3:] == ["omni", "–", "", "–", "–", "killed", ""]


def runs(*answers: Answer) -> list[Result]:
    return [judge(TINY, SOLVERS["auto"], 1, answer, seed) for seed, answer in enumerate(answers)]


def test_several_seeds_give_medians_with_their_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert [spread(values, ".1f") for values in ([], [2.0], [1.0, 4.0, 2.0], [1.01, 1.04])] == [
        "–", "2.0", "2.0 (1.0–4.0)", "1.0",
    ]  # fmt: skip
    assert [whole(values) for values in ([], [7, 7], [1000, 3, 2000])] == ["–", "7", "1,000 (3–2,000)"]
    results = runs(
        Answer([0, 2, 0], bound=4, cpu=1.0, wall=2.0, peak_bytes=2**20),
        Answer([4, 2, 0], cpu=3.0, wall=3.0, peak_bytes=3 * 2**20),
        Answer([0, 2, 0], bound=4, cpu=2.0, wall=0.9),
    )
    assert cells(results, [])[3:] == [
        "auto", "2.000 (1.000–3.000)", "", "4 (4–5)", "1.0000 (1.0000–1.2500)", "proven (2), no (1)", "3",
    ]  # fmt: skip
    show_families(Question.MINIMISE, results)
    show_sums(Question.MINIMISE, results)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| tiny | 3 | auto | 2 of 3 | 2.000 (1.000–3.000) | 1.0000 (1.0000–1.2500) |"
    # Seed 1 settled nothing, so both sums of what both settled are 0 there.
    assert lines[3] == (
        "| auto | 1 | 1 (0–1) | 2.00 (1.00–3.00) | 1 (0–1) | 1.00 (0.00–2.00) | 1.00 (0.00–2.00) |  |"
    )
    show_families(Question.MINIMISE, [results[1], *runs(Answer(cpu=1.0)), *runs(Answer(cpu=1.0))])
    assert capsys.readouterr().out.endswith(" | 0 of 3 | 1.000 (1.000–3.000) | 1.2500, 1 placed |\n")
    # Of 2 and 3 s of wall time; 0.9 s are too short to tell.
    assert share_of_cores(results) == "Solves of more than 1 s had 75% (50%–100%) of their core."
    assert share_of_cores(runs(Answer(cpu=1.0, wall=0.5))) == ""


def test_how_many_packings_were_settled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["guillotine", "--count", "30", "--seeds", "2", "--kinds", "even", "--seconds", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    guillotine.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| perfect/even-30 | 30 | auto | 2 of 2 | ")
    assert lines[2].endswith(" | 1.0000 |")
    made = [guillotine.make(kind, 30, 4).problem for kind in guillotine.KINDS]
    assert [len(problem) for problem in made] == [30] * 3
    assert len(set(made)) == 3


def test_greedy_by_size_beside_the_loops() -> None:
    """All three give the same offsets, or `measured` fails; a figure for each of the draws, or none."""
    draws = [greedy_speed.mixed(40, 0.1, seed) for seed in (0, 1)]
    assert draws[0] != draws[1]
    assert draws[0] == greedy_speed.mixed(40, 0.1)
    cells = greedy_speed.row(draws, "long", with_loops=True)
    assert cells[:2] == ["40", "long"]
    assert len(cells) == len(greedy_speed.HEADINGS)
    above = sorted(make_plan(draw, "greedy_by_size").arena_bytes / Instance("", draw).bound for draw in draws)
    assert cells[7].endswith(f"({above[0]:.4f}–{above[1]:.4f})")
    assert greedy_speed.row(draws[:1], "long", with_loops=False)[3:7] == [""] * 4


def test_instances_by_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["instances", "--only", "windows/drawn-*,fixed/*-300-*", "--data", "no"])
    instances.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        "| windows/drawn-8-s0", "| windows/drawn-11-s0", "| windows/drawn-14-s0", "| fixed/perfect-300-s0",
    ]  # fmt: skip
    assert [row[4] for row in rows] == ["", "", "", "1.0000"]


NAMED = re.compile(r"`python -m benchmarks (\w+)([^`]*)`")


def test_the_commands_that_docs_name() -> None:
    """Each is a benchmark; of comparisons every option, solver and name of instances is known, too."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = [found for path in files for found in NAMED.findall(path.read_text(encoding="utf-8"))]
    assert {"peers", "greedy_speed"} <= {name for name, _ in commands}
    made = instances.instances(argparse.Namespace(data=ROOT / "no", seeds=1, only="*", long=False))
    known = {each.name.partition("/")[0] for each in made} | {"*", "minimalloc", "idealloc"}
    for name, rest in commands:
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name
        if name == "peers":
            options = peers.options_from(shlex.split(rest))
            peers.chosen(options)
            assert {glob.partition("/")[0] for glob in options.only.split(",")} <= known


def test_arrays_are_not_what_travels() -> None:
    """A request is plain numbers: JSON refuses numpy's."""
    assert {type(value) for value in request(TINY).size} == {int}
    assert isinstance(TINY.problem.size, np.ndarray)
