"""Answers are judged, and what is wrong is caught; the tables and the commands that make them."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import replace

import pytest

from benchmarks import __main__ as runner
from benchmarks import greedy_speed, guillotine, instances, peers
from benchmarks.families.instance import Instance
from benchmarks.solvers.catalogue import SOLVERS, Question
from benchmarks.solvers.judge import Result, disagreement, judge, unasked
from benchmarks.solvers.protocol import Answer
from benchmarks.solvers.report import cells, ratio, share_of_cores, show_families, show_sums, spread, whole
from memplan_engine.planner import make_plan
from tests import ROOT
from tests.benchmarks.small_instances import ALL_AT_ONCE, TINY, verdict
from tests.support.waiting import HANG_SECONDS


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
    options = f"--solvers decide,auto --only adversarial/path-* --data nowhere --seconds {HANG_SECONDS}"
    monkeypatch.setattr(sys, "argv", ["peers", *options.split()])
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
    options = f"--count 30 --seeds 2 --kinds even --seconds {HANG_SECONDS}"
    monkeypatch.setattr(sys, "argv", ["guillotine", *options.split()])
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
