"""Recordings in the dashboard: what was recorded is a strategy beside ours; device and stream are chosen."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from memplan_dashboard.charts import arena_seconds, call_flame, reserved_over_time
from memplan_dashboard.session import documents, plan_facts, state, uploads
from memplan_dashboard.views.inspect.memory_tabs import reserved_curve
from memplan_dashboard.widgets.plan_panels import make_panel
from memplan_examples.make_snapshot import SEGMENT, Allocator, stack

from memplan_engine import InputError, Selection, load_recording
from memplan_engine.callers import Frame
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.recordings.cost import OverTime, memory_over_time, thinned
from memplan_engine.recordings.flame import Call, calls_at
from tests.support.apptest import address, check, chips_of, figure, open_app, said, widget

EXAMPLE = "example:cuda_snapshot"


def open_now(app):
    (told,) = [each for each in said(app.caption) if each.startswith("Open now")]
    return told


@pytest.fixture(autouse=True)
def _own_uploads(tmp_path, monkeypatch):
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


def story(app):
    """The headline above the chart, and what stands below it."""
    return app.subheader[0].value.replace("\\", ""), app.caption[0].value.replace("\\", "")


def test_a_recording_opens_on_its_story():
    app = open_app(doc=EXAMPLE)
    headline, told = story(app)
    assert headline == (
        "Out of memory at step 1,952: 24 MiB (25,165,824 B) requested by train.py:42 mlp; "
        "enough bytes were unused, but not contiguous: fragmentation."
    )
    assert told == (
        "1.35 GiB live, 1.4 GiB reserved, 47 MiB of it unused, 20 MiB free on the device. "
        "Most of it is held by train.py:15 step: 324 MiB, 23.4 % in 48 buffers."
    )
    lines = app.dataframe[0].value
    assert lines["allocated by"][0] == "train.py:15 step"
    assert lines["bytes"].sum() == 1_450_180_608
    moments = app.button_group(key="moment_widget")
    assert moments.options == [
        "out of memory, step 1,952",
        "peak live, step 1,951",
        "peak reserved, step 1,950",
    ]
    moments.set_value("reserved")
    check(app.run())
    assert story(app)[0].startswith("1.33 GiB live at step 1,950; most of it is held by train.py:15 step")
    assert (address(app)["moment"], address(app)["at"]) == ("reserved", "1950")


def test_a_step_that_is_marked_is_a_moment_of_the_story():
    app = open_app(doc=EXAMPLE, at="700", moment="peak")
    moments = app.button_group(key="moment_widget")
    assert (moments.value, moments.options[-1]) == ("marked", "marked, step 700")
    assert story(app)[0].startswith("406.12 MiB live at step 700; most")
    # The failure is what is told where nothing is marked.
    moments.set_value("1952")
    check(app.run())
    assert not {"at", "moment"} & set(address(app))
    assert story(app)[0].startswith("Out of memory at step 1,952")
    # A link of before that has the moment alone: the files and the table are of its step.
    old = open_app(doc=EXAMPLE, moment="reserved", tab="Live buffers")
    assert any(each.startswith("1.33 GiB live at step 1,950.") for each in said(old.caption))
    # Two steps give the difference.
    told = story(open_app(doc=EXAMPLE, at="700,1200"))[0]
    assert told.startswith("Step 1,200 holds 477.56 MiB more than step 700")


def test_a_line_shows_its_whole_stack_and_so_does_the_request_that_failed():
    app = open_app(doc=EXAMPLE, line="train.py:43 mlp")
    (asked, clicked) = (each.value.splitlines() for each in app.code)
    assert (asked[0], asked[-1]) == ("??:0 torch::unwind::unwind()", "/home/me/train.py:88 <module>")
    assert "/home/me/train.py:42 mlp" in asked
    assert "/home/me/train.py:43 mlp" in clicked
    for elsewhere in ({"line": "nobody.py:1 nothing"}, {}):
        assert len(open_app(doc=EXAMPLE, **elsewhere).code) == 1
    assert not open_app(doc=EXAMPLE, moment="peak").code


def test_only_recordings_have_a_story():
    app = open_app(doc="example:teaching_best_fit")
    assert not [each for each in app.button_group if each.key == "moment_widget"]


def test_the_story_stays_what_was_recorded_when_another_plan_is_shown():
    app = open_app(doc=EXAMPLE, strategy="greedy_by_size", moment="nonsense")
    assert story(app)[0].startswith("Out of memory at step 1,952")


def test_the_flame_view_is_as_wide_as_what_is_live():
    document = state.load_document(EXAMPLE, documents.Options())
    calls = calls_at(document.problem, 1952)
    boxes = call_flame.data(calls, 1_450_180_608)
    assert (boxes[0].label, boxes[0].nbytes) == ("live 1.35 GiB", 1_450_180_608)
    assert (boxes[1].label, boxes[1].parent, boxes[1].nbytes) == ("train.py:88 <module>", 0, 1_450_180_608)
    assert boxes[2].told == "324 MiB (339,738,624 B), 23.4 %, 48 buffers"
    drawn = call_flame.figure(boxes).data[0]
    assert drawn.branchvalues == "total"
    # Names are text: Plotly would read a tag in them.
    assert (drawn.labels[1], drawn.parents[1], drawn.ids[1]) == ("train.py:88 &lt;module&gt;", "0", "1")


def test_calls_that_all_have_in_common_take_no_room_but_for_the_last():
    main, train, mlp, norm = (
        Frame(name, "/home/me/train.py", 1) for name in ("main", "train", "mlp", "norm")
    )
    calls = (Call(main, -1, 90, 3), Call(train, 0, 90, 3), Call(mlp, 1, 60, 2), Call(norm, 1, 30, 1))
    boxes = call_flame.data(calls, 100)
    # Of 100 bytes 10 have no stack.
    assert [(box.label, box.parent, box.nbytes) for box in boxes] == [
        ("live 100 B", -1, 100),
        ("train.py:1 train", 0, 90),
        ("train.py:1 mlp", 1, 60),
        ("train.py:1 norm", 1, 30),
    ]
    assert boxes[0].where == "all that is live, within 1 outer call that all share"
    # With a second outermost call nothing is shared.
    beside = (Call(main, -1, 60, 2), Call(norm, -1, 30, 1), Call(train, 0, 60, 2))
    assert [box.parent for box in call_flame.data(beside, 90)] == [-1, 0, 0, 1]


def test_the_strip_has_what_was_reserved_whatever_strategy_is_shown():
    document = state.load_document(EXAMPLE, documents.Options())
    curve = reserved_curve(document)
    over = memory_over_time(documents.read_recording(documents.path_of(EXAMPLE), (0, 0), ""))
    # Few enough steps that the curve has all of them.
    assert (curve.steps, curve.reserved) == (tuple(range(len(over.live))), tuple(over.reserved.tolist()))
    facts = plan_facts.facts_of(document, "linear_scan")
    drawn = make_panel(facts, COLOURINGS["size"](document.problem), reserved=curve)
    (line,) = drawn.lines
    assert (line.label, line.dash, line.exact) == ("reserved", (5, 2), False)
    assert (len(line.start), int(line.nbytes.max())) == (2021, 1_499_463_680)
    assert reserved_curve(state.load_document("example:teaching_best_fit", documents.Options())) is None


def test_compare_puts_what_was_recorded_first():
    app = open_app("compare", doc=EXAMPLE)
    shown = widget(app.multiselect, "Strategies, two to four")
    assert shown.value[:2] == ["imported", "auto"]
    assert "recorded" in shown.options
    times = app.dataframe[0].value.set_index("strategy")["ms"]
    # Nobody planned it, so that it has no planning time, and no place on the axis of planning times.
    assert np.isnan(times["recorded"])
    assert times.drop("recorded").min() > 0
    document = state.load_document(EXAMPLE, documents.Options())
    plans = [plan_facts.facts_of(document, name).plan for name in ("imported", "linear_scan")]
    assert [point.strategy for point in arena_seconds.data(plans).points] == ["linear_scan"]


def test_import_takes_a_snapshot_and_a_part_of_it():
    app = upload(open_app("import"), "two.pickle", two_devices())
    app = check(app.switch_page("views/import_file.py").run())
    assert figure(app, "includes a plan") == "recorded"
    assert "Open now: two.pickle, recorded · CUDA memory snapshot" in open_now(app)
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
    app = check(app.switch_page("views/inspect/inspect_page.py").run())
    assert address(app)["part"] == "device=0,stream=3"
    assert figure(app, "Lower bound") == "1000 B"
    key = address(app)["doc"]
    assert figure(open_app(doc=key, part="device=1"), "Arena") == "1 MiB"


@pytest.mark.parametrize("part", ["device=9", "device=0,stream=99", "nonsense", "device=<b>"])
def test_a_part_that_is_not_there_is_told_and_the_whole_is_shown(part):
    app = open_app(doc=EXAMPLE, part=part)
    assert len(app.error) == 1
    assert figure(app, "Arena") == "1.4 GiB"
    assert "part" not in address(app)


def test_a_trace_is_a_recording_and_a_timeline_a_list_of_buffers(tmp_path):
    told = {"Bytes": 512, "Addr": 4096, "Device Type": 0, "Device Id": -1}
    memory = {"name": "[memory]", "ts": 1, "tid": 1, "args": told}
    trace = json.dumps({"schemaVersion": 1, "traceEvents": [memory]}).encode()
    app = upload(open_app("import"), "trace.json", trace)
    app = check(app.switch_page("views/import_file.py").run())
    assert figure(app, "includes a plan") == "recorded"
    assert "recorded · PyTorch profiler trace with memory events" in open_now(app)
    assert "Part of the recording" not in [each.label for each in app.selectbox]
    app = upload(open_app("import"), "line.json", b"[[1], [[0, 1, 2, 3, 4, 5, 6, 7, 8]]]")
    app = check(app.switch_page("views/import_file.py").run())
    assert figure(app, "buffers") == "8"
    assert "auto · PyTorch profiler trace" in open_now(app)


def test_a_pickle_that_calls_something_is_refused_and_not_kept():
    app = upload(open_app("import"), "evil.pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    assert "the global os.system" in app.error[0].value.replace("\\", "")
    assert not [key for key in documents.catalogue() if key.startswith("upload:")]


def test_parts_as_text_and_back():
    for selection in (Selection(0), Selection(-1), Selection(3, 7)):
        assert documents.parse_part(documents.part_text(selection.device, selection.stream), "x") == selection
    assert documents.parse_part("", "x") == Selection()
    with pytest.raises(InputError, match=r"x: part: found 'stream=1', expected device=0"):
        documents.parse_part("stream=1", "x")
    assert state.PARAMETERS["part"] == ""


def pools():
    """One device, a common pool and a private one: a snapshot, and what its events do."""
    allocator = Allocator()
    kept = allocator.alloc(1000, stack(1))
    allocator.alloc(SEGMENT, stack(2), pool=(0, 1))
    allocator.free(kept)
    allocator.empty_cache()
    return pickle.dumps(allocator.snapshot())


def test_a_private_pool_is_chosen_on_inspect_and_kept_in_the_address():
    key, _ = uploads.keep("pools.pickle", pools())
    app = open_app(doc=key)
    part = widget(app.selectbox, "Part of the recording")
    assert part.options == [
        "the device with the most bytes, all streams",
        "device 0: 7 events, 4 MiB reserved",
        "device 0, the default pool",
        "device 0, private pool 0:1",
    ]
    part.set_value("device=0,pool=0:1")
    check(app.run())
    assert address(app)["part"] == "device=0,pool=0:1"
    assert figure(app, "Lower bound") == "2 MiB"
    app = open_app(doc=key, part="device=0,stream=0,pool=0:0")
    assert (figure(app, "Lower bound"), widget(app.selectbox, "Part of the recording").value) == (
        "1000 B",
        "device=0,stream=0,pool=0:0",
    )
    app = open_app(doc=key, part="device=0,pool=9:9")
    assert "found pool 9:9, expected what has events" in app.error[0].value.replace("\\", "")


def test_reserved_bytes_over_time_have_a_tab():
    key, _ = uploads.keep("pools.pickle", pools())
    app = open_app(doc=key, tab="Reserved")
    told = [each.value.replace("\\", "") for each in app.caption]
    (said,) = [each for each in told if each.startswith("peak reserved")]
    assert said == "peak reserved 4 MiB at step 3, peak live 2 MiB at step 4; fragmentation 2 MiB, 50.0 %"
    over = memory_over_time(load_recording(documents.path_of(key)).recordings[0])
    curve = reserved_over_time.data(over)
    assert curve.live == (0, 0, 1000, 1000, SEGMENT + 1000, SEGMENT + 1000, SEGMENT, SEGMENT)
    assert curve.reserved == (
        0,
        SEGMENT,
        SEGMENT,
        2 * SEGMENT,
        2 * SEGMENT,
        2 * SEGMENT,
        2 * SEGMENT,
        SEGMENT,
    )
    assert (curve.end, curve.failures) == (8, ())
    live, reserved = reserved_over_time.figure(curve).data
    assert (live.name, reserved.name, live.line.shape) == ("live", "reserved", "hv")
    assert (len(live.x), live.x[-1], reserved.customdata[3]) == (9, 8, "4 MiB")
    assert "Reserved" not in [each.label for each in open_app(doc="example:teaching_best_fit").tabs]


def test_the_curve_is_thinned_to_the_most_of_each_stretch():
    over = OverTime(np.arange(10), np.arange(10) + 5, (3,), True)
    begin, live, reserved = thinned(over, 3)
    assert (begin.tolist(), live.tolist(), reserved.tolist()) == ([0, 3, 6], [2, 5, 9], [7, 10, 14])


def test_the_story_of_a_part_of_a_run_says_what_it_is():
    allocator = Allocator()
    allocator.alloc(1000, stack(1))
    allocator.free(allocator.alloc(SEGMENT, stack(2)))
    value = allocator.snapshot() | {"trace_alloc_overflowed": [True]}
    key, _ = uploads.keep("part.pickle", pickle.dumps(value))
    app = open_app(doc=key, tab="Reserved")
    assert app.button_group(key="moment_widget").options == [
        "most recorded live, step 4",
        "most recorded reserved, step 3",
    ]
    told = (
        "at least reserved 4 MiB at step 3, at least live 2 MiB at step 4; a part of a run: its ring of "
        "events overflowed, and the oldest are lost"
    )
    assert told in story(app)[1].replace("At least", "at least")
    assert told in [each.value.replace("\\", "") for each in app.caption]


def test_the_pages_call_no_step_of_a_part_of_a_run_its_peak():
    allocator = Allocator()
    allocator.alloc(SEGMENT)
    allocator.free(allocator.alloc(20 * SEGMENT))
    for _ in range(10):
        allocator.free(allocator.alloc(3 * SEGMENT))
    app = upload(open_app("import"), "part.pickle", pickle.dumps(allocator.snapshot(30)))
    app = open_app(doc=address(app)["doc"], strategy="greedy_by_size")
    chips = chips_of(app)
    assert chips[0] == "Part of a run"
    assert "10 steps tie for the recorded maximum" in chips
    assert not [chip for chip in chips if "peak" in chip.replace("at peak", "") or "ptimal" in chip]
