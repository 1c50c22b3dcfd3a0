"""What each solver of the comparison is asked, within which limits, and what is read from its answer."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.families import adversarial
from benchmarks.families.instance import Feature, Instance
from benchmarks.solvers import run
from benchmarks.solvers.catalogue import SOLVERS, Question
from benchmarks.solvers.judge import judge
from benchmarks.solvers.protocol import Answer, Request
from memplan_engine.problem import FREE, make_problem
from tests.benchmarks.small_instances import ALL_AT_ONCE, TINY, program, request, verdict
from tests.support import reference
from tests.support.waiting import HANG_SECONDS, wait_until

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
    assert answer.cpu > 0
    assert answer.peak_bytes > 0


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


def test_a_program_that_outlives_its_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit passes once the program runs: `communicate` waits for its id instead of for the time."""
    mine = tmp_path / "id"
    binary = program(
        tmp_path,
        f"import os, time\nopen({str(tmp_path / 'draft')!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'draft')!r}, {str(mine)!r})\ntime.sleep(10_000)",
    )
    limits = []

    class Child(subprocess.Popen[str]):
        def communicate(self, input: Any = None, timeout: float | None = None) -> Any:
            limits.append(timeout)
            wait_until(mine.exists)
            raise subprocess.TimeoutExpired(self.args, timeout or 0)

    monkeypatch.setattr(run.subprocess, "Popen", Child)
    answer = run.ask(SOLVERS["minimalloc"], request(TINY, binary, seconds=0.1))
    assert answer == Answer(trouble="pays no heed to its time limit")
    assert limits == [2 * 0.1 + run.GRACE]
    wait_until(lambda: not is_running(int(mine.read_text())))


def is_running(process: int) -> bool:
    """Return whether a process runs: one that has ended may wait for its parent, as state Z."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_limit_on_memory_holds_for_what_a_solver_starts(tmp_path: Path) -> None:
    binary = program(tmp_path, "held = bytearray(200_000_000)")
    free = run.ask(SOLVERS["minimalloc"], request(TINY, binary))
    bound = run.ask(SOLVERS["minimalloc"], replace(request(TINY, binary), memory_bytes=150_000_000))
    assert free.trouble == "exit code 0"
    assert bound.trouble == "MemoryError"


@pytest.mark.parametrize("name", [name for name, solver in SOLVERS.items() if solver.needs])
def test_peers_that_are_installed(name: str) -> None:
    solver = SOLVERS[name]
    if find_spec(solver.needs) is None:
        pytest.skip(f"{solver.needs} is not installed")
    # `tela` knows no bound but the live bytes; without a packing of that size it searches to its limit.
    instance = TINY if name == "tela" else adversarial.no_way_out(1)
    own = replace(request(instance, seconds=HANG_SECONDS), workers=solver.workers)
    result = judge(instance, solver, 1, run.ask(solver, own))
    assert result.wrong == result.answer.trouble == ""
    assert result.arena == instance.optimum
    assert result.answer.wall > 0
    assert result.decided is (name != "omni")
    if solver.question is Question.DECIDE:
        tighter = replace(instance, target=instance.lower_bound - 64)
        answer = run.ask(solver, request(tighter, seconds=HANG_SECONDS))
        assert judge(tighter, solver, 1, answer).said == "does not fit"


@pytest.mark.parametrize("name", ["cp_sat_decide", "cp_sat_minimise"])
def test_cp_sat_knows_every_feature(name: str) -> None:
    if find_spec("ortools") is None:
        pytest.skip("ortools is not installed")
    assert ALL_AT_ONCE.features == set(Feature)
    optimum = reference.optimum(ALL_AT_ONCE.problem)
    # Buffers 1 and 2 in step 3; 2 lies at 0, 1 above it, 0 at 64 between 1's window and the end.
    assert optimum == 128
    exact = replace(ALL_AT_ONCE, target=optimum)
    result = judge(exact, SOLVERS[name], 1, run.ask(SOLVERS[name], request(exact, seconds=HANG_SECONDS)))
    assert (result.arena, result.wrong, result.decided) == (optimum, "", True)
    if name == "cp_sat_decide":
        tighter = replace(exact, target=optimum - 1)
        answer = run.ask(SOLVERS[name], request(tighter, seconds=HANG_SECONDS))
        assert judge(tighter, SOLVERS[name], 1, answer).said == "does not fit"


def test_supermalloc_has_several_threads_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    monkeypatch.setattr(peers, "ask", lambda solver, request: asked.append(request) or Answer())  # type: ignore[func-returns-value]
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
    print(f"Elapsed time {{options['timeout']}}\\nNOT_FOUND: no", file=sys.stderr)
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
    answer = run.ask(SOLVERS["minimalloc_minimise"], request(TINY, binary, seconds=2 * HANG_SECONDS))
    first, second = (line.split() for line in log.read_text().splitlines())
    assert (first, second[0]) == (["8", f"{HANG_SECONDS}s"], "7")
    assert HANG_SECONDS < float(second[1][:-1]) < 2 * HANG_SECONDS
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


def test_arrays_are_not_what_travels() -> None:
    """A request is plain numbers: JSON refuses numpy's."""
    assert {type(value) for value in request(TINY).size} == {int}
    assert isinstance(TINY.problem.size, np.ndarray)
