"""Recordings in the dashboard: what was recorded is a strategy beside ours; device and stream are chosen."""

from __future__ import annotations

import json
import pickle

import pytest
from apptest_support import address, check, figure, open_app, widget

from dashboard import documents, recordings, state
from example_graphs.make_snapshot import SEGMENT, Allocator, stack
from memplan_engine import InputError, Selection

EXAMPLE = "example:cuda_snapshot"


@pytest.fixture(autouse=True)
def _own_uploads(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_store", lambda: tmp_path / "uploads")
    monkeypatch.setattr("sys.argv", ["app.py"])


def upload(app, name, content):
    app.file_uploader[0].upload(name, content)
    return check(app.run())


def two_devices():
    one, two = Allocator(), Allocator(device=1)
    one.alloc(1000, stack(1), stream=3)
    one.alloc(9000, stack(2))
    two.alloc(SEGMENT // 2, stack(4))
    value = two.snapshot()
    value["segments"] += one.snapshot()["segments"]
    value["device_traces"][0] = one.events
    return pickle.dumps(value)


def test_the_recorded_placement_is_a_strategy_beside_ours():
    app = open_app(doc=EXAMPLE)
    picked = widget(app.selectbox, "Strategy")
    assert (picked.value, picked.options[:2]) == ("imported", ["recorded", "auto"])
    assert widget(app.selectbox, "Colour by").value == "op kind"
    assert figure(app, "Arena") == "1.4 GiB"
    assert figure(app, "Lower bound") == "1.35 GiB"
    picked.set_value("greedy_by_size")
    check(app.run())
    assert figure(app, "Arena") == "1.35 GiB"


def test_compare_puts_what_was_recorded_first():
    app = open_app("compare", doc=EXAMPLE)
    shown = widget(app.multiselect, "Strategies, two to four")
    assert shown.value[:2] == ["imported", "auto"]
    assert "recorded" in shown.options
    assert "recorded" in app.dataframe[0].value["strategy"].tolist()


def test_import_takes_a_snapshot_and_a_part_of_it():
    app = upload(open_app("import"), "two.pickle", two_devices())
    assert (figure(app, "recognised as"), figure(app, "brings a plan")) == ("pickle", "recorded")
    part = widget(app.selectbox, "Part of the recording")
    assert part.options == [
        "the device with the most bytes, all streams",
        "device 0: 4 events, 4 MiB reserved",
        "device 0, stream 0",
        "device 0, stream 3",
        "device 1: 2 events, 2 MiB reserved",
    ]
    assert figure(app, "buffers") == "2"
    part.set_value("device=0,stream=3")
    check(app.run())
    assert figure(app, "buffers") == "1"
    app.button[0].click()
    check(app.run())
    assert address(app)["part"] == "device=0,stream=3"
    assert figure(app, "Lower bound") == "1000 B"
    key = address(app)["doc"]
    assert open_app(doc=key, part="device=1").metric[0].value == "1 MiB"


@pytest.mark.parametrize("part", ["device=9", "device=0,stream=99", "nonsense", "device=<b>"])
def test_a_part_that_is_not_there_is_told_and_the_whole_is_shown(part):
    app = open_app(doc=EXAMPLE, part=part)
    assert len(app.error) == 1
    assert figure(app, "Arena") == "1.4 GiB"
    assert "part" not in address(app)


def test_a_trace_is_a_recording_and_a_timeline_a_list_of_buffers(tmp_path):
    said = {"Bytes": 512, "Addr": 4096, "Device Type": 0, "Device Id": -1}
    memory = {"name": "[memory]", "ts": 1, "tid": 1, "args": said}
    trace = json.dumps({"schemaVersion": 1, "traceEvents": [memory]}).encode()
    app = upload(open_app("import"), "trace.json", trace)
    assert (figure(app, "recognised as"), figure(app, "brings a plan")) == ("profiler", "recorded")
    assert "Part of the recording" not in [each.label for each in app.selectbox]
    app = upload(open_app("import"), "line.json", b"[[1], [[0, 1, 2, 3, 4, 5, 6, 7, 8]]]")
    assert (figure(app, "recognised as"), figure(app, "buffers")) == ("profiler", "8")


def test_a_pickle_that_calls_something_is_refused_and_not_kept():
    app = upload(open_app("import"), "evil.pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    assert "the global os.system" in app.error[0].value.replace("\\", "")
    assert not [key for key in documents.catalogue() if key.startswith("upload:")]


def test_parts_as_text_and_back():
    for selection in (Selection(0), Selection(-1), Selection(3, 7)):
        assert (
            recordings.parse_part(recordings.part_text(selection.device, selection.stream), "x") == selection
        )
    assert recordings.parse_part("", "x") == Selection()
    with pytest.raises(InputError, match=r"x: part: found 'stream=1', expected device=0"):
        recordings.parse_part("stream=1", "x")
    assert state.PARAMETERS["part"] == ""
