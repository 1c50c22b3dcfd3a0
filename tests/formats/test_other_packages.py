"""Importers and exporters of other packages, which name them in entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from memplan_engine import InputError, MemplanError, Plan, Problem, files, load, make_plan, make_problem
from memplan_engine.files import ImportOptions, importers, write
from memplan_engine.system import write_atomically

Install = Callable[..., None]


@dataclass(frozen=True)
class Lines:
    """A first line `buffers`, then `start end size` a line."""

    name: str = "lines"
    description: str = "lines of start, end and size"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"buffers\n")

    def load(self, path: Path, options: ImportOptions) -> Problem:
        rows = [[int(each) for each in line.split()] for line in path.read_text().splitlines()[1:]]
        start, end, size = ([row[column] for row in rows] for column in range(3))
        return make_problem(start, end, size, name=path.stem)


class NamedAsOurs(Lines):
    def __init__(self) -> None:
        super().__init__(name="csv")


def write_lines(value: Problem | Plan, path: Path) -> None:
    problem = value.problem if isinstance(value, Plan) else value
    rows = zip(problem.start, problem.end, problem.size, strict=True)
    write_atomically(path, "".join(["buffers\n", *(f"{a} {b} {c}\n" for a, b, c in rows)]).encode())


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def forget() -> None:
        files._theirs.cache_clear()
        files._their_writers.cache_clear()

    def put(group: str, name: str, value: str) -> None:
        entry = EntryPoint(name, f"{__name__}:{value}", group)
        asked = metadata.entry_points
        monkeypatch.setattr(
            metadata, "entry_points", lambda group: [entry] if entry.group == group else asked(group=group)
        )
        forget()

    yield put
    forget()


def test_a_file_of_a_kind_of_another_package_is_opened_and_written(install: Install, tmp_path: Path) -> None:
    path = tmp_path / "list.lines"
    path.write_text("buffers\n0 2 8\n1 3 16\n")
    with pytest.raises(InputError, match="an unknown file format"):
        load(path)
    install("memplan.importers", "lines", "Lines")
    install("memplan.exporters", "lines", "write_lines")
    problem = load(path)
    assert isinstance(problem, Problem)
    assert problem.size.tolist() == [8, 16]
    assert [each.name for each in importers()][-2:] == ["csv", "lines"]
    write(make_plan(problem), tmp_path / "again.lines")
    assert (tmp_path / "again.lines").read_text() == path.read_text()
    with pytest.raises(InputError, match=r"the suffix '.txt', expected .json or .csv or .lines"):
        write(problem, tmp_path / "again.txt")


def test_the_command_line_writes_what_an_exporter_writes(install: Install, memplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "list.csv").write_text("id,lower,upper,size\na,0,2,8\n")
    asked = ("plan", tmp_path / "list.csv", "-o", tmp_path / "plan.lines")
    assert memplan(*asked)[0] == 2
    install("memplan.exporters", "lines", "write_lines")
    assert memplan(*asked)[0] == 0
    assert (tmp_path / "plan.lines").read_text() == "buffers\n0 2 8\n"


def test_what_another_package_offers_is_looked_at_only_for_what_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: pytest.fail("looked at"))
    (tmp_path / "list.csv").write_text("id,lower,upper,size\na,0,2,8\n")
    write(load(tmp_path / "list.csv"), tmp_path / "list.json")


def test_what_cannot_be_loaded_or_is_called_as_ours_is_said(install: Install) -> None:
    install("memplan.importers", "lines", "Missing")
    with pytest.raises(MemplanError, match=r"entry point lines = .*:Missing: cannot be loaded"):
        importers()
    install("memplan.importers", "lines", "NamedAsOurs")
    with pytest.raises(MemplanError, match="the importer name 'csv' is in use"):
        importers()
    install("memplan.exporters", "json", "write_lines")
    with pytest.raises(MemplanError, match=r"files that end in .json have a writer"):
        files.written_suffixes()
