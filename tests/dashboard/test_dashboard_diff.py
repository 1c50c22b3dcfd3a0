"""The Diff page: figures that add up, what is chosen and shared, what cannot be compared."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.charts import demand_waterfall, profiles_overlaid
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.session import documents, state, uploads
from memplan_dashboard.session.documents import Options
from memplan_dashboard.session.plan_facts import make_facts
from memplan_dashboard.views.diff import diff_sources
from memplan_dashboard.views.diff.diff_columns import (
    BOTH,
    PALETTE,
    PATTERN,
    compare_facts,
    diff_panels,
    difference_strip,
    filters,
    kinds_text,
    parse_kinds,
    toggled,
)

from memplan_engine import Gap, make_plan, make_problem, write_json
from memplan_engine.diffing.regression import CHANGES, Change
from tests.support.apptest import address, check, figure, open_app, widget

PAIR = {"base": "example:diff_kept_view_base", "head": "example:diff_kept_view_head"}
COLUMNS = "id,lower,upper,size\n"
BASE = f"{COLUMNS}kept,0,4,100\nlarger,1,3,200\nsmaller,2,4,300\ngone,0,1,50\nlonger,0,2,70\nboth,1,2,40\n"
HEAD = f"{COLUMNS}fresh,0,1,60\nkept,0,4,100\nlarger,1,3,260\nsmaller,2,4,210\nlonger,0,4,70\nboth,1,4,90\n"


@pytest.fixture(autouse=True)
def _own_uploads(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["app.py"])


def opened(**parameters):
    return open_app("diff", strategy="greedy_by_size", **parameters)


def uploaded(name, text):
    return uploads.keep(name, text.encode())[0]


def compared(base=BASE, head=HEAD):
    facts = []
    for name, text in (("base.csv", base), ("head.csv", head)):
        document = state.load_either(uploaded(name, text))
        facts.append(make_facts(document, make_plan(document.problem, "greedy_by_size")))
    return compare_facts(*facts)


def deltas(app):
    return {each.label: each.delta for each in app.metric}


def test_a_list_of_buffers_is_read_no_second_time(monkeypatch):
    reads = []
    read = documents.read_document
    monkeypatch.setattr(documents, "read_document", lambda *given: reads.append(given) or read(*given))
    key = uploaded("once.csv", f"{COLUMNS}only,0,1,8\n")
    first = state.load_either(key)
    # As a finished plan, which it is not, and as buffers.
    assert len(reads) == 2
    assert state.load_either(key) is first
    assert len(reads) == 2


def test_the_headline_adds_up_and_the_address_stays_empty():
    app = opened()
    assert figure(app, "Arena, base → head") == "16 MiB → 20 MiB"
    assert figure(app, "= Δ demand") == "+4 MiB"
    assert figure(app, "+ Δ packing loss") == "−4 KiB"
    assert (figure(app, "Buffers changed"), figure(app, "Buffers matched")) == ("2", "98.2 %")
    assert deltas(app) == {
        "Arena, base → head": "+4 MiB (+25.0 %)",
        "= Δ demand": "16 MiB → 20 MiB",
        "+ Δ packing loss": "4 KiB → 0 B",
        "Buffers changed": "of 28",
        "Buffers matched": "100.0 % of the bytes",
    }
    verdict, parts = app.markdown[0].value.replace("\\", "").split("\n", 1)
    assert verdict.startswith(
        "#### Peak +4 MiB, 16 MiB → 20 MiB: +8 MiB because relu (make_pairs.py:67) is now returned through "
    )
    assert "- −4 MiB because at the matching step 9 (relu_2) base holds 12 MiB; its own peak" in parts
    assert "- Packing loss −4 KiB, 4 KiB → 0 B: that comes of the placement" in parts
    said = " ".join(each.value.replace("\\", "") for each in app.caption)
    assert "The peak moved: step 1 (relu) in base, step 8 (relu_2) in head." in said
    assert "step 8 (relu_2) of head (20 MiB) beside step 9 (relu_2) of base (12 MiB), the same op" in said
    assert address(app) == {"strategy": "greedy_by_size"}
    widget(app.selectbox, "Strategy").set_value("linear_scan")
    check(app.run())
    assert address(app) == {"strategy": "linear_scan"}
    assert figure(app, "Arena, base → head") == "16 MiB → 24 MiB"
    assert figure(app, "+ Δ packing loss") == "+4 MiB"


def test_two_files_of_the_command_line_are_compared(tmp_path, monkeypatch):
    for name, text in (("before.csv", BASE), ("after.csv", HEAD)):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "before.csv"), str(tmp_path / "after.csv")])
    assert diff_sources.default_keys() == ("file:before.csv", "file:after.csv")
    assert figure(opened(), "= Δ demand") == "+130 B"


def test_the_waterfall_ends_at_the_change_of_the_arena():
    found = compared()
    steps = demand_waterfall.data(found.diff)
    assert [(step.label, step.nbytes, step.is_total) for step in steps] == [
        ("larger tensors", 60, False),
        ("longer lifetimes", 160, False),
        ("smaller tensors", -90, False),
        ("Δ demand", 130, True),
        ("Δ packing loss", found.diff.arena_delta - 130, False),
        ("Δ arena", found.diff.arena_delta, True),
    ]
    drawn = demand_waterfall.figure(steps).data[0]
    assert (list(drawn.x), drawn.measure[3], drawn.text[0]) == ([s.nbytes for s in steps], "total", "+60 B")


def test_both_profiles_are_in_one_chart_with_their_peaks():
    found = compared()
    profiles = profiles_overlaid.data(found.diff, found.explanation)
    assert (profiles.steps, profiles.end) == ((0, 1, 2, 3), 4)
    assert (profiles.base, profiles.head) == ((220, 410, 600, 400), (230, 520, 730, 470))
    assert [(mark.step, mark.nbytes, mark.label) for mark in profiles.marks] == [
        (2, 600, "base's peak 600 B"),
        (2, 730, "head's peak 730 B"),
    ]
    drawn = {trace.name: trace for trace in profiles_overlaid.figure(profiles).data if trace.name}
    assert tuple(drawn["base"].y[:-1]) == profiles.base
    assert tuple(drawn["head"].y[:-1]) == profiles.head
    rings = profiles_overlaid.figure(profiles).data[-1]
    assert tuple(rings.text) == ("base's peak 600 B", "head's peak 730 B")


def test_peaks_that_are_one_point_or_near_have_one_name():
    names = {}
    for head in (BASE, "id,lower,upper,size\na,0,2,104\nb,1,3,100\n"):
        base = "id,lower,upper,size\na,0,2,100\nb,1,3,100\n"
        found = compared(base, base if head == BASE else head)
        marks = profiles_overlaid.data(found.diff, found.explanation).marks
        names[head == BASE] = [(mark.step, mark.nbytes, mark.label) for mark in marks]
    assert names[True] == [(1, 200, "both peak at 200 B")]
    assert names[False] == [(1, 200, ""), (1, 204, "head's peak 204 B, base's 200 B")]


def test_a_bar_that_falls_to_the_axis_has_room_for_its_bytes():
    bar = demand_waterfall.Step
    steps = [bar("new tensors", 10), bar("shorter lifetimes", -10), bar("Δ demand", 0, True)]
    low, _ = demand_waterfall.figure(steps).layout.xaxis.range
    assert low < -2
    rises, _ = demand_waterfall.figure([bar("new tensors", 10)]).layout.xaxis.range
    assert rises == 0


def test_buffers_are_called_by_their_module_first():
    sides = [state.load_either(f"example:diff_batch_{side}") for side in state.SIDES]
    found = compare_facts(*(make_facts(each, make_plan(each.problem, "greedy_by_size")) for each in sides))
    base, head = diff_panels(found, ())
    assert "layer.0.intermediate.dense · linear" in base.names
    assert base.names == head.names


def test_matched_buffers_have_one_number_and_the_colour_of_what_became_of_them():
    found = compared()
    base, head = diff_panels(found, ())
    assert base.owner.tolist() == [1, 2, 3, 6, 4, 5]
    assert head.owner.tolist() == [0, 1, 2, 3, 4, 5]
    assert base.names == ["", "kept", "larger", "smaller", "longer", "both", "gone"]
    assert head.names == ["fresh", "kept", "larger", "smaller", "longer", "both", ""]
    assert (base.buffers, head.buffers, base.dimmed) == (6, 6, None)
    looks = [Change.ONLY_HEAD, Change.SAME, Change.GROWN, Change.SHRUNK, Change.LONGER]
    grown_and_longer = len(CHANGES) + BOTH.index((Change.GROWN, Change.LONGER))
    assert head.color.tolist() == [*(CHANGES.index(change) for change in looks), grown_and_longer]
    assert base.color[3] == CHANGES.index(Change.ONLY_BASE)
    assert PALETTE[grown_and_longer] == PALETTE[CHANGES.index(Change.GROWN)]
    assert PATTERN[grown_and_longer] == sum(
        PATTERN[CHANGES.index(each)] for each in (Change.GROWN, Change.LONGER)
    )
    assert len({PATTERN[CHANGES.index(change)] for change in CHANGES}) == len(CHANGES) - 1
    assert (found.text_of(6), found.parse("base:gone"), found.parse("head:gone")) == ("base:gone", 6, None)
    assert (found.text_of(5), found.rows_of(5), found.rows_of(6)) == ("head:both", (5, 5), (3, None))


def test_switches_fade_what_did_not_change_so():
    found = compared()
    chosen = (Change.LONGER,)
    base, head = diff_panels(found, chosen)
    assert head.dimmed.tolist() == [True, True, True, True, False, False]
    assert base.dimmed.tolist() == [True, True, True, True, False, False]
    switches = {each.label: (each.count, each.on) for each in filters(found, chosen)}
    assert switches["longer-lived"] == (2, True)
    assert switches["grown"] == (2, False)
    assert toggled(chosen, "grown") == (Change.GROWN, Change.LONGER)
    assert toggled(chosen, "longer-lived") == ()
    assert parse_kinds("longer, nonsense,GROWN") == (Change.GROWN, Change.LONGER)
    assert kinds_text((Change.ONLY_HEAD, Change.SAME)) == "only_head,same"


def test_the_strip_has_both_sides_on_the_steps_of_the_head():
    found = compared()
    strip = difference_strip(found)
    assert strip.bounds.tolist() == [0, 1, 2, 3, 4]
    assert (strip.head - strip.base).tolist() == [10, 110, 130, 70]
    packed = pack(diff_panels(found, ()), {}, strip)
    header = json.loads(packed[8 : 8 + int.from_bytes(packed[:4], "little")])
    assert header["difference"]["peakStep"] == 2
    assert [panel["buffers"] for panel in header["panels"]] == [6, 6]
    with pytest.raises(ValueError, match="5 bounds, 3 and 4 values"):
        type(strip)("", strip.bounds, strip.base[:3], strip.head, 0, 0, 0)


def test_an_example_pair_is_one_click():
    app = opened()
    pair = app.button_group(key="pair_widget")
    assert pair.value == "kept_view"
    pair.set_value("batch")
    check(app.run())
    assert figure(app, "Arena, base → head") == "27 MiB → 54 MiB"
    assert address(app)["head"] == "example:diff_batch_head"
    widget(app.selectbox, "Head (after)").set_value("example:diff_batch_base")
    check(app.run())
    assert app.markdown[0].value.replace("\\", "").startswith("#### Nothing changed: the peak is 27 MiB")
    assert app.button_group(key="pair_widget").value is None


def test_base_and_head_change_places():
    app = opened(changed="head:relu", kinds="longer", **PAIR)
    app.button(key="swap").click()
    check(app.run())
    assert figure(app, "Arena, base → head") == "20 MiB → 16 MiB"
    assert address(app) == {
        "strategy": "greedy_by_size",
        "base": PAIR["head"],
        "head": PAIR["base"],
    }


def test_the_address_opens_selection_switches_and_tab():
    app = opened(changed="head:relu", kinds="longer", tab="Changed buffers")
    rows = app.dataframe[0].value
    assert rows["buffer"].tolist() == ["relu"]
    assert rows[["what", "base", "head", "adds to Δ demand", "lifetime"]].iloc[0].tolist() == [
        "longer-lived",
        "8 MiB",
        "8 MiB",
        8 * 2**20,
        "1–6 → 1–29",
    ]
    assert re.fullmatch(r"example_graphs/make_pairs.py:\d+", rows["source"][0])
    texts = [each.value for each in app.text]
    lifetimes = {"steps 1 to 6, 6 in all (relu … conv2d_1)", "steps 1 to 29, 29 in all (relu … conv2d_10)"}
    assert {"base: relu", "head: relu", *lifetimes} <= set(texts)


def test_the_peak_is_grouped_by_module_with_source_lines():
    app = opened(base="example:diff_attention_base", head="example:diff_attention_head")
    rows = app.dataframe[0].value
    first = rows.iloc[0]
    assert (first["module and buffer"], first["change"]) == ("▸ transformer.h.0.attn (3 buffers)", "+93 MiB")
    part = rows.iloc[1]
    assert (part["module and buffer"].strip(), part["why"]) == ("matmul", "new tensors")
    assert re.fullmatch(r"transformers/models/gpt2/modeling_gpt2.py:\d+", part["source"])
    of_modules = rows["module and buffer"].str.startswith("▸")
    for part_of_it in (of_modules, ~of_modules):
        # 112 MiB beside 15 MiB: all rows together are what the moment holds.
        assert rows[part_of_it]["change, bytes"].sum() == 97 * 2**20


def test_comment_and_json_say_the_same():
    app = opened(tab="Comment and JSON")
    assert app.code[0].value.startswith("### Memory: arena +4 MiB")
    found = compared()
    written = json.loads(diff_sources.json_of(found))
    assert written["demand_delta_bytes"] == 130
    assert found.markdown.startswith("### Memory: arena +130 B")


def test_nonsense_in_the_address_is_explained_beside_the_box():
    app = opened(head="example:<b>nothing</b>", changed="head:nobody", kinds="loud", tab="?")
    assert [each.value.replace("\\", "") for each in app.error] == [
        "example:<b>nothing</b>: no such file, expected one of those in the list, or a new upload"
    ]
    assert figure(app, "Arena, base → head") == "16 MiB → 20 MiB"
    assert "example:<b>" not in address(app).get("head", "")
    check(app.run())
    assert not app.error


def test_different_models_are_called_so_with_the_share():
    app = opened(head="example:mobilenet_v2")
    assert re.search(
        r"two different models: only [\d.]+ % of the buffers", app.warning[0].value.replace("\\", "")
    )


def test_uploads_are_compared_or_refused_beside_their_box():
    app = opened()
    for side, text in enumerate((BASE, HEAD)):
        app.file_uploader[side].upload(f"{side}.csv", text.encode())
        check(app.run())
    assert figure(app, "= Δ demand") == "+130 B"
    good = address(app)
    app.file_uploader[1].upload("bad.csv", b"id,lower,upper,size\na,3,1,10\n")
    check(app.run())
    assert all("bad.csv" in each.value.replace("\\", "") for each in app.error)
    assert len(app.error) == 2
    assert address(app) == good


def test_a_list_with_all_its_offsets_is_a_finished_plan():
    plan = "id,lower,upper,size,offset\na,0,4,10,0\nb,1,3,20,30\n"
    app = open_app(
        "diff", base=uploaded("plan.csv", plan), head=uploaded("list.csv", plan.replace(",30", ",10"))
    )
    assert widget(app.selectbox, "Strategy").value == "imported"
    assert figure(app, "Arena, base → head") == "50 B → 30 B"
    assert (figure(app, "= Δ demand"), figure(app, "+ Δ packing loss")) == ("0 B", "−20 B")


def test_each_side_has_options_of_its_own_which_the_address_holds():
    app = open_app("diff", **dict.fromkeys(("base", "head"), PAIR["head"]), head_strategy="naive")
    assert figure(app, "Arena, base → head") == "20 MiB → 74 MiB"
    widget(app.selectbox, "Strategy of head alone").set_value("")
    check(app.run())
    assert figure(app, "Arena, base → head") == "20 MiB → 20 MiB"
    app.checkbox(key="head_in_place_widget").check()
    app.number_input(key="base_streams_widget").set_value(2)
    check(app.run())
    both = dict.fromkeys(("base", "head"), PAIR["head"])
    assert address(app) == {**both, "head_in_place": "1", "base_streams": "2"}
    assert figure(app, "Arena, base → head") == "20 MiB → 18 MiB"
    app.button(key="swap").click()
    check(app.run())
    assert figure(app, "Arena, base → head") == "18 MiB → 20 MiB"
    assert {"base_in_place": "1", "head_streams": "2"}.items() <= address(app).items()
    widget(app.selectbox, "Base (before)").set_value(PAIR["base"])
    check(app.run())
    assert "base_in_place" not in address(app)
    assert address(app)["head_streams"] == "2"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"base_streams": "<b>"}, "streams: found '<b>', expected 1 to 1,024 ops per step"),
        ({"head_symbols": "x"}, "dimensions: found 'x', expected NAME=VALUE"),
        ({"head_strategy": "tetris"}, "head_strategy: found 'tetris', expected one of those in the list"),
    ],
)
def test_options_of_a_side_that_make_no_sense_are_explained_and_dropped(wrong, told):
    app = opened(**wrong)
    assert told in " ".join(each.value.replace("\\", "") for each in app.error)
    assert figure(app, "Arena, base → head") == "16 MiB → 20 MiB"
    assert not wrong.keys() & address(app).keys()


def test_nothing_to_place_is_no_error(tmp_path):
    write_json(make_problem([], [], []), tmp_path / "empty.json")
    empty = uploaded("empty.json", (tmp_path / "empty.json").read_text())
    app = opened(base=empty, head=empty)
    assert not app.error
    assert app.info[0].value.startswith("There is nothing to place")
    app = opened(base=empty, head=uploaded("list.csv", HEAD))
    assert not app.error
    assert figure(app, "Arena, base → head") == "0 B → 730 B"


def test_buffers_with_gaps_keep_their_number():
    pieces = make_problem([0, 0], [4, 2], [8, 4], names=["a", "b"], gaps={0: (Gap(1, 2),)})
    plain = make_problem([0, 0], [2, 4], [4, 8], names=["b", "a"])
    facts = []
    for problem in (pieces, plain):
        document = documents.Document("", "", problem, Options(), problem)
        facts.append(make_facts(document, make_plan(problem, "greedy_by_size")))
    base, head = diff_panels(compare_facts(*facts), ())
    assert base.owner.tolist() == [1, 1, 0]
    assert head.owner.tolist() == [0, 1]
