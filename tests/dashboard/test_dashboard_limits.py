"""The limits of what the dashboard makes, at their edge: as much as there may be is made, one more is not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.views import replay_choices

from memplan_engine import InputError, make_plan, make_problem
from memplan_engine.plotting import png_figure, svg_figure
from memplan_engine.plotting.figure_style import FigureStyle
from memplan_engine.replay import make, recorded
from memplan_engine.strategies.base import SolveLimits
from tests.support.apptest import open_app

DOC = "example:teaching_best_fit"  # eight buffers


@pytest.mark.parametrize(("most", "refused"), [(8, 0), (7, 1)])
def test_a_replay_of_as_many_buffers_as_there_may_be(monkeypatch, most, refused):
    replay_choices._traced.clear()
    monkeypatch.setattr(make, "MOST_BUFFERS", most)
    app = open_app("replay", doc=DOC, strategy="first_fit_by_start")
    assert len(app.error) == refused


def test_a_replay_may_take_a_minute(monkeypatch):
    def over(seconds):
        assert seconds == 60
        limits = SolveLimits(seconds)
        limits.cancel()
        return limits

    replay_choices._traced.clear()
    monkeypatch.setattr(replay_choices, "SolveLimits", over)
    (error,) = open_app("replay", doc=DOC, strategy="partition").error
    assert error.value.replace("\\", "").endswith("partition was not recorded to its end within 60 s")


@pytest.mark.parametrize(("most", "offered"), [(8, True), (7, False)])
def test_a_search_tree_and_placing_by_hand_have_limits_of_their_own(monkeypatch, most, offered):
    monkeypatch.setattr(replay_choices, "MOST_IN_A_TREE", most)
    monkeypatch.setattr(recorded, "MOST_BUFFERS", most)
    monkeypatch.setattr(replay_choices, "MOST_BY_HAND", most)
    app = open_app("replay", doc=DOC, strategy="exact", mode="exercise")
    assert not app.error
    told = [each.value.replace("\\", "") for each in app.warning]
    assert any("exact cannot be replayed here: 8 buffers" in each for each in told) != offered
    assert any("mode: found 'exercise'" in each for each in told) != offered


def test_an_image_of_as_many_pixels_and_rectangles_as_there_may_be(monkeypatch):
    count = 30
    plan = make_plan(
        make_problem(np.arange(count), np.arange(count) + 2, np.full(count, 8)), "greedy_by_size"
    )
    style = FigureStyle(width=200, height=300, dpi=96)
    monkeypatch.setattr(png_figure, "MOST_PIXELS", 200 * 300)
    assert png_figure.to_png(plan, style).startswith(b"\x89PNG")
    monkeypatch.setattr(png_figure, "MOST_PIXELS", 200 * 300 - 1)
    with pytest.raises(InputError, match="expected 59,999 device pixels at most"):
        png_figure.to_png(plan, style)
    assert "<image" not in svg_figure.to_svg(plan, style, count)
    assert "<image" in svg_figure.to_svg(plan, style, count - 1)
