"""`memplan plan --capacity`: the verdict with its exit code, the core, and sizes as people write them."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from rich.console import Console

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.cli.commands import capacity_option
from memplan_engine.errors import InputError
from memplan_engine.feasibility.decision import Decision, decide, find_core
from memplan_engine.files import load
from memplan_engine.plan import Plan
from memplan_engine.problem import Gap, make_problem, select
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.reporters.what_if_tables import decision_summary, decision_tables
from memplan_engine.units import format_seconds, parse_bytes
from memplan_engine.verdict import Verdict
from tests.support.buffer_list import BUFFERS
from tests.support.waiting import wait_until


def test_it_fits_with_the_plan_and_exit_0(memplan, tmp_path):
    code, out, err = memplan("plan", "list.csv", "--capacity", "170", "-o", "out.json")
    assert (code, err) == (0, "")
    assert "arena                  170 B" in out
    assert out.splitlines()[-1] == "the arena fits in 170 B, 0 B to spare"
    assert load(tmp_path / "out.json").arena_bytes == 170
    found = json.loads(memplan("plan", "list.csv", "--capacity", "1KiB", "--json")[1])
    assert (found["verdict"], found["capacity_bytes"], found["core"]) == ("fits", 1024, None)
    assert set(found["offsets"]) == {"a", "b", "c"}
    assert {"nodes", "threads", "cut_short", "seconds"} <= set(found)


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_it_does_not_fit_and_the_core_is_a_problem_that_does_not_fit_either(memplan, tmp_path, suffix):
    (tmp_path / "more.csv").write_text(BUFFERS + "d,7,9,60\n")
    code, out, err = memplan("plan", "more.csv", "--capacity", "169", "--core", f"core.{suffix}")
    assert (code, err) == (1, "")
    assert out.splitlines()[0].startswith("the arena does not fit in 169 B, proved in ")
    assert "at least 170 B are needed (peak live bytes)" in out
    assert "2 buffers alone cannot fit: 170 B at step 3" in out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line[:1] == "│"]
    assert rows == [["c", "120", "120 B", "steps 3–4"], ["b", "50", "50 B", "steps 1–3"]]
    core = load(tmp_path / f"core.{suffix}")
    assert (core.names, core.size.tolist()) == (("b", "c"), [50, 120])
    assert (core.start.tolist(), core.end.tolist()) == ([1, 3], [4, 5])
    assert memplan("plan", f"core.{suffix}", "--capacity", "169")[0] == 1
    assert memplan("plan", f"core.{suffix}", "--capacity", "170")[0] == 0


def test_it_does_not_fit_for_machines_and_the_best_plan_is_written_and_named(memplan, tmp_path):
    code, out, err = memplan("plan", "list.csv", "--capacity", "100", "--json", "-o", "best.csv")
    found = json.loads(out)
    assert (code, found["verdict"], found["capacity_bytes"]) == (1, "does not fit", 100)
    assert found["core"] == {
        "needs_bytes": 120,
        "start": 3,
        "end": 4,
        "buffers": [
            {"name": "c", "bytes": 120, "start": 3, "end": 5, "alignment": 1, "offset": None},
        ],
    }
    assert err == "best.csv: the best plan found, which takes 170 B\n"
    assert memplan("validate", "best.csv")[0] == 0


def undecided(problem, capacity, strategy, *, limits):
    """Naive's 270 B for a problem that needs 170 B: nothing is known of what lies between."""
    plan = Plan(problem, np.array([0, 100, 150]), "auto", lower_bound(problem), seconds=1.5, cut_short=True)
    return Decision(capacity, plan)


def test_not_decided_in_time_is_exit_3_and_leaves_no_core(memplan, tmp_path, monkeypatch):
    monkeypatch.setattr(capacity_option, "decide", undecided)
    code, out, err = memplan("plan", "list.csv", "--capacity", "200", "--core", "core.csv", "-o", "best.csv")
    assert code == 3
    assert "stopped after 1.5 s by the time limit: best plan so far" in out
    assert (
        out.splitlines()[-1]
        == "undecided whether the arena fits in 200 B: at least 170 B are needed, searched for 1.5 s"
    )
    assert "gap                    58.8 %" in out
    assert err.splitlines() == [
        "best.csv: the best plan found, which takes 270 B",
        "core.csv: not written, for no core was found: undecided",
    ]
    assert not (tmp_path / "core.csv").exists()
    assert load(tmp_path / "best.csv").fixed.tolist() == [0, 100, 150]
    found = json.loads(memplan("plan", "list.csv", "--capacity", "200", "--json")[1])
    assert (found["verdict"], found["core"], found["cut_short"]) == ("undecided", None, True)


def test_ctrl_c_stops_a_decision(memplan, monkeypatch):
    def waits(problem, capacity, strategy, *, limits):
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: limits.stopped)
        return undecided(problem, capacity, strategy, limits=limits)

    monkeypatch.setattr(capacity_option, "decide", waits)
    before = signal.getsignal(signal.SIGINT)
    code, out, _ = memplan("plan", "list.csv", "--capacity", "200")
    assert code == 3
    assert "by Ctrl-C: best plan so far" in out
    assert signal.getsignal(signal.SIGINT) is before


def test_a_core_keeps_all_that_makes_it_infeasible():
    gaps = {2: (Gap(2, 3, 0, 4),)}
    problem = make_problem(
        [0, 0, 1, 5], [6, 4, 6, 6], [8, 16, 8, 4], names="abcd", alignment=4, fixed=[0, -1, -1, -1], gaps=gaps
    )
    core = select(problem, np.array([0, 2]), "part")
    assert (core.name, core.names, core.steps, core.origin) == ("part", ("a", "c"), 6, None)
    assert (core.fixed.tolist(), core.alignment.tolist(), core.gaps) == ([0, -1], [4, 4], {1: gaps[2]})
    assert core == make_problem(
        core.start, core.end, core.size, names="ac", alignment=4, fixed=core.fixed, gaps=core.gaps, steps=6
    )
    assert not core.size.flags.writeable
    answer = decide(problem, 31)
    assert answer.verdict is Verdict.DOES_NOT_FIT
    assert find_core(problem, answer.bound, 31).problem.names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("capacity", "names", "nbytes"),
    [(28, "abcd", 29), (27, "abc", 28), (24, "abc", 28), (23, "ab", 24), (7, "a", 16)],
)
def test_a_core_is_as_few_of_the_largest_as_pass_the_capacity(capacity, names, nbytes):
    problem = make_problem([0] * 4, [2] * 4, [16, 8, 4, 1], names="abcd")
    core = find_core(problem, lower_bound(problem), capacity)
    assert (core.problem.names, core.nbytes) == (tuple(names), nbytes)
    assert (core.start, core.end) == (0, 1)


def test_the_core_of_a_fixed_offset_is_that_buffer(tmp_path):
    (tmp_path / "fixed.csv").write_text("id,lower,upper,size,offset\na,0,3,100,\nb,1,4,50,64\nc,2,5,9,\n")
    problem = load(tmp_path / "fixed.csv")
    bound = Bound(114, BoundKind.FIXED, 1)
    core = find_core(problem, bound, 100)
    assert (core.problem.names, core.problem.fixed.tolist(), core.nbytes) == (("b",), [64], 114)


def test_the_core_of_aligned_buffers_counts_whole_units(memplan, tmp_path):
    (tmp_path / "aligned.csv").write_text(
        "id,lower,upper,size,alignment\na,0,3,65,64\nb,1,4,65,64\nc,2,5,9,64\n"
    )
    code, out, _ = memplan("plan", "aligned.csv", "--capacity", "192", "--core", "core.csv")
    assert code == 1
    assert "2 buffers alone cannot fit: 193 B at step 2" in out
    assert memplan("plan", "core.csv", "--capacity", "192")[0] == 1
    assert memplan("plan", "core.csv", "--capacity", "193")[0] == 0


def test_a_core_that_a_search_proved_has_its_window():
    problem = make_problem([0, 1, 2, 9], [3, 4, 5, 10], [6, 6, 6, 1], names="abcd")
    bound = Bound(20, BoundKind.CORE, 1, core=(0, 2), until=4)
    plan = Plan(problem, np.array([0, 6, 14, 0]), "exact", bound, nodes=1234, threads=2, seconds=2.0)
    assert certificate(plan) == (
        "optimal for the buffers listed: the arena equals what 2 buffers live within steps 1–3 need "
        "(as a search proved)"
    )
    decision = Decision(19, plan)
    found = decision_summary(decision)["core"]
    assert (found["start"], found["end"], found["needs_bytes"]) == (1, 4, 20)
    assert [buffer["name"] for buffer in found["buffers"]] == ["a", "c"]
    console = Console(width=200)
    with console.capture() as captured:
        for part in decision_tables(decision):
            console.print(part)
    lines = captured.get().splitlines()
    assert lines[0] == "the arena does not fit in 19 B, proved in 2 s on 2 threads, 1,234 nodes"
    assert "2 buffers alone cannot fit: 20 B within steps 1–3" in lines
    worse = Plan(problem, np.array([0, 6, 24, 0]), "exact", bound)
    assert certificate(worse).endswith("2 buffers live within steps 1–3 need (as a search proved), 20 B")


# -- units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("170", 170),
        ("170 B", 170),
        ("512KiB", 512 * 1024),
        ("1.5 mib", 3 * 2**19),
        ("0.5KiB", 512),
        ("9223372036854775807", 2**63 - 1),
        ("7EiB", 7 * 2**60),
        (" 1GiB ", 2**30),
        ("1kB", 1000),
        ("100MB", 100_000_000),
        ("1.5 gb", 1_500_000_000),
        ("2TB", 2 * 10**12),
        ("9.223372036854775807EB", 2**63 - 1),
    ],
)
def test_bytes_are_read_exactly(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B",
        "1XB",
        "1k",
        "10EB",
        "-1",
        "+1",
        "1e3",
        "8EiB",
        "9" * 19,
        "9" * 5000,
        "١",
        "1_0",
    ],
)
def test_what_is_no_number_of_bytes_is_refused(text):
    with pytest.raises(InputError, match=r"--capacity: found .*, expected bytes below 2\^63"):
        parse_bytes(text, "--capacity")


@pytest.mark.parametrize("text", ["1.5", "0.3KiB", "1.0001kB"])
def test_a_part_of_a_byte_is_refused(text):
    with pytest.raises(InputError, match=r"--capacity: found .*, expected a whole number of bytes"):
        parse_bytes(text, "--capacity")


def test_seconds_for_people():
    assert [format_seconds(seconds) for seconds in (0.00558, 0.9999, 1.0, 3.24, 59.96, 123.4)] == [
        "5.58 ms",
        "999.90 ms",
        "1 s",
        "3.2 s",
        "60 s",
        "123 s",
    ]
