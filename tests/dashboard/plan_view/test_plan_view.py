"""The Python side of the rectangle chart: what travels, what is refused, whose selection counts."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from memplan_dashboard.plan_view import Panel, component, packing
from memplan_dashboard.plan_view.component import (
    FEED_MODULES,
    FRONTEND,
    MODULES,
    _Selection,
    feed_script,
    plan_view,
    script,
    styles,
)
from memplan_dashboard.replay_view import component as replay_component

from memplan_engine.plotting.bundling import CHART_MODULES, bundle
from memplan_engine.plotting.columns import Columns
from memplan_engine.plotting.strip_lines import StripLine
from memplan_engine.reporters.html import report_html
from tests import ROOT

TYPES = {"u1": np.uint8, "i4": np.int32, "u4": np.uint32, "f8": np.float64}


def panel(**changes):
    values = {
        "title": "plan",
        "subtitle": "30 B",
        "start": np.array([0, 1, 2]),
        "end": np.array([2, 3, 4]),
        "offset": np.array([0, 64, 0]),
        "size": np.array([64, 128, 192]),
        "color": np.array([0, 1, 1], np.uint8),
        "names": ["a", "ü", "<b>"],
        "arena": 192,
        "bound": 192,
        "peak_step": 1,
        "steps": 4,
        "profile_start": np.array([0, 1, 2, 3]),
        "profile_live": np.array([64, 192, 320, 192]),
        "profile_high": np.array([64, 192, 192, 192]),
    }
    return Panel(**(values | changes))


def unpack(raw):
    """(header, column reader) of a message, as the browser reads it."""
    length = int.from_bytes(raw[:4], "little")
    assert length % 8 == 0
    header = json.loads(raw[8 : 8 + length])

    def column(entry):
        code, at, count, unit = entry
        assert at % 8 == 0
        return np.frombuffer(raw, TYPES[code], count, 8 + length + at).astype(object) * unit

    return header, column


def texts(header_entry, column, raw_text):
    ends = [0, *column(header_entry["ends"])]
    return [raw_text[a:b].decode() for a, b in pairwise(ends)]


def test_columns_come_back_exactly():
    header, column = unpack(packing.pack([panel(capacity=500)], {"key": "k"}))
    (one,) = header["panels"]
    assert header["key"] == "k"
    assert column(one["start"]).tolist() == [0, 1, 2]
    assert column(one["end"]).tolist() == [2, 3, 4]
    assert column(one["offset"]).tolist() == [0, 64, 0]
    assert column(one["size"]).tolist() == [64, 128, 192]
    assert column(one["color"]).tolist() == [0, 1, 1]
    assert column(one["profileLive"]).tolist() == [64, 192, 320, 192]
    assert (one["capacity"], one["peakStep"], one["steps"]) == (500, 1, 4)
    assert one["dimmed"] is None
    assert one["owner"] is None
    assert one["stepLabels"] is None


def test_lines_on_the_strip_travel_as_steps_and_bytes():
    held = StripLine("with temporaries", np.array([0, 1, 2]), np.array([7, 9, 7]))
    reserved = StripLine(
        "reserved", np.array([0, 3]), np.array([512, 2**40]), ("#000001", "#000002"), (5, 2), exact=False
    )
    header, column = unpack(packing.pack([panel(lines=(held, reserved)), panel()], {}))
    lines = header["panels"][0]["lines"]
    assert [(line["label"], line["exact"]) for line in lines] == [
        ("with temporaries", True),
        ("reserved", False),
    ]
    assert [(line["colors"], line["dash"]) for line in lines] == [
        (["#6b2fa3", "#e3b5ff"], []),
        (["#000001", "#000002"], [5, 2]),
    ]
    assert [column(line["start"]).tolist() for line in lines] == [[0, 1, 2], [0, 3]]
    assert [column(line["bytes"]).tolist() for line in lines] == [[7, 9, 7], [512, 2**40]]
    assert header["panels"][1]["lines"] == []
    with pytest.raises(ValueError, match="nbytes has not the 2 rows of start"):
        StripLine("reserved", np.array([0, 3]), np.array([1]))


def test_names_and_step_labels_travel_as_utf8():
    header, column = unpack(packing.pack([panel(step_labels=["x", "", "yy", "z"])], {}))
    (one,) = header["panels"]
    name_bytes = bytes(column(one["names"]["text"]).tolist())
    assert texts(one["names"], column, name_bytes) == ["a", "ü", "<b>"]
    label_bytes = bytes(column(one["stepLabels"]["text"]).tolist())
    assert texts(one["stepLabels"], column, label_bytes) == ["x", "", "yy", "z"]


@pytest.mark.parametrize(
    ("values", "dtype", "unit"),
    [
        ([0, 64, 192], np.uint32, 64),
        ([3, 64], np.uint32, 1),
        ([0, 0], np.uint32, 1),
        ([], np.uint32, 1),
        ([2**40, 3 * 2**40], np.uint32, 2**40),
        ([2**32 - 1], np.uint32, 1),
        ([2**32 + 1], np.float64, 1),
        ([64, 64 * (2**33 + 1)], np.float64, 64),
    ],
)
def test_bytes_travel_in_the_largest_common_unit(values, dtype, unit):
    columns = Columns()
    code, at, length, told = columns.add_bytes(np.array(values, np.int64))
    assert (TYPES[code], told) == (dtype, unit)
    column = np.frombuffer(b"".join(columns.chunks), TYPES[code], length, at)
    assert [int(value) * unit for value in column] == values


def test_steps_past_32_bits_travel_as_float64():
    assert Columns().add_steps(np.array([0, 2**32]))[0] == "f8"
    assert Columns().add_steps(np.array([0, 2**32 - 1]))[0] == "u4"


def test_equal_columns_are_sent_once():
    alone = len(packing.pack([panel()], {}))
    same, _ = unpack(packing.pack([panel(), panel(title="other")], {}))
    moved = panel(offset=np.array([0, 64, 320]))
    both, column = unpack(packing.pack([panel(), moved], {}))
    assert same["panels"][0]["size"] == same["panels"][1]["size"]
    assert both["panels"][0]["offset"] != both["panels"][1]["offset"]
    assert column(both["panels"][1]["offset"]).tolist() == [0, 64, 320]
    header_of_one = len(json.dumps(same["panels"][0])) + 64
    assert len(packing.pack([panel(), panel(title="other")], {})) < alone + header_of_one


def test_only_the_largest_names_travel_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(packing, "NAMES_FOR_ALL", 2)
    monkeypatch.setattr(packing, "NAMES_BY_AREA", 2)
    header, column = unpack(packing.pack([panel()], {}))
    names = header["panels"][0]["names"]
    assert column(names["ids"]).tolist() == [1, 2]
    assert texts(names, column, bytes(column(names["text"]).tolist())) == ["ü", "<b>"]


def test_area_is_summed_over_the_pieces_of_a_buffer():
    pieces = panel(owner=np.array([1, 0, 1], np.int32), size=np.array([64, 100, 64]))
    assert packing.largest(pieces, 1).tolist() == [1]


def test_dimmed_and_owner_travel_when_given():
    dimmed, owner = np.array([True, False, True]), np.array([1, 0, 1], np.int32)
    header, column = unpack(packing.pack([panel(dimmed=dimmed, owner=owner)], {}))
    assert column(header["panels"][0]["dimmed"]).tolist() == [1, 0, 1]
    assert column(header["panels"][0]["owner"]).tolist() == [1, 0, 1]


def test_nothing_at_all_can_be_packed():
    none = np.array([], np.int64)
    empty = dict.fromkeys(("start", "end", "offset", "size", "color"), none)
    profile = dict.fromkeys(("profile_start", "profile_live", "profile_high"), none)
    header, column = unpack(packing.pack([panel(**empty, **profile, names=[], steps=0)], {}))
    assert column(header["panels"][0]["offset"]).tolist() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"end": np.array([1])}, "end has 1 rows, start has 3"),
        ({"owner": np.array([0], np.int32)}, "owner has 1 rows"),
        ({"profile_high": np.array([1])}, "profile_high has not the 4 rows"),
        ({"names": ["a"]}, "1 names for 3 buffers"),
        ({"step_labels": ["a"]}, "1 step labels, 4 steps"),
        ({"color": np.array([0, 0, 200], np.uint8)}, "color 200 is past 127"),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        panel(**changes)


@pytest.mark.parametrize(("count", "legend"), [(0, 0), (5, 0), (1, 7)])
def test_the_wrong_number_of_panels_or_colours_is_refused(count, legend):
    colours = {"palette": [("#000", "#fff")] * 2, "legend": [("x", legend)]}
    with pytest.raises(ValueError, match=r"can be drawn|outside the palette"):
        plan_view([panel()] * count, **colours, selected=None, key="k")


def click(selection, index):
    """What the browser would report now."""
    selection.clicked({"index": index, "serial": selection.serial})


def test_a_click_stands_until_the_page_sets_another_selection():
    selection = _Selection(None, None, None)
    selection.offer(None, remounted=False)
    click(selection, 5)
    for given in (None, 5, 5):
        selection.offer(given, remounted=False)
        assert (selection.current, selection.serial) == (5, 0)
    selection.offer(2, remounted=False)
    assert (selection.current, selection.pushed, selection.serial) == (2, 2, 1)


def test_a_click_from_before_the_page_spoke_is_ignored():
    selection = _Selection(None, None, None)
    selection.offer(7, remounted=False)
    selection.clicked({"index": 3, "serial": 0})
    assert selection.current == 7
    selection.clicked({"index": None, "serial": 1})
    assert selection.current is None


@pytest.mark.parametrize("report", [None, "x", {}, {"index": "1", "serial": 9}])
def test_reports_that_make_no_sense_are_ignored(report):
    selection = _Selection(1, 1, 1)
    selection.clicked(report)
    assert selection.current == 1


def test_a_chart_that_is_put_up_again_is_told_the_selection():
    selection = _Selection(None, None, None)
    click(selection, 5)
    selection.offer(None, remounted=True)
    assert (selection.pushed, selection.current, selection.serial) == (5, 5, 1)


def test_the_script_holds_every_module_and_no_relative_import():
    assert sorted({*MODULES, *FEED_MODULES}) == sorted(
        path.name for path in FRONTEND.glob("*.js") if path.name != "notebook.js"
    )
    called = {
        script(): "show({ data, parentElement, setStateValue, setTriggerValue })",
        feed_script(): "hand({ data, setStateValue })",
    }
    for text, expected in called.items():
        assert not re.search(r"^\s*import\b", text, re.MULTILINE)
        assert re.findall(r"^export .*", text, re.MULTILINE) == [f"export default function {expected} {{"]
        tops = re.findall(r"^(?:async )?(?:function|const|class|let) (\w+)", text, re.MULTILINE)
        assert len(tops) == len(set(tops))


@pytest.mark.parametrize("module", CHART_MODULES, ids=lambda path: path.name)
def test_report_page_and_replay_share_one_module_for_what_all_charts_have(module):
    """Bytes, ticks and contrast; scales, axes, levels and the strip."""
    functions = re.findall(r"^function \w+\(", bundle([module]), re.MULTILINE)
    assert functions
    for text in (script(), replay_component.script(), report_html._script()):
        assert [text.count(f"\n{each}") for each in functions] == [1] * len(functions)
    own = "|".join(each.removeprefix("function ")[:-1] for each in functions)
    for path in ROOT.glob("*/**/*.js"):
        if path != module:
            assert not re.search(rf"^(?:export )?function (?:{own})\(", path.read_text(), re.MULTILINE), path


def test_no_text_can_become_markup():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", script())


def test_every_module_is_small():
    names = (*MODULES, *FEED_MODULES)
    assert all(len((FRONTEND / name).read_text().splitlines()) <= 250 for name in names)
    assert ".plan-view" in styles()


def test_a_panel_is_a_value():
    with pytest.raises(AttributeError):
        panel().title = "other"
    assert replace(panel(), title="other").title == "other"
    assert component.MAX_PANELS == 4


def test_a_page_that_passes_back_what_it_got_does_not_undo_a_click():
    selection = _Selection(given=None, pushed=None, current=None)
    selection.offer(1, remounted=False)
    selection.clicked({"serial": selection.serial, "index": None})
    selection.offer(1, remounted=False)
    assert selection.current is None
    selection.clicked({"serial": selection.serial, "index": 2})
    selection.offer(None, remounted=False)
    assert selection.current == 2


def test_a_page_can_take_back_what_it_selected():
    selection = _Selection(given=None, pushed=None, current=None)
    selection.offer(1, remounted=False)
    selection.offer(None, remounted=False)
    assert selection.current is None
