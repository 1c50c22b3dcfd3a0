"""The files below the launcher's folder: listed and opened by their paths, and nothing outside it."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents, folder

from memplan_engine import InputError
from tests.support.apptest import CSV, address, check, figure, open_app, widget


@pytest.fixture
def below(tmp_path, monkeypatch):
    """The folder, with two files in it and one beside it."""
    given = tmp_path / "given"
    (given / "runs").mkdir(parents=True)
    (given / ".hidden").mkdir()
    for path in ("given/a.csv", "given/runs/b.csv", "given/.hidden/c.csv", "outside.csv"):
        (tmp_path / path).write_text(CSV)
    monkeypatch.setattr("sys.argv", ["app.py", f"--folder={given}"])
    return given


def test_what_is_listed(below):
    (below / "linked.csv").symlink_to(below / "runs" / "b.csv")
    (below / "leads_out.csv").symlink_to(below.parent / "outside.csv")
    (below / "dangling.csv").symlink_to(below / "none.csv")
    assert list(folder.listed().values()) == ["a.csv", "linked.csv", "runs/b.csv"]
    assert documents.given_files() == []


def test_names_that_cannot_be_shown_are_passed_over(below):
    """One of them would be an error on the page for everybody."""
    said = ("two\nlines.csv", "turned\u202egpj.csv", "größe 1.csv")
    for name in (b"no_text\xff.csv", *(each.encode() for each in said)):
        with open(os.fsencode(below) + b"/runs/" + name, "w") as file:
            file.write(CSV)
    os.mkdir(os.fsencode(below) + b"/no_text\xff")
    (below / os.fsdecode(b"no_text\xff") / "a.csv").write_text(CSV)
    assert list(folder.listed().values()) == ["a.csv", "runs/b.csv", "runs/größe 1.csv"]
    open_app("import")


def test_folders_within_folders_without_end_are_listed_to_a_depth(below):
    deep = below
    for _ in range(folder.MOST_DEEP):
        deep = deep / "d"
    (deep / "d").mkdir(parents=True)
    (deep / "in.csv").write_text(CSV)
    (deep / "d" / "below.csv").write_text(CSV)
    listed = [name.rpartition("/")[2] for name in folder.listed().values()]
    assert listed == ["a.csv", "in.csv", "b.csv"]
    path = "d/" * (folder.MOST_DEEP + 1) + "below.csv"
    assert folder.find(f"folder:{path}") == below / path


@pytest.mark.parametrize(
    "name",
    [
        "../outside.csv",
        "runs/../../outside.csv",
        "leads_out.csv",
        "out/outside.csv",
        "runs",
        "",
        "a\0",
        "a" * 5000,
    ],
)
def test_nothing_outside_is_opened(below, name):
    (below / "leads_out.csv").symlink_to(below.parent / "outside.csv")
    (below / "out").symlink_to(below.parent)
    for each in (name, f"{below}/{name}"):
        with pytest.raises(InputError, match="no such file"):
            documents.path_of(f"folder:{each}")
    with pytest.raises(InputError, match="no such file"):
        documents.path_of(f"folder:{below.parent / 'outside.csv'}")


def test_a_pipe_is_no_file(below):
    os.mkfifo(below / "pipe.csv")
    assert folder.find("folder:pipe.csv") is None


def test_without_a_folder_there_is_nothing(monkeypatch, below):
    monkeypatch.setattr("sys.argv", ["app.py"])
    assert (folder.listed(), folder.find("folder:a.csv")) == ({}, None)
    assert "or a file below given" not in [each.label for each in open_app("import").selectbox]


def test_a_large_folder_is_listed_in_part_and_opened_in_whole(monkeypatch, below):
    monkeypatch.setattr(folder, "MOST_LISTED", 1)
    assert list(folder.listed().values()) == ["a.csv"]
    assert folder.find("folder:runs/b.csv") == below / "runs" / "b.csv"


def test_a_path_leads_to_inspect_and_one_outside_is_refused(below):
    app = open_app("import")
    assert widget(app.selectbox, "or a file below given").options == ["a.csv", "runs/b.csv"]
    widget(app.selectbox, "or a file below given").select("runs/b.csv")
    check(app.run())
    assert address(app)["doc"] == "folder:runs/b.csv"
    assert figure(app, "Arena") == "40 B"
    app = open_app(doc="folder:../outside.csv")
    assert "no such file" in app.error[0].value
