"""Every widget of every page, without a browser: what it changes, what it remembers, what it refuses."""

from __future__ import annotations

import json
import threading

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents, plan_facts, state, uploads
from memplan_dashboard.widgets.panes_of import panes_of

from memplan_engine import known_strategies, make_plan, make_problem, write_json
from tests.support.apptest import CSV, address, check, chips_of, figure, open_app, widget
from tests.support.waiting import HANG_SECONDS

NAMES = list(known_strategies())


@pytest.fixture(autouse=True)
def _own_uploads(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["app.py"])


# Inspect.


def test_what_opens_by_itself_is_gpt2_and_its_address_is_empty():
    app = open_app()
    assert app.selectbox[0].value == "example:gpt2"
    assert app.subheader[0].value.replace("\\", "") == (
        "Graph peak 51 MiB at h.0.mlp.act · mul.2 (step 44): :gray[h.0.mlp 48 MiB (94 %), mostly "
        "activations.py:66; h.0 · add 3 MiB (6 %), modeling_gpt2.py:282]"
    )
    assert chips_of(app) == [
        "Optimal for the graph's storages", "12 steps tie for the peak", "On the device 525.71 MiB",
        "Arena 51 MiB", "Lower bound 51 MiB",
        "Fragmentation at peak 0 B", "Reuse saves 96.9 %",
    ]  # fmt: skip
    assert address(app) == {}
    told = "\n".join(each.value for each in app.caption).replace("\\", "")
    assert "the arena equals the live bytes at step 44" in told


@pytest.mark.parametrize("name", NAMES)
def test_the_strategy_widget_plans_by_every_strategy(name):
    app = open_app(doc="example:teaching_linear_scan")
    widget(app.selectbox, "Strategy").set_value(name)
    check(app.run())
    document = state.load_document("example:teaching_linear_scan", documents.Options())
    assert figure(app, "Arena") == f"{make_plan(document.problem, name).arena_bytes} B"
    assert address(app).get("strategy", "auto") == name


@pytest.mark.parametrize("colouring", ["size", "lifetime", "role", "module", "op kind", "module role"])
def test_the_colour_widget_is_kept_in_the_address(colouring):
    app = open_app()
    assert widget(app.selectbox, "Colour by").value == "module role"
    widget(app.selectbox, "Colour by").set_value(colouring)
    check(app.run())
    assert widget(app.selectbox, "Colour by").value == colouring


def test_a_buffer_list_is_coloured_by_size_as_it_has_no_ops():
    app = open_app(doc="example:teaching_gaps")
    assert widget(app.selectbox, "Colour by").value == "size"
    assert "colour" not in address(app)


@pytest.mark.parametrize(
    ("pattern", "count", "told"),
    [
        ("^add_1$", 1, ""),
        ("ADD_1$", 1, ""),
        ("(", 217, "is not a regular expression"),
        ("a{99999999}", 217, "repeats more than 10,000 times"),
        ("", 217, ""),
    ],
)
def test_the_search_counts_and_explains(pattern, count, told):
    app = open_app(find=pattern, tab="All buffers")
    assert len(app.dataframe[0].value) == count
    assert [told in each.value for each in app.error] == ([True] if told else [])
    assert address(app).get("find", "") == pattern


def test_the_capacity_is_typed_as_bytes_are_written():
    app = open_app()

    def type_in(text):
        widget(app.text_input, "Fits in").set_value(text)
        check(app.run())
        return widget(app.text_input, "Fits in").value, address(app).get("capacity", "")

    assert type_in("1294534770688") == ("1294534770688", "1234564.5625")
    assert type_in("50 MiB") == ("50 MiB", "50")
    assert "Does not fit, 1 MiB over" in chips_of(app)
    assert type_in("many") == ("many", "")
    assert ["found 'many', expected" in each.value for each in app.error] == [True]
    assert type_in("") == ("", "")
    assert not app.error


def test_another_graph_drops_the_selection_and_keeps_the_other_choices():
    app = open_app(selected="add_4", strategy="naive", capacity="60", find="mlp", colour="role")
    assert address(app)["selected"] == "add_4"
    widget(app.selectbox, "Graph").set_value("example:resnet50")
    check(app.run())
    assert address(app) == {
        "doc": "example:resnet50", "strategy": "naive", "capacity": "60", "find": "mlp", "colour": "role",
    }  # fmt: skip


def test_the_details_of_a_buffer_are_complete():
    """What the browser has of a buffer beside its rectangle."""
    document = state.load_document("example:gpt2", documents.Options())
    index = document.index_of["add_2"]
    panes = panes_of(document.problem)
    op, ops = panes.maker[index], panes.ops
    ends, ids = panes.readers
    readers = [ops.own_names[reader] for reader in ids[ends[index - 1] : ends[index]]]
    assert (panes.own_names[index], panes.tensors[index]) == ("add_2", "1 × 1,024 × 768 float32")
    assert (ops.names[op], ops.makes[op], readers) == ("h.0 · add", index, ["layer_norm_1", "add_5"])
    assert (ops.sources[op], ops.codes[op]) == (
        "transformers/models/gpt2/modeling_gpt2.py:282", "hidden_states = attn_output + residual",
    )  # fmt: skip


def test_the_peak_table_and_the_table_of_all_buffers():
    app = open_app()
    assert app.dataframe[0].value["buffer"].tolist() == [
        "h.0.mlp.c_fc · addmm", "h.0.mlp.act · mul", "h.0.mlp.act · pow", "h.0.mlp.act · mul.2", "h.0 · add",
    ]  # fmt: skip
    assert app.dataframe[0].value["bytes"].sum() == 51 * 2**20


NONSENSE = {
    "doc": [
        "nothing",
        "upload:../../etc/passwd",
        "upload:0123456789abcdef",
        "example:",
        "file:x",
        "<b>x</b>",
    ],
    "strategy": ["nonsense", "imported"],
    "colour": ["nonsense"],
    "capacity": ["nan", "-5", "1e999", "abc", "-inf"],
    "find": ["(", "(" * 500],
    "selected": ["no such buffer", "<script>"],
    "compare": ["a,b", ",,,", "auto,auto,naive,naive", ","],
    "dims": ["batch", "batch=-1", "=3", "batch=" + "9" * 5000, "x=²"],
    "alignment": ["0", "-1", "x", "9" * 5000, "²"],
    "inputs": ["maybe"],
    "symbols": ["batch", "batch=x"],
    "streams": ["0", "x", "1025"],
    "unread": ["maybe"],
    "round": ["maybe"],
    "in_place": ["maybe"],
    "concat": ["maybe"],
    "other": ["maybe"],
    "over": ["maybe"],
    "tab": ["maybe"],
    "limit": ["maybe", "-1", "61"],
    "as_plan": ["maybe"],
    "unknown": ["x"],
}
TOLD = {
    "doc": "no such file",
    "dims": "expected NAME=VALUE",
    "alignment": "expected 1 to 1,073,741,824 bytes",
    "symbols": "expected NAME=VALUE",
    "streams": "expected 1 to 1,024 ops per step",
    "find": "is not a regular expression",
}


@pytest.mark.parametrize("page", ["", "compare", "import"])
@pytest.mark.parametrize("parameter", NONSENSE)
def test_nonsense_in_the_address_is_told_or_ignored(parameter, page):
    told = None if parameter == "find" and page else TOLD.get(parameter)
    for value in NONSENSE[parameter]:
        app = open_app(page, **{parameter: value})
        errors = [each.value.replace("\\", "") for each in app.error]
        assert len(errors) == (1 if told else 0)
        assert not told or told in errors[0]
        if page != "import":
            assert app.selectbox[0].value == "example:gpt2"


def test_a_file_that_turns_bad_leaves_the_one_that_was_open(tmp_path, monkeypatch):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text(CSV)
    bad.write_text("id,lower,upper,size\na,3,2,1\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(good), str(bad)])
    app = open_app()
    assert (app.selectbox[0].value, figure(app, "Arena")) == ("file:good.csv", "40 B")
    app.selectbox[0].set_value("file:bad.csv")
    check(app.run())
    assert "bad.csv: line 2" in app.error[0].value.replace("\\", "")
    app.session_state["by_itself"] = True
    check(app.run())
    assert "bad.csv: line 2" in app.error[0].value.replace("\\", ""), "nobody has read it yet"
    assert (app.selectbox[0].value, figure(app, "Arena")) == ("file:good.csv", "40 B")
    check(app.run())
    assert not app.error
    bad.write_text(CSV.replace("a,0,4,10", "a,0,4,70"))
    app.selectbox[0].set_value("file:bad.csv")
    check(app.run())
    assert figure(app, "Arena") == "100 B"
    bad.write_text(CSV)
    assert figure(check(app.run()), "Arena") == "40 B"


def test_a_strategy_that_fails_leaves_the_plan_that_was_shown(monkeypatch):
    app = open_app(doc="example:teaching_gaps", strategy="naive")
    arena = figure(app, "Arena")

    def fail(*_, **__):
        raise plan_facts.PlanError("out of luck")

    monkeypatch.setattr(plan_facts, "make_plan", fail)
    widget(app.selectbox, "Strategy").set_value("greedy_by_breadth")
    check(app.run())
    assert [each.value for each in app.error] == ["out of luck"]
    assert figure(app, "Arena") == arena


def test_sessions_do_not_disturb_each_other():
    one, other = open_app(), open_app()
    widget(one.selectbox, "Strategy").set_value("naive")
    check(one.run())
    check(other.run())
    assert widget(other.selectbox, "Strategy").value == "auto"
    assert (figure(one, "Arena"), figure(other, "Arena")) == ("1.63 GiB", "51 MiB")


def test_compiling_is_announced_and_waited_for(monkeypatch):
    announced = threading.Event()
    slow = threading.Thread(target=announced.wait, args=(HANG_SECONDS,))
    slow.start()
    monkeypatch.setattr(state, "start_compiling", lambda: slow)
    said = []
    spinner = state.st.spinner

    def announce(text):
        said.append(text)
        announced.set()
        return spinner(text)

    monkeypatch.setattr(state.st, "spinner", announce)
    app = open_app()
    assert not slow.is_alive()
    assert said == ["Compiling kernels, once on this machine: about two minutes …"]
    assert figure(app, "Arena") == "51 MiB"


def test_a_graph_without_anything_to_place_says_so(tmp_path, monkeypatch):
    path = tmp_path / "none.json"
    write_json(make_problem([], [], []), path)
    monkeypatch.setattr("sys.argv", ["app.py", str(path)])
    for page in ("", "compare"):
        app = open_app(page)
        assert [each.value for each in app.info][:1] == [
            "There is nothing to place: every tensor is a constant, an input or empty."
        ]


# Compare.


def test_compare_shows_every_strategy_in_its_table():
    app = open_app("compare")
    assert app.multiselect[0].value == ["auto", "greedy_by_size", "linear_scan"]
    table = app.dataframe[0].value
    assert sorted(table["strategy"]) == sorted({*NAMES} - {"naive"})
    assert table["bytes"].tolist() == sorted(table["bytes"])
    # What is the same for all has no column: all are valid, and hold the same beside the arena.
    assert table.columns.tolist() == ["strategy", "arena", "bytes", "over bound", "ms"]


def test_compare_says_first_who_wins_by_how_much_and_proved():
    app = open_app("compare")
    said = [each.value.replace("\\", "") for each in app.markdown if each.value.startswith("####")]
    assert said == [
        "#### Smallest arena 51 MiB (53,477,376 B), by auto and greedy_by_size; "
        "proved, no arena can be smaller.",
        "#### Smallest arena 51 MiB (53,477,376 B), by 12 of 17 strategies; proved, no arena can be smaller.",
    ]
    below = app.caption[0].value.replace("\\", "")
    assert "Next: linear_scan +6 MiB (+11.8 %)." in below
    assert "Reuse saves 96.9 % (1.63 GiB without reuse)." in below
    assert "48 KiB of temporaries outside the arena." in below
    # What is the same for all strategies has been said.
    again = app.caption[1].value.replace("\\", "")
    assert again.startswith("Next: greedy_by_lifetime")
    assert "Reuse saves" not in again


def test_what_all_strategies_agree_on_has_no_column_and_no_bar_is_cut():
    app = open_app("compare", doc="example:gpt2", compare="auto,naive")
    table = app.dataframe[0].value
    naive = table.set_index("strategy").loc["naive"]
    assert (naive["arena"], naive["bytes"]) == ("1.63 GiB", 1_749_259_780)
    bars = json.loads(app.dataframe[0].proto.columns)["over bound"]["type_config"]
    assert bars["max_value"] == table["over bound"].max() == naive["over bound"]
    list_of_one = open_app("compare", doc=uploads.keep("one.csv", b"id,lower,upper,size\na,0,4,10\n")[0])
    assert list_of_one.dataframe[0].value.columns.tolist() == ["strategy", "ms"]


def test_strategies_can_be_removed_down_to_none_and_come_back():
    app = open_app("compare")
    for chosen in (["auto", "naive"], ["naive"], [], ["greedy_by_area", "auto", "naive", "linear_scan"]):
        app.multiselect[0].set_value(chosen)
        check(app.run())
        assert app.multiselect[0].value == chosen
        assert address(app)["compare"] == ",".join(chosen)
        assert bool(app.info) == (len(chosen) < 2)
        shown = {*NAMES} - ({"naive"} - {*chosen})
        assert sorted(app.dataframe[0].value["strategy"]) == sorted(shown)


def test_pages_share_graph_colouring_and_capacity():
    app = open_app(
        doc="example:resnet50", capacity="7", colour="role", strategy="naive", compare="auto,naive"
    )
    app.switch_page("views/compare_plans.py")
    check(app.run())
    assert app.selectbox[0].value == "example:resnet50"
    assert widget(app.selectbox, "Colour by").value == "role"
    assert widget(app.text_input, "Fits in").value == "7 MiB"
    app.selectbox[0].set_value("example:vit_b16")
    check(app.run())
    app.switch_page("views/inspect/inspect_page.py")
    check(app.run())
    assert app.selectbox[0].value == "example:vit_b16"
    assert widget(app.selectbox, "Strategy").value == "naive"
    assert address(app)["compare"] == "auto,naive"


def test_a_teaching_graph_says_what_it_shows():
    app = open_app(doc="example:teaching_best_fit")
    assert any("Best fit loses to first fit" in box.value for box in app.info)
    assert any("every step holds exactly 10 bytes" in text.value for text in app.text)
    assert not open_app(doc="example:gpt2").info
