"""Mutated files: those that were found once, some fresh ones, and in the slow tier thousands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from memplan_engine.formats.csv_tables.csv_reader import CsvImporter
from tests.fuzzing.__main__ import fuzz
from tests.fuzzing.harness import CORPUS, GRAMMARS, commands, finding, make_case, seeds

SEED = int(os.environ.get("MEMPLAN_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("MEMPLAN_FUZZ_FILES", "6000"))
"""Of the slow tier, so that it ends in its time: 20,000 take twelve minutes."""


@pytest.mark.parametrize("path", sorted({*seeds(), *CORPUS.iterdir()}), ids=lambda path: path.name)
def test_sound_files_and_what_was_found_once(path: Path, tmp_path: Path) -> None:
    choices: list[list[str] | None] = [*commands(path, tmp_path)]
    for command in choices or [None]:
        assert finding(path, command) == ""


def test_every_format_is_put_together_as_it_was() -> None:
    for path in set(seeds()):
        grammar = GRAMMARS[path.suffix]
        tree = grammar.take_apart(path.read_bytes())
        again = (grammar.put_together(tree, Random(seed)) for seed in range(99))
        assert any(_same(grammar.take_apart, data, tree) for data in again), path


def _same(take_apart: Callable[[bytes], object], data: bytes, tree: object) -> bool:
    try:
        return take_apart(data) == tree
    except Exception:
        return False


def test_a_case_follows_from_its_number() -> None:
    cases = [make_case(5, number) for number in range(200)]
    assert cases == [make_case(5, number) for number in range(200)]
    assert len({case.data for case in cases}) > 190
    assert {case.name.rpartition(".")[2] for case in cases} == {"csv", "json", "gz", "pickle", "onnx", "pt2"}


def test_what_should_not_happen_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,lower,upper,size\na,0,2,8\n")
    command = ["plan", str(path), "--strategy", "naive"]
    assert finding(path, command) == ""

    def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(CsvImporter, "load", fails)
    failure: BaseException = ValueError("oops")
    assert "ValueError: oops" in finding(path, command)
    failure = MemoryError()
    assert "more than" in finding(path, command)
    failure = SystemExit(7)
    assert finding(path, command) != ""


def tried(count: int, first: int = 0) -> tuple[list[str], float]:
    """What was found in `count` cases, and the share that is past the first parse."""
    cases = list(fuzz(SEED, first, count))
    assert len(cases) == count
    return [f"{name}: {what}" for name, _, what in cases if what], sum(case[1] for case in cases) / count


@pytest.mark.quarantine
def test_some_mutated_files() -> None:
    findings, parsed = tried(300, first=100_000)
    assert findings == []
    assert parsed >= 0.5


@pytest.mark.quarantine
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_thousands_of_mutated_files() -> None:
    findings, parsed = tried(COUNT)
    assert findings == [], f"python -m tests.fuzzing --seed {SEED} --keep FOLDER gives the files"
    assert parsed >= 0.5
