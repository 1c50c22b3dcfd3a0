"""The tab Allocator of Inspect: three answers, segments, other settings, and errors beside the choices."""

from __future__ import annotations

import itertools
import pickle

import pytest
from memplan_dashboard.charts import reserved_over_time, segment_bars
from memplan_dashboard.session import uploads
from memplan_dashboard.views.inspect.allocator_tab import NO_DEVICE
from memplan_examples.make_snapshot import SEGMENT, Allocator

from memplan_engine.accelerators.presets import accelerator
from memplan_engine.allocator.answers import three_answers
from memplan_engine.allocator.segments import segments_at
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.files import load_recording
from memplan_engine.formats.memplan_json.observation_file import observation_bytes
from memplan_engine.reporters.allocator.answer_tables import settings_columns
from memplan_engine.units import format_signed
from tests import ROOT
from tests.allocator.test_answers import observed_step
from tests.support.apptest import address, advised, open_app

EXAMPLE = ROOT / "example_graphs" / "cuda_snapshot.pickle"


def opened(**choices: str):
    return open_app(doc="example:cuda_snapshot", tab="Allocator", **choices)


def metrics(app) -> dict[str, str]:
    return {each.label: each.value for each in app.metric}


def test_without_a_device_there_are_two_answers():
    app = opened()
    assert not app.exception
    said = metrics(app)
    assert (said["Live"], said["Reserved"]) == ("1.35 GiB", "1.42 GiB")
    assert "Device total" not in said
    assert app.selectbox(key="gpu_widget").value == NO_DEVICE
    assert not app.success


def test_a_device_makes_three_answers_and_a_verdict():
    app = opened(gpu="h100-80", headroom="2GiB")
    assert metrics(app)["Device total"] == "1.71 GiB to 2.49 GiB"
    (verdict,) = [each.value for each in app.success]
    assert verdict.replace("\\", "").startswith("h100-80: fits")


def test_rules_alone_are_never_green():
    app = opened(gpu="h100-80", settings="expandable_segments:True")
    assert not app.success
    assert any("rules only" in each.value for each in app.info)


def test_what_does_not_fit_has_the_message_of_torch():
    app = opened(gpu="rtx4090", headroom="23GiB")
    assert any("does not fit" in each.value for each in app.error)
    assert any(each.value.startswith("CUDA out of memory. Tried to allocate") for each in app.code)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"settings": "max_split:3"}, "max_split"),
        ({"settings": "max_split_size_mb:3"}, "at least 20"),
        ({"headroom": "many"}, "headroom"),
    ],
)
def test_what_is_none_is_said_below_the_choices(choices: dict[str, str], says: str):
    app = opened(**choices)
    assert not app.exception
    assert any(says in each.value.replace("\\", "") for each in app.error)
    assert "Device total" not in metrics(app)


def test_settings_are_taken_from_the_field():
    app = opened()
    app.text_input(key="settings_widget").set_value("expandable_segments:True").run()
    assert metrics(app)["Reserved"] == "1.39 GiB"


def test_segments_are_drawn_with_what_lies_in_them():
    (found,) = load_recording(EXAMPLE).recordings
    run = simulate_allocator(found)
    segments = segments_at(run, int(run.reserved.argmax()))
    bars = segment_bars.data(segments, found.stacks)
    assert bars.count == len(segments)
    cached, used = segment_bars.figure(bars).data
    assert sum(cached.x) == sum(each.nbytes - each.used for each in bars.segments)
    assert sum(used.x) == sum(each.used for each in bars.segments)
    first = bars.segments[0]
    mine = [(base, x) for base, x, y in zip(used.base, used.x, used.y, strict=True) if y == "1"]
    assert sorted(mine) == [(block.offset, block.nbytes) for block in first.blocks]


def test_live_active_reserved_and_fragmentation_are_drawn_over_time():
    (found,) = load_recording(EXAMPLE).recordings
    run = simulate_allocator(found)
    traces = {
        trace.name: trace for trace in reserved_over_time.figure(reserved_over_time.simulated(run)).data
    }
    assert list(traces) == ["live", "reserved", "active", "fragmentation"]
    columns = {"live": run.requested, "reserved": run.reserved, "active": run.active}
    columns["fragmentation"] = run.reserved - run.active
    steps = traces["live"].x
    assert len(steps) <= reserved_over_time.MOST_POINTS + 1
    for name, column in columns.items():
        most = [max(column[begin:end]) for begin, end in itertools.pairwise(steps)]
        assert list(traces[name].y) == [*most, most[-1]], name


def test_the_page_and_the_command_line_have_the_same_columns():
    answers = three_answers(load_recording(EXAMPLE).recordings[0], gpu=accelerator("h100-80"))
    columns = settings_columns(answers)
    app = opened(gpu="h100-80")
    (table,) = [each.value for each in app.dataframe if list(each.value.columns) == list(columns)]
    assert table.to_dict("list") == columns
    assert (columns["change"][0], columns["bytes"][0]) == ("", answers.chosen.run.peak_reserved)
    assert all(
        change == format_signed(nbytes - columns["bytes"][0])
        for change, nbytes in zip(columns["change"][1:], columns["bytes"][1:], strict=True)
    )


def test_an_out_of_memory_leads_on_to_the_settings():
    app = advised(open_app(doc="example:cuda_snapshot"))
    app.button(key="try_settings").click().run()
    assert metrics(app)["Reserved"] == "1.39 GiB"
    assert address(app)["settings"] == "expandable_segments:True"


def test_whether_settings_would_have_met_a_recorded_failure_is_said_first():
    app = advised(open_app(doc="example:cuda_snapshot"))
    told = (
        "With expandable_segments:True the request is met (rules only); what would have been asked for after "
        "it is not recorded."
    )
    assert [each.value for each in app.markdown if each.value.replace("\\", "") == told]
    tab = opened()
    (verdict,) = [each.value.replace("\\", "") for each in tab.error]
    assert "does not fit: 24 MiB asked for at step 1,952 cannot be met, as recorded" in verdict
    assert metrics(tab)["Recorded device"] == "1.42 GiB"
    assert [each.value for each in tab.caption if each.value.replace("\\", "") == told]
    assert any(each.value == 'PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"' for each in tab.code)


def test_graphs_that_nobody_recorded_have_no_such_tab():
    app = open_app(doc="example:teaching_best_fit")
    assert "Allocator" not in [each.label for each in app.tabs]


def test_a_predicted_run_has_the_tab_too():
    key, _ = uploads.keep("seen.json", observation_bytes(observed_step()))
    app = open_app(doc=key, tab="Allocator", gpu="a100-40")
    assert not app.exception
    assert (metrics(app)["Live"], metrics(app)["Reserved"]) == ("70 MiB", "70 MiB")


def test_a_part_of_a_run_is_never_green_and_makes_no_claims():
    allocator = Allocator()
    allocator.alloc(SEGMENT)
    key, _ = uploads.keep("still.pickle", pickle.dumps(allocator.snapshot(most_events=0)))
    app = open_app(doc=key, tab="Allocator", gpu="h100-80")
    assert not app.exception
    assert (metrics(app)["Live"], metrics(app)["Reserved"]) == ("2 MiB", "20 MiB")
    assert [each.delta for each in app.metric][:2] == ["at least, of a part of a run", "at least, simulated"]
    assert not app.success
    assert any("undecided (the recording is partial)" in plain_said(each) for each in app.info)
    captions = [plain_said(each) for each in app.caption]
    assert any("this recording is a part of a run: it has no event" in each for each in captions)
    assert not any("fragmentation" in each for each in captions)


def plain_said(element) -> str:
    return element.value.replace("\\", "")
