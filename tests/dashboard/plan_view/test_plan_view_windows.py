"""What of a large plan travels to the browser, and what of its questions is believed."""

import numpy as np
import pytest
from memplan_dashboard.plan_view import packing, windows
from memplan_dashboard.plan_view.windows import (
    Request,
    answers,
    first_crops,
    is_large,
    parse_request,
    rows_of,
    scene_of,
    shown_profile,
)

from memplan_engine.plotting.viewport import Window
from tests.dashboard.plan_view.test_plan_view import panel, texts, unpack

GOOD = {
    "serial": 3,
    "window": [0, 2.5, 0, 64],
    "drawn": False,
    "cells": [[4, 3]],
    "border": 1,
    "wanted": [2, 0],
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two rectangles are many, and the first picture is one of two by two cells."""
    monkeypatch.setattr(windows, "MOST_VECTORS", 1)
    monkeypatch.setattr(windows, "FIRST_CELLS", (2, 2))


def hidden():
    """Three buffers of which the second is hidden by the third wherever a cell is a quarter of the plan."""
    return panel(
        start=np.array([0, 3, 3]),
        end=np.array([2, 4, 4]),
        offset=np.array([0, 0, 1]),
        size=np.array([90, 1, 1]),
    )


def test_large_is_what_has_more_rectangles_than_a_browser_should_hold():
    assert is_large([panel()])
    one = panel(**{name: getattr(panel(), name)[:1] for name in ("start", "end", "offset", "size", "color")})
    assert not is_large([one])
    assert is_large([one, panel()])


@pytest.mark.parametrize(("selected", "rows"), [(None, [0, 2]), (1, [0, 1, 2]), (2, [0, 2]), (77, [0, 2])])
def test_first_travels_what_the_whole_picture_shows_and_what_is_selected(selected, rows):
    header, column = unpack(packing.pack(first_crops([hidden()], selected), {}))
    (one,) = header["panels"]
    assert column(one["owner"]).tolist() == rows
    assert column(one["size"]).tolist() == [hidden().size[row] for row in rows]
    assert column(one["names"]["ids"]).tolist() == rows
    names = texts(one["names"], column, bytes(column(one["names"]["text"]).tolist()))
    assert names == [hidden().names[row] for row in rows]
    assert one["buffers"] == 3
    assert one["view"] == {
        "window": [0, 4, 0, 192 * 1.09],
        "cells": [2, 2],
        "whole": False,
        "total": 3,
        "profileEnd": 4,
        "sectionsEach": 1,
    }


def test_a_window_is_answered_with_its_rows_and_without_labels():
    labelled = panel(step_labels=["x", "", "yy", "z"])
    near, wanted = answers([labelled], Request(1, Window(2.5, 3, 0, 10), False, ((4, 4),), 1, ()))
    header, column = unpack(packing.pack(near, {}, wanted=wanted))
    (one,) = header["panels"]
    # A quarter of the window on each side is given besides: steps 2.375 to 3.125.
    assert column(one["owner"]).tolist() == [2]
    assert one["stepLabels"] is None
    assert column(one["profileStart"]).tolist() == [2, 3]
    assert "wanted" not in header


def test_single_buffers_are_answered_with_all_their_pieces():
    pieces = panel(owner=np.array([1, 0, 1], np.int32))
    question = Request(1, Window(0, 4, 0, 99), True, ((4, 4),), 1, (1, 50))
    near, (one,) = answers([pieces], question)
    assert near == []
    # Nothing of another picture is drawn.
    assert len(answers([pieces], question, is_new=True)[0]) == 1
    assert one.panel.owner.tolist() == [1, 1]
    assert one.panel.size.tolist() == [64, 192]


def test_rows_of_buffers_that_are_not_there_are_none():
    assert rows_of(panel(), (2, -1, 3, 2, 0)).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("window", "most", "expected"),
    [
        (Window(0, 4, 0, 1), 4, ([0, 1, 2, 3], [64, 192, 320, 192], 4, 1)),
        (Window(0, 4, 0, 1), 2, ([0, 2], [192, 320], 4, 2)),
        (Window(0, 4, 0, 1), 3, ([0, 2], [192, 320], 4, 2)),
        (Window(1.5, 2, 0, 1), 4, ([1], [192], 2, 1)),
        (Window(1.5, 2.1, 0, 1), 1, ([1], [320], 3, 2)),
        (Window(-9, 0.5, 0, 1), 4, ([0], [64], 1, 1)),
        (Window(3.5, 99, 0, 1), 4, ([3], [192], 4, 1)),
    ],
)
def test_a_profile_of_many_sections_keeps_its_peaks(window, most, expected):
    found = shown_profile(panel(), window, most)
    assert (found.start.tolist(), found.live.tolist(), found.end, found.sections_each) == expected


def test_a_picture_has_a_number_of_its_own():
    one = scene_of(first_crops([hidden()], None), {"height": 3})
    assert one == scene_of(first_crops([hidden()], None), {"height": 3})
    colored = hidden()
    colored.color[0] = 1
    assert one != scene_of(first_crops([colored], None), {"height": 3})
    assert one != scene_of(first_crops([hidden()], None), {"height": 4})


def test_a_question_is_read():
    found = parse_request(GOOD, 1)
    assert found == Request(3, Window(0, 2.5, 0, 64), False, ((4, 3),), 1, (2, 0))
    assert parse_request(GOOD | {"drawn": True}, 1).drawn
    assert not parse_request(GOOD | {"drawn": "yes"}, 1).drawn
    many = parse_request(GOOD | {"wanted": [*range(99), "a", 2**40]}, 1)
    assert many.wanted == tuple(range(windows.MOST_WANTED))


@pytest.mark.parametrize(
    "change",
    [
        {"serial": "3"},
        {"serial": True},
        {"border": 0},
        {"border": 10**9},
        {"wanted": None},
        {"window": None},
        {"window": [0, 1, 2]},
        {"window": [0, 0, 0, 1]},
        {"window": [0, 1, 5, 4]},
        {"window": [0, float("nan"), 0, 1]},
        {"window": [0, float("inf"), 0, 1]},
        {"window": "0123"},
        {"cells": []},
        {"cells": [[4, 3], [4, 3]]},
        {"cells": [[4, 3, 2]]},
        {"cells": [[0, 3]]},
        {"cells": [[10**9, 3]]},
        {"cells": [["4", 3]]},
    ],
)
def test_a_question_that_makes_no_sense_is_no_question(change):
    assert parse_request(GOOD | change, 1) is None


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_not_a_question_is_none(value):
    assert parse_request(value, 1) is None
