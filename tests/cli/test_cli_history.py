"""`memplan history`: into the store and out again, what is told of changes, exit codes, formats."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from memplan_engine.history.opening import open_history
from tests import ROOT
from tests.support.repository import Repository

Memplan = Callable[..., tuple[int, str, str]]
BASE, HEAD = (ROOT / "example_graphs" / f"diff_kept_view_{side}.json" for side in ("base", "head"))
#   arena 16 MiB → 20 MiB: what relu makes is returned, through a view
SMALL = "id,lower,upper,size\na,0,2,{}\nb,1,3,50\n"


@pytest.fixture
def repository(memplan: Memplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The current folder is its work tree."""
    for name in ("MEMPLAN_HISTORY", "GITHUB_BASE_REF", "GITHUB_REF_NAME", "GITHUB_HEAD_REF"):
        monkeypatch.delenv(name, raising=False)
    made = Repository(tmp_path / "shop")
    monkeypatch.chdir(made.folder)
    return made


@pytest.fixture
def changed(memplan: Memplan, repository: Repository) -> list[str]:
    """Two commits with the base, one with the head."""
    commits = []
    for number, graph in enumerate((BASE, BASE, HEAD)):
        commits.append(repository.commit(net=str(number)))
        code, _, err = memplan("history", "record", graph, "--model", "ranker", "--variant", "batch 8")
        assert (code, err) == (0, "")
    return commits


def rows(out: str) -> list[list[str]]:
    """The cells of a table."""
    return [
        [cell.strip() for cell in row.split("│")[1:-1]] for row in out.splitlines() if row.startswith("│")
    ]


def test_what_is_recorded_is_listed_the_last_first(memplan: Memplan, changed: list[str]) -> None:
    code, out, _ = memplan("history", "log")
    assert code == 0
    told = rows(out)
    assert [row[0] for row in told] == [commit[:12] for commit in reversed(changed)]
    assert told[0][1:] == ["2023-11-14", "ranker (batch 8)", "20 MiB", "+4 MiB", "20 MiB", "0 B", "4.6 MiB"]
    assert told[1][3:5] == ["16 MiB", ""]
    assert rows(memplan("history", "log", "ranker", "-n", "1")[1])[-1][0] == "and 2 more"
    points = json.loads(memplan("history", "log", "--format", "json")[1])
    assert [(each["commit"], each["arena"], each["branch"]) for each in points] == [
        (changed[0], 16 << 20, "trunk"), (changed[1], 16 << 20, "trunk"), (changed[2], 20 << 20, "trunk"),
    ]  # fmt: skip
    assert points[1]["parent"] == changed[0]
    assert (points[2]["demand"], points[2]["packing_loss"], points[2]["dirty"]) == (20 << 20, 0, False)


def test_a_commit_that_is_recorded_again_is_one(memplan: Memplan, changed: list[str]) -> None:
    memplan("history", "record", HEAD, "--model", "ranker", "--variant", "batch 8")
    out = memplan("history", "trend", "ranker")[1]
    assert out.splitlines()[1].startswith("3 commits on trunk, ")
    assert out.splitlines()[2] == "▁▁█"
    table = memplan("history", "log", "--format", "otava-csv")[1].splitlines()
    assert [row.split(",")[1] for row in table[1:]] == changed
    short = [commit[:12] for commit in reversed(changed)]
    assert [row[0] for row in rows(memplan("history", "log")[1])] == short
    assert [row[0] for row in rows(memplan("history", "log", "--recordings")[1])] == [short[0], *short]


def test_a_commit_that_was_amended_away_is_left_out(memplan: Memplan, changed: list[str]) -> None:
    Repository.git(Repository(Path()), "commit", "--amend", "-q", "--allow-empty", "-m", "anew")
    memplan("history", "record", BASE, "--model", "ranker", "--variant", "batch 8")
    _, out, _ = memplan("history", "trend", "ranker")
    gone = f"{changed[2][:12]} is left out: amended, rebased, or replaced by a forced push"
    assert out.splitlines()[0].startswith("ranker (batch 8) needs 16 MiB, unchanged since ")
    assert out.splitlines()[1].startswith("3 commits on trunk, ")
    assert out.splitlines()[3] == gone
    code, _, err = memplan("history", "blame", "--commit", changed[2])
    assert (code, "found a commit that trunk has left: amended" in err) == (2, True)
    assert memplan("history", "blame")[1] == "nothing changed\n"
    memplan("history", "trend", "ranker", "-o", "trend.html")
    assert gone in Path("trend.html").read_text("utf-8")


def test_commits_between_two_that_are_recorded_say_their_order(
    memplan: Memplan, repository: Repository
) -> None:
    """Rebased ones have times of their own: the last is older than the first."""
    first = repository.commit(net="1")
    memplan("history", "record", BASE, "--model", "ranker")
    repository.clock -= 1_000_000
    repository.commit(net="2")
    last = repository.commit(net="3")
    memplan("history", "record", HEAD, "--model", "ranker")
    told = rows(memplan("history", "log")[1])
    assert [row[0] for row in told] == [last[:12], first[:12]]
    assert told[0][4] == "+4 MiB"


def test_blame_tells_commit_tensor_and_line(memplan: Memplan, changed: list[str]) -> None:
    code, out, _ = memplan("history", "blame")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == (
        f"{changed[2][:12]}  2023-11-14  ranker (batch 8): arena +4 MiB, 16 MiB → 20 MiB (to look at)"
    )
    assert lines[1] == "    Demand +4 MiB."
    assert lines[2].startswith(
        "    Peak +4 MiB, 16 MiB → 20 MiB: +8 MiB because relu (make_pairs.py:67) is now returned"
    )
    (told,) = json.loads(memplan("history", "blame", "--json")[1])
    assert (told["before"], told["commit"], told["arena_delta"]) == (changed[1], changed[2], 4 << 20)
    line, code_there = told["line"], told["code"]
    assert lines[-1] == f"    {line}: {code_there}"
    assert told["tensor"] in out
    assert told["explanation"]["delta_bytes"] == 4 << 20
    assert line.endswith(("make_pairs.py:67", "make_pairs.py:68"))
    assert memplan("history", "blame", "--commit", changed[2][:7])[1] == out
    assert memplan("history", "blame", "--commit", "HEAD")[1] == out
    code, _, err = memplan("history", "blame", "--commit", changed[1])
    assert (code, "no change of memory" in err) == (2, True)


def test_growth_fails_where_that_is_asked_for_until_it_is_meant(memplan: Memplan, changed: list[str]) -> None:
    trend = "history", "trend", "ranker"
    code, out, _ = memplan(*trend, "--fail-on-growth")
    assert code == 1
    first = f"since {changed[1][:12]} of 2023-11-14"
    assert out.splitlines()[0] == (
        f"ranker (batch 8) needs 20 MiB, +4 MiB {first} (demand +4 MiB): 1 change to look at".replace(
            changed[1][:12], changed[0][:12]
        )
    )
    assert "▁▁█" in out
    assert memplan("history", "log", "--fail-on-growth")[0] == 1
    assert memplan("history", "log", "--fail-on-growth", "--limit", "25%")[0] == 0
    assert memplan(*trend)[0] == 0
    code, _, err = memplan("history", "ack", changed[2])
    assert (code, "--reason" in err) == (2, True)
    assert memplan("history", "ack", changed[1], "-m", "meant")[0] == 2
    code, out, _ = memplan("history", "ack", "HEAD", "-m", "kept for the loss", "--author", "ann")
    assert (code, out) == (0, "ranker (batch 8): arena +4 MiB, 16 MiB → 20 MiB: kept for the loss\n")
    code, out, _ = memplan(*trend, "--fail-on-growth")
    assert code == 0
    assert out.splitlines()[0].startswith(
        f"ranker (batch 8) needs 20 MiB, as acknowledged with {changed[2][:12]} of "
    )
    with open_history(".memplan/history.db", read_only=True) as history:
        (said,) = history.acknowledgements()
    assert (said.commit, said.reason, said.author) == (changed[2], "kept for the loss", "ann")
    why = "kept for the loss (ann, "
    told = memplan("history", "blame")[1]
    assert f"    Acknowledged: {why}" in told
    (found,) = json.loads(memplan("history", "blame", "--json")[1])
    assert found["acknowledged"].startswith(why)
    assert (
        why
        in json.loads(memplan("history", "trend", "ranker", "--format", "json")[1])[0]["changes"][0][
            "acknowledged"
        ]
    )
    _, out, _ = memplan("history", "ack", "HEAD", "-m", "meant", "--author", "bob")
    assert f": meant, in place of: {why}" in out
    assert memplan("history", "ack", "HEAD", "--withdraw", "-m", "why")[0] == 2
    code, out, _ = memplan("history", "ack", "HEAD", "--withdraw")
    assert (code, out.startswith("ranker (batch 8): not meant any more: meant (bob, ")) == (0, True)
    assert memplan(*trend, "--fail-on-growth")[0] == 1
    code, _, err = memplan("history", "ack", "HEAD", "--withdraw")
    assert (code, "found a change that nobody acknowledged" in err) == (2, True)


def test_the_page_needs_nothing_else_and_escapes_what_it_is_told(
    memplan: Memplan, repository: Repository, changed: list[str]
) -> None:
    repository.git("checkout", "-qb", "x<y>&z")
    repository.commit(net="9")
    memplan("history", "record", BASE, "--model", "ranker", "--variant", "batch 8")
    code, out, _ = memplan("history", "trend", "ranker", "-o", "trend.html")
    assert code == 0
    assert out.startswith("trend.html: ")
    page = Path("trend.html").read_text("utf-8")
    assert "on x&lt;y&gt;&amp;z" in page
    assert not re.search(r"<script|https?://|url\((?!#)|<link|<img|@import", page)
    assert page.count("<polygon") == 3
    for target in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{target}"' in page
    page_of_trunk = memplan("history", "trend", "ranker", "--branch", "trunk", "-o", "trunk.html")
    assert page_of_trunk[0] == 0
    page = Path("trunk.html").read_text("utf-8")
    assert f'<p class="warning">{changed[2][:12]}, arena +4 MiB, 16 MiB → 20 MiB: ' in page
    assert page.count('<g class="change alarm">') == 1
    ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_a_pull_request_is_compared_with_where_it_began(
    memplan: Memplan, repository: Repository, changed: list[str]
) -> None:
    repository.git("checkout", "-qb", "topic", changed[1])
    repository.commit(net="7")
    recorded = ("history", "record", HEAD, "--model", "ranker", "--variant", "batch 8", "--against", "trunk")
    code, out, _ = memplan(*recorded, "--fail-on-growth")
    assert code == 1
    (row,) = rows(out)
    assert row[-2:] == [changed[1][:12], "demand +4 MiB"]
    assert memplan(*recorded, "--fail-on-growth", "--limit", "4MiB")[0] == 0
    code, out, _ = memplan("history", "baseline", "--against", "trunk", "-o", "baseline.json")
    assert (code, out) == (0, "")
    (point,) = json.loads(Path("baseline.json").read_text())
    assert (point["commit"], point["arena"]) == (changed[1], 16 << 20)
    # Recorded for another commit, without its files here.
    code, out, _ = memplan("history", "baseline", "--commit", changed[2], "--against", "trunk")
    assert [row[0] for row in rows(out)] == [changed[1][:12]]
    code, _, err = memplan("history", "baseline", "--commit", changed[0], "--against", "trunk")
    assert (code, "no such point" in err) == (2, True)


def test_what_is_checked_out_says_which_branch_is_meant(
    memplan: Memplan, repository: Repository, changed: list[str]
) -> None:
    repository.git("checkout", "-qb", "topic", changed[1])
    topic = repository.commit(net="7")
    memplan("history", "record", BASE, "--model", "ranker", "--variant", "batch 8")
    assert "1 commit on topic," in memplan("history", "trend", "ranker")[1]
    # With the branch of a commit that is named.
    assert memplan("history", "blame", "--commit", changed[2])[0] == 0
    code, _, err = memplan("history", "blame", "--commit", "HEAD")
    assert (code, "commit HEAD: found no change of memory on topic" in err) == (2, True)
    repository.git("checkout", "-q", "trunk")
    assert "3 commits on trunk," in memplan("history", "trend", "ranker")[1]
    assert memplan("history", "trend", "ranker", "--fail-on-growth")[0] == 1
    assert topic[:12] in memplan("history", "log", "--branch", "topic")[1]
    repository.commit(net="9")
    code, _, err = memplan("history", "blame", "--commit", "HEAD")
    assert (code, "commit 'HEAD': no such commit in it" in err) == (2, True)


def test_the_formats_of_other_tools(memplan: Memplan, repository: Repository) -> None:
    repository.commit(net="1")
    Path("gpt.csv").write_text(SMALL.format(100))
    memplan("history", "record", "gpt.csv")
    repository.commit(net="2")
    Path("gpt.csv").write_text(SMALL.format(110))

    def told(form: str) -> str:
        code, out, err = memplan("history", "record", "gpt.csv", "--format", form)
        assert (code, err) == (0, "")
        return str(out)

    assert json.loads(told("gha-benchmark")) == [
        {"name": "gpt: arena", "unit": "B", "value": 160, "extra": "demand +10 B"},
        {"name": "gpt: demand", "unit": "B", "value": 160, "extra": "demand +10 B"},
    ]
    assert json.loads(told("bmf")) == {"gpt": {"arena": {"value": 160}, "demand": {"value": 160}}}
    suites = ElementTree.fromstring(told("junit"))
    assert suites.attrib == {"tests": "1", "failures": "1", "errors": "0"}
    (case,) = suites.iter("testcase")
    assert case.attrib == {"classname": "shop", "name": "gpt"}
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "arena +10 B, 150 B → 160 B (demand +10 B)"
    (point,) = json.loads(told("json"))
    assert (point["arena"], point["grew"], point["baseline"]["arena"]) == (160, True, 150)
    table = list(csv.DictReader(io.StringIO(memplan("history", "log", "--format", "otava-csv")[1])))
    assert [(row["arena"], row["demand"]) for row in table][:2] == [("150", "150"), ("160", "160")]
    assert table[0]["time"] == "2023-11-14T22:14:20+00:00"
    assert list(table[0]) == ["time", "commit", "branch", "arena", "demand"]


def test_what_was_measured_goes_to_otava_and_formulas_stay_text(
    memplan: Memplan, repository: Repository
) -> None:
    repository.git("checkout", "-qb", "=cmd")
    repository.commit(net="1")
    for model in ("gpt", "+vit"):
        recorded = ROOT / "example_graphs" / "gpt2.json"
        code, _, err = memplan("history", "record", recorded, "--model", model)
        assert (code, err) == (0, "")
    text = memplan("history", "trend", "gpt", "--format", "otava-csv")[1]
    assert text.splitlines()[0] == "time,commit,branch,arena,demand"
    assert ",'=cmd," in text
    both = memplan("history", "log", "--format", "otava-csv")[1].splitlines()[0]
    assert both == "time,commit,branch,gpt: arena,gpt: demand,'+vit: arena,'+vit: demand"


def test_older_files_are_imported_with_their_commits_and_stores_whole(
    memplan: Memplan, repository: Repository
) -> None:
    first, second = repository.commit(net="1"), repository.commit(net="2")
    code, out, err = memplan(
        "history", "import", BASE, HEAD, "--model", "ranker", "--commit", first, "--commit", second
    )
    assert (code, err) == (0, "")
    assert [row[0] for row in rows(out)] == [second[:12], first[:12]]
    (told,) = json.loads(memplan("history", "blame", "--json")[1])
    assert (told["before"], told["commit"]) == (first, second)
    # Of another repository, in the order in which they are given.
    code, _, _ = memplan(
        *("history", "import", BASE, HEAD, "--model", "old", "--store", "old.db"),
        *("--commit", "v1", "--commit", "v2", "--time", "2001-02-03", "--time", "0"),
    )
    assert code == 0
    points = json.loads(memplan("history", "log", "--store", "old.db", "--format", "json")[1])
    assert [(each["commit"], each["parent"]) for each in points] == [("v1", ""), ("v2", "v1")]
    assert points[0]["committed_at"] == 981_158_400
    code, out, _ = memplan("history", "import", "old.db")
    assert (code, out) == (0, "old.db: 2 runs, 2 points, 0 graphs new\n")
    code, out, _ = memplan("history", "export", "all.db")
    assert (code, out.startswith("all.db: 4 points, 2 graphs, ")) == (0, True)
    code, out, _ = memplan("history", "import", "all.db", "--store", "anew.db")
    assert (code, out) == (0, "all.db: 4 runs, 4 points, 2 graphs new\n")
    assert (
        memplan("history", "log", "--store", "anew.db")[1].splitlines()[2:]
        == memplan("history", "log")[1].splitlines()[2:]
    )
    code, _, err = memplan("history", "import", BASE, HEAD, "--commit", first)
    assert (code, err.startswith("memplan: --commit: found 1 for 2 files")) == (2, True)


def test_what_says_nothing_new_is_pruned(memplan: Memplan, repository: Repository) -> None:
    for number, graph in enumerate([BASE] * 4 + [HEAD] * 4):
        repository.commit(net=str(number))
        memplan("history", "record", graph, "--model", "ranker")
    blamed = memplan("history", "blame")[1]
    code, out, _ = memplan("history", "prune", "--before", "2001-01-01", "--newest", "0")
    assert (code, out.endswith(": 0 points and 0 graphs removed, 8 points left\n")) == (0, True)
    code, out, _ = memplan("history", "prune", "--newest", "0")
    # The first and the last, and both sides of the change.
    assert (code, out.endswith(": 4 points and 0 graphs removed, 4 points left\n")) == (0, True)
    assert memplan("history", "blame")[1] == blamed
    assert memplan("history", "prune", "--before", "soon")[0] == 2


def test_without_a_repository_a_point_is_compared_with_the_one_before_on_its_branch(
    memplan: Memplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("MEMPLAN_HISTORY", "here.db")
    recorded = "history", "record", "list.csv", "--fail-on-growth", "--branch", "main"
    code, _, err = memplan(*recorded, "--commit", "a", "--time", "2020-01-02")
    assert (code, err) == (0, "list: nothing was recorded to compare it with\n")
    Path("list.csv").write_text(Path("list.csv").read_text().replace("100", "900"))
    code, out, err = memplan(*recorded, "--commit", "b", "--time", "2020-01-03")
    assert (code, err, rows(out)[0][-2:]) == (1, "", ["a", "demand +780 B"])
    # What is older, and another branch, has nothing before it.
    assert memplan(*recorded, "--commit", "c", "--time", "2020-01-01")[0] == 0
    assert memplan(*recorded[:-1], "topic", "--commit", "d", "--time", "2020-01-04")[0] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("log", "gone.db: no such file"),
        ("log --store empty.db", "empty.db: found an empty database, expected a store of history: `memplan"),
        ("ack a -m why --store empty.db", "empty.db: found an empty database, expected a store of history"),
        (
            "ack a -m why --store gone.db",
            "gone.db: no such file, expected a store of history: `memplan history",
        ),
        ("trend --store here.db", "here.db: MODEL: found none named, expected one of list, other"),
        ("log nothing --store here.db", "model 'nothing': no such series, expected one of list"),
        ("trend list --store here.db --branch none", "no such branch, 'none'"),
        ("log --store here.db --branch none", "no such branch, 'none', expected one of ''"),
        ("blame --store here.db --branch none", "no such branch, 'none', expected one of ''"),
        ("ack feed --store here.db -m why", "commit 'feed': no such commit"),
        ("record list.csv --model a list.csv", "--model: found 2 sources"),
        ("record list.csv --range HEAD --store here.db", "--range: found 'list.csv', expected one factory"),
        ("record list.csv --time yesterday", "--time: found 'yesterday', expected a time"),
        ("record list.csv --eager list.csv --store here.db", "list.csv: no recording|found no recording"),
        ("record a.py:f --range HEAD --eager list.csv", "--eager: found --range beside it"),
        ("record a.py:f --range HEAD --format junit", "--format: found --range beside it"),
        ("record a.py:f --range HEAD --time 2020-01-01", "--time: found --range beside it"),
        ("record list.csv --store here.db --commit HEAD", "--commit: found 'HEAD', expected a hash or a tag"),
        ("import list.csv --store here.db --commit a~1", "--commit: found 'a~1', expected a hash or a tag"),
        ("record list.csv --path ../elsewhere", "--path: found '../elsewhere'"),
        ("record list.csv --limit much", "--limit: found"),
        ("record list.csv --strategy none", "none"),
        ("bisect HEAD HEAD -- list.csv:net", "no such repository"),
    ],
)
def test_bad_input_is_one_line(
    memplan: Memplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("MEMPLAN_HISTORY", raising=False)
    if "here.db" in line:
        assert memplan("history", "record", "list.csv", "--store", "here.db")[0] == 0
        if line.startswith("trend --"):
            memplan("history", "record", "list.csv", "--model", "other", "--store", "here.db")
    elif line == "log":
        line = "log --store gone.db"
    Path("empty.db").touch()
    code, out, err = memplan("history", *line.split())
    assert (code, out) == (2, "")
    assert not Path("gone.db").exists()
    assert re.search(said, err), err
    assert len(err.splitlines()) == 1


def test_a_store_of_a_newer_version_is_left_alone(memplan: Memplan, tmp_path: Path) -> None:
    assert memplan("history", "record", "list.csv", "--store", "here.db", "--project", "p")[0] == 0
    connection = sqlite3.connect("here.db")
    connection.execute("UPDATE memplan_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    for line in ("log", "record list.csv", "trend list", "ack feed -m why"):
        code, _, err = memplan("history", *line.split(), "--store", "here.db")
        assert (code, "newer version" in err) == (2, True)
