"""Windows of large plans: which rectangles a picture needs, against painting them all in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.plotting import viewport
from memplan_engine.plotting.viewport import Rectangles, Window, view_window

EVERYTHING = Window(0, 10, 0, 100)


def rectangles(*rows, faded=None):
    """Rows (start, end, offset, size)."""
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return Rectangles(*columns, None if faded is None else np.array(faded, np.bool_))


def painted(rects, rows, window, cells, border):
    """(who is under the pointer, whose colour is seen) of each cell, painted one rectangle after another."""
    width, height = cells
    pointed, seen = {}, {}

    def box(row):
        kx, ky = width / (window.x1 - window.x0), height / (window.y1 - window.y0)
        low, high = int(rects.offset[row]), int(rects.offset[row] + rects.size[row])
        left = max(0, math.floor((rects.start[row] - window.x0) * kx + 0.5))
        right = min(width, math.floor((rects.end[row] - window.x0) * kx + 0.5))
        top = max(0, height - math.floor((high - window.y0) * ky + 0.5))
        bottom = min(height, height - math.floor((low - window.y0) * ky + 0.5))
        wide = right > left and bottom > top
        if right <= left:
            left = min(left, width - 1)
            right = left + 1
        if bottom <= top:
            bottom = max(1, bottom)
            top = bottom - 1
        return wide, left, top, right, bottom

    def is_seen(row):
        return (
            rects.end[row] > window.x0
            and rects.start[row] < window.x1
            and rects.offset[row] < window.y1
            and rects.offset[row] + rects.size[row] > window.y0
        )

    def is_faded(row):
        return rects.faded is not None and bool(rects.faded[row])

    inside = [row for row in rows if is_seen(row)]
    thin = [row for row in inside if not box(row)[0]]
    order = [row for row in inside if box(row)[0]]
    order += [row for row in thin if is_faded(row)] + [row for row in thin if not is_faded(row)]
    for row in order:
        _, left, top, right, bottom = box(row)
        first = top + border if bottom - top >= 3 * border else top
        last = right - border if right - left >= 4 * border else right
        for y in range(top, bottom):
            for x in range(left, right):
                pointed[x, y] = row
                if y >= first and x < last:
                    seen[x, y] = row
    return pointed, seen


plans = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(0, 90), st.integers(1, 40), st.booleans()),
    max_size=30,
)
views = st.tuples(st.floats(0, 8), st.floats(0.2, 4), st.floats(0, 90), st.floats(1, 40))


@given(plans, views, st.tuples(st.integers(1, 14), st.integers(1, 10)), st.integers(1, 2))
def test_what_owns_a_cell_paints_the_same_picture_and_no_row_is_idle(plan, view, cells, border):
    rects = rectangles(
        *((start, start + life, low, size) for start, life, low, size, _ in plan),
        faded=[row[4] for row in plan],
    )
    x0, wide, y0, high = view
    window = Window(x0, x0 + wide, y0, y0 + high)
    found = view_window(rects, window, cells, border, most=-1)
    everything = painted(rects, range(len(plan)), window, cells, border)
    assert not found.is_whole
    assert painted(rects, found.rows.tolist(), window, cells, border) == everything
    assert found.rows.tolist() == sorted({*everything[0].values(), *everything[1].values()})


def test_what_another_hides_is_left_out():
    # Ten cells of one step and ten bytes: the two of a byte each share a cell, the later one owns it.
    rects = rectangles((0, 10, 0, 50), (2, 3, 61, 1), (2, 3, 63, 1), (5, 9, 70, 20))
    found = view_window(rects, EVERYTHING, (10, 10), most=3)
    assert found.rows.tolist() == [0, 2, 3]
    assert (found.window, found.cells, found.is_whole) == (EVERYTHING, (10, 10), False)


def test_what_is_faded_gives_way_where_there_is_no_room():
    rects = rectangles((2, 3, 61, 1), (2, 3, 63, 1), faded=[False, True])
    assert view_window(rects, EVERYTHING, (10, 10), most=1).rows.tolist() == [0]


def test_a_few_are_given_whole_with_what_is_around_them():
    rects = rectangles((4, 5, 40, 1), (4, 5, 41, 1), (6, 7, 40, 1), (9, 10, 99, 1))
    near = Window(4, 5, 40, 44)
    found = view_window(rects, near, (10, 10), most=3)
    assert found.rows.tolist() == [0, 1, 2]
    assert (found.window, found.is_whole) == (near.grown(viewport.MARGINS[0]), True)
    found = view_window(rects, near, (10, 10), most=2)
    assert found.rows.tolist() == [0, 1]
    assert (found.window, found.is_whole) == (near.grown(viewport.MARGINS[1]), True)


def test_a_window_grows_about_its_middle():
    assert Window(2, 4, 10, 20).grown(2) == Window(1, 5, 5, 25)


def test_edges_of_a_window_are_half_open():
    rects = rectangles((0, 2, 0, 10), (2, 4, 10, 10), (4, 6, 20, 10))
    assert view_window(rects, Window(2, 4, 10, 20), (4, 4), most=3).window == Window(-1, 7, -5, 35)
    assert view_window(rects, Window(2, 4, 10, 20), (4, 4), most=1).rows.tolist() == [1]


def test_more_cells_than_anybody_needs_are_made_fewer(monkeypatch):
    monkeypatch.setattr(viewport, "MOST_CELLS", 4)
    rects = rectangles(*((step, step + 1, 0, 100) for step in range(10)))
    # Two by two: all but steps 2 and 7 are thinner than a cell, and the last of each half hides the others.
    found = view_window(rects, EVERYTHING, (10, 10), most=1)
    assert (found.rows.tolist(), found.cells) == ([1, 9], (10, 10))


def test_several_threads_paint_the_same_picture(monkeypatch):
    random = np.random.default_rng(0)
    rows = zip(*(random.integers(0, most, 200).tolist() for most in (9, 90, 12)), strict=True)
    rects = rectangles(
        *((start, start + 1 + low % 3, low, 1 + high) for start, low, high in rows),
        faded=random.random(200) < 0.5,
    )
    alone = view_window(rects, EVERYTHING, (23, 17), most=1).rows
    monkeypatch.setattr(viewport, "LEAST_SHARE", 70)
    monkeypatch.setattr(viewport, "count_cores", lambda: 8)
    calls = []
    paint = viewport.paint_cells
    monkeypatch.setattr(viewport, "paint_cells", lambda *given: calls.append(given[-2:]) or paint(*given))
    assert view_window(rects, EVERYTHING, (23, 17), most=1).rows.tolist() == alone.tolist()
    assert sorted(calls) == [(0, 100), (100, 200)]


def test_edges_far_outside_a_window_are_as_good_as_any():
    rects = rectangles((0, 2**62, 0, 2**62), (1, 2, 1, 1))
    found = view_window(rects, Window(1, 1.0001, 1, 1.0001), (10, 10), most=0)
    assert found.rows.tolist() == [1]
    found = view_window(rects, Window(5, 5.0001, 5, 5.0001), (10, 10), most=0)
    assert found.rows.tolist() == [0]


@pytest.mark.parametrize("most", [0, 5])
def test_an_empty_plan_has_nothing_to_show(most):
    found = view_window(rectangles(), EVERYTHING, (10, 10), most=most)
    assert found.rows.tolist() == []
    assert found.is_whole
