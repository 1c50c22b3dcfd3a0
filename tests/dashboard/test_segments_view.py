"""The segments of a simulated allocator at any step, and the story of a recording at the step marked."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.charts import segment_bars

from memplan_engine.allocator.segments import HeldBlock, segments_at
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.files import load_recording
from memplan_engine.units import format_bytes
from tests import ROOT
from tests.support.apptest import address, check, open_app

EXAMPLE = ROOT / "example_graphs" / "cuda_snapshot.pickle"


def opened(**choices: str):
    return open_app(doc="example:cuda_snapshot", tab="Allocator", **choices)


def told(app) -> str:
    captions = (each.value.replace("\\", "") for each in app.caption)
    (said,) = (each for each in captions if "Click a block" in each)
    return said


def test_segments_are_shown_at_the_step_that_is_picked():
    run = simulate_allocator(load_recording(EXAMPLE).recordings[0])
    highest = int(run.reserved.argmax())
    app = opened()
    assert f"at step {highest:,}, where most is reserved" in told(app)
    # 700 events on, other segments hold other bytes.
    assert run.reserved[700] != run.reserved[highest]
    check(app.slider(key="event_widget").set_value(700).run())
    assert address(app)["event"] == "700"
    assert told(app).startswith(f"{len(segments_at(run, 700))} segments at step 700")
    assert f"{format_bytes(int(run.active[700]))} in use" in told(app)
    check(app.slider(key="event_widget").set_value(highest).run())
    assert "event" not in address(app)


@pytest.mark.parametrize("event", ["x", "99999999", "-1"])
def test_a_step_that_there_is_not_is_said(event):
    app = opened(event=event)
    assert any(each.value.replace("\\", "").startswith("event: found") for each in app.warning)
    assert "where most is reserved" in told(app)


def test_a_bar_that_is_clicked_is_its_block():
    run = simulate_allocator(load_recording(EXAMPLE).recordings[0])
    bars = segment_bars.data(segments_at(run, 700), run.recording.stacks)
    chart = segment_bars.figure(bars)
    cached, used = chart.data
    blocks = {segment_bars.block_of({"customdata": each}) for each in used.customdata}
    assert blocks == {block for segment in bars.segments for block in segment.blocks}
    assert segment_bars.block_of({"customdata": cached.customdata[0]}) is None
    assert HeldBlock(0, 512, 3) == segment_bars.block_of({"customdata": ["a", "512 B", "0", 0, 512, 3]})


def test_the_story_tells_the_step_that_is_marked():
    app = open_app(doc="example:cuda_snapshot", at="700", moment="marked")
    assert "live at step 700" in app.subheader[0].value
    lines = app.dataframe[0].value
    # What is live at that step in the recording itself.
    recorded = simulate_allocator(load_recording(EXAMPLE).recordings[0])
    assert int(lines["bytes"].sum()) == int(recorded.requested[700])
    assert np.all(lines["bytes"].diff().dropna() <= 0)


def test_a_mark_that_makes_no_sense_is_said_once():
    app = open_app(doc="example:gpt2", at="77777")
    assert [each.value.replace("\\", "") for each in app.warning] == [
        "at: found '77777', expected a step, 0 to 465"
    ]


def test_segments_are_those_of_the_step_that_is_marked():
    assert "segments at step 700," in told(opened(at="700"))
    # One that is picked for the segments alone goes before it.
    assert "segments at step 300," in told(opened(at="700", event="300"))
