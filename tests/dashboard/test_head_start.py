"""The plan of a page is begun when the browser asks for it, once, and only where it is everybody's."""

import threading

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import plan_facts
from memplan_dashboard.views.inspect import head_start
from memplan_dashboard.widgets.panes_of import panes_of

from tests.support.apptest import check, figure, open_app
from tests.support.waiting import wait_until

BUFFERS = "id,lower,upper,size\na,0,2,64\nb,1,3,32\n"


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """The problems that were planned, as they come; `own.csv` is a file of the command line."""
    (tmp_path / "own.csv").write_text(BUFFERS)
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "own.csv")])
    several, make = [], plan_facts.make_plan

    def noted(problem, *args, **options):
        several.append(problem)
        return make(problem, *args, **options)

    monkeypatch.setattr(plan_facts, "make_plan", noted)
    return several


def begun(query, path="/"):
    """Begin, and wait until the turn is free again."""
    head_start.begin(path, query)
    head_start._turn.acquire()
    head_start._turn.release()


def test_the_page_finds_the_plan_that_was_begun(planned):
    begun({"doc": "file:own.csv", "strategy": "greedy_by_area"})
    (problem,) = planned
    app = check(open_app(doc="file:own.csv", strategy="greedy_by_area"))
    assert planned == [problem]
    assert figure(app, "Arena") == "96 B"


def test_the_panes_are_worked_out_too(planned):
    begun({"doc": "file:own.csv", "strategy": "greedy_by_breadth"})
    (problem,) = planned
    wait_until(lambda: panes_of.__globals__["_panes_of"] in problem.worked_out)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"doc": "file:own.csv", "strategy": "linear_scan"}, "/compare"),
        ({"doc": "upload:0123456789abcdef"}, "/"),
        ({"doc": "file:gone.csv"}, "/"),
        ({"doc": "file:own.csv", "symbols": "n=x"}, "/"),
        ({"doc": "file:own.csv", "strategy": "no such"}, "/"),
    ],
)
def test_nothing_is_begun_for_other_pages_strangers_files_and_what_is_wrong(planned, query, path):
    begun(query, path)
    assert not [problem for problem in planned if query.get("strategy") != "no such"]


def test_one_at_a_time(planned):
    with head_start._turn:
        before = threading.enumerate()
        head_start.begin("/", {"doc": "file:own.csv", "strategy": "naive"})
        begun_now = set(threading.enumerate()) - set(before)
    assert not [thread for thread in begun_now if thread.name == "head start"]
    assert not planned
