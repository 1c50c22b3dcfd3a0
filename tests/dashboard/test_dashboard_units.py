"""The parts of the dashboard that compute: exact values for the smallest problems."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from tests import ROOT

pytest.importorskip("streamlit")
from memplan_dashboard.charts import arena_seconds
from memplan_dashboard.session import documents, messages, state, uploads
from memplan_dashboard.session.documents import Document, Options
from memplan_dashboard.session.plan_facts import make_facts
from memplan_dashboard.views.inspect import buffer_filter
from memplan_dashboard.widgets.plan_panels import make_panel

from memplan_engine import (
    Gap,
    Graph,
    InputError,
    MemplanError,
    Unread,
    adopt,
    known_strategies,
    load,
    make_plan,
    make_problem,
    to_problem,
)
from memplan_engine.plotting import colouring as colours
from memplan_engine.plotting import colouring as shared
from memplan_engine.preparation import Preparation

EXAMPLES = ROOT / "example_graphs"


def document(problem):
    return Document("k", "k.csv", problem, Options(), problem)


@pytest.fixture(scope="module")
def gpt2():
    graph = load(EXAMPLES / "gpt2.json")
    assert isinstance(graph, Graph)
    return to_problem(graph)


# Colours.


def test_the_ten_labels_with_most_bytes_and_steps_get_colours_and_the_rest_shares_grey():
    n = 12
    problem = make_problem([0] * n, [1] * n, list(range(n, 0, -1)), names=[f"n{i}" for i in range(n)])
    found = shared._categories([f"kind{i}" for i in range(n)], problem)
    assert sorted(found.index.tolist()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
    assert found.legend == (
        *((f"kind{i}", int(found.index[i])) for i in range(10)),
        ("2 others", 10),
    )
    assert found.palette == (*colours.CATEGORIES, colours.OTHER)


def test_a_category_weighs_bytes_times_steps():
    problem = make_problem([0, 0], [10, 1], [2, 15])
    assert [label for label, _ in shared._categories(["long", "large"], problem).legend] == ["long", "large"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("mlp", "mlp"),
        (r"h\.0\.mlp", "h.0.mlp"),
        ("attn|mlp", "/attn|mlp/"),
        ("add_1$", "/add_1$/"),
        (r"\d", r"/\d/"),
    ],
)
def test_a_pattern_is_typed_between_slashes_unless_it_is_a_text(pattern, text):
    assert buffer_filter.typed_of(pattern) == text
    assert buffer_filter.pattern_of(text) == pattern


def test_modules_are_grouped_as_deep_as_ten_colours_reach():
    paths = [f"h.{layer}.{part}" for layer in range(12) for part in ("attn", "mlp")] + ["ln"]
    known = [SimpleNamespace(module=path) for path in paths]
    assert sorted(set(shared._module_groups(known))) == ["h.*.attn", "h.*.mlp", "ln"]
    many = [SimpleNamespace(module=f"block.part{i}") for i in range(11)]
    assert set(shared._module_groups(many)) == {"block"}


def test_every_colouring_of_a_graph_indexes_its_palette(gpt2):
    for colouring in colours.COLOURINGS.values():
        found = colouring(gpt2)
        assert len(found.index) == len(gpt2)
        assert {index for _, index in found.legend} == set(found.index.tolist())
        assert max(found.index) < len(found.palette)
    assert dict(colours.by_kind(gpt2).legend).keys() >= {"aten.addmm", "aten.mul"}
    assert [label for label, _ in colours.by_role(gpt2).legend] == ["activation", "output"]


# Panels.


def test_a_panel_has_the_columns_of_its_plan():
    problem = make_problem([0, 1, 2], [2, 3, 3], [10, 20, 5], names=["a", "b", "c"])
    plan = adopt(problem, np.array([0, 10, 0]))
    facts = make_facts(document(problem), plan)
    panel = make_panel(facts, colours.by_size(problem), np.array([False, True, False]), capacity=64)
    assert (panel.title, panel.subtitle) == ("imported", "30 B · arena optimal")
    assert (panel.arena, panel.bound, panel.peak_step, panel.steps, panel.capacity) == (30, 30, 1, 3, 64)
    assert [panel.start.tolist(), panel.end.tolist()] == [[0, 1, 2], [2, 3, 3]]
    assert [panel.offset.tolist(), panel.size.tolist()] == [[0, 10, 0], [10, 20, 5]]
    assert panel.profile_start.tolist() == [0, 1, 2]
    assert panel.profile_live.tolist() == [10, 30, 25]
    assert panel.profile_high.tolist() == [10, 30, 30]
    assert panel.dimmed.tolist() == [False, True, False]
    assert (panel.owner, panel.step_labels) == (None, None)
    assert facts.figures.holes_at_peak == 0


def test_a_buffer_with_a_gap_is_drawn_in_pieces_that_know_their_owner():
    problem = make_problem([0, 0], [4, 4], [8, 8], gaps={1: (Gap(1, 2, 0, 2),)})
    facts = make_facts(document(problem), make_plan(problem, "naive"))
    panel = make_panel(facts, colours.by_size(problem))
    assert panel.owner.tolist() == [0, 1, 1, 1]
    assert panel.size.tolist() == [8, 8, 2, 8]
    assert panel.offset.tolist() == [0, 8, 8, 8]


def test_a_panel_says_when_its_plan_is_not_valid():
    problem = make_problem([0, 0], [2, 2], [10, 10])
    facts = make_facts(document(problem), adopt(problem, np.array([0, 5])))
    assert make_panel(facts, colours.by_size(problem)).subtitle == "15 B · not valid"


# Search.


def test_a_search_looks_at_name_kind_and_module(gpt2):
    names = np.array(gpt2.names)
    assert names[~buffer_filter.misses(gpt2, "^add_1$")].tolist() == ["add_1"]
    assert int((~buffer_filter.misses(gpt2, "^ATEN.TANH$")).sum()) == 12
    assert int((~buffer_filter.misses(gpt2, r"h\.3\.mlp")).sum()) == 10  # fc, eight of the activation, proj
    assert buffer_filter.misses(gpt2, "") is None
    plain = make_problem([0, 0], [1, 1], [1, 1], names=["first", "second"])
    assert buffer_filter.misses(plain, "sec").tolist() == [True, False]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "find: '(' is not a regular expression: missing ) at position 1"),
        ("a{1000000000}", "find: 'a{1000000000}' repeats more than 10,000 times"),
        ("(a{200}){200}", r"find: '(a{200}){200}' repeats more than 10,000 times"),
        ("(" * 3000 + ")" * 3000, "has more than 200 characters"),
        ("a{" + "9" * 5000 + "}", "has more than 200 characters"),
        ("a" * 201, "has more than 200 characters"),
        ("(?R)", "find: '(?R)' is recursive, which is not supported"),
        (r"\\(?R)?", "is recursive"),
        ("(a|(?1))", "is recursive"),
        ("(?<x>a|(?&x))", "is recursive"),
        ("(?P<x>a|(?P>x))", "is recursive"),
        ("(?(DEFINE)(?<x>a))b", "is recursive"),
    ],
)
def test_patterns_that_cannot_be_are_explained(pattern, message):
    with pytest.raises(MemplanError) as caught:
        buffer_filter.misses(make_problem([0], [1], [1]), pattern)
    assert message in str(caught.value)


def test_what_looks_recursive_and_is_not_is_searched():
    problem = make_problem([0, 0], [1, 1], [1, 1], names=["a(R)", "b" * 200])
    assert buffer_filter.misses(problem, r"\(?R\)").tolist() == [False, True]
    assert buffer_filter.misses(problem, r"(?i)A(?-i:\()").tolist() == [False, True]
    assert buffer_filter.misses(problem, "b" * 200).tolist() == [True, False]


def test_a_pattern_that_takes_all_memory_is_explained(monkeypatch):
    def search(pattern, texts):
        raise MemoryError

    monkeypatch.setattr(buffer_filter, "_search", search)
    with pytest.raises(MemplanError, match="find: 'ab' takes too much memory"):
        buffer_filter.misses(make_problem([0], [1], [1]), "ab")


# Figures.


def test_every_strategy_has_a_mark_of_its_own():
    problem = make_problem([0, 1, 2], [2, 3, 4], [10, 20, 5])
    plans = [make_plan(problem, name) for name in known_strategies()]
    marks = [trace.marker for trace in arena_seconds.figure(arena_seconds.data(plans)).data]
    assert len({(mark.symbol, mark.color) for mark in marks}) == len(marks) == len(plans) - 1


def test_arena_against_time_leaves_naive_out():
    problem = make_problem([0, 1, 2], [2, 3, 4], [10, 20, 5])
    plans = [make_plan(problem, name) for name in ("auto", "naive", "linear_scan")]
    values = arena_seconds.data(plans)
    assert [point.strategy for point in values.points] == ["auto", "linear_scan"]
    assert [point.arena_bytes for point in values.points] == [30, 30]
    assert values.bound_bytes == 30
    chart = arena_seconds.figure(values)
    assert [trace.name for trace in chart.data] == ["auto", "linear_scan"]
    assert arena_seconds.data([]).points == ()


def test_the_time_axis_has_ticks_that_are_written_out():
    point = arena_seconds.Point("auto", 2**20, 0.0004, 0.0, True)
    chart = arena_seconds.figure(arena_seconds.Points((point,), 2**20))
    assert {"0.2", "0.5", "1"} <= set(chart.layout.xaxis.ticktext)
    assert list(chart.data[0].x) == [0.4]


# Choices.


def test_dimensions_are_read_as_pairs():
    assert state.parse_dims(" batch = 1, sequence=128,") == (("batch", 1), ("sequence", 128))
    assert state.parse_dims("") == ()


@pytest.mark.parametrize(
    "text", ["batch", "=1", "a=0", "a=-1", "a=1.5", "a=²", "a=" + "9" * 5000, "a=2147483648"]
)
def test_dimensions_that_are_none_are_refused(text):
    with pytest.raises(MemplanError, match="expected NAME=VALUE with a whole number of 1 or more"):
        state.parse_dims(text)


def test_options_survive_the_way_through_the_address():
    how = Preparation(
        alignment=128,
        plan_inputs=True,
        symbols=(("seq", 7),),
        streams=4,
        unread=Unread.HELD,
        round_sizes=True,
        in_place=True,
        concat=True,
    )
    options = Options((("batch", 2), ("n", 3)), True, how)
    assert state.parse_options(state.option_choices(options)) == options
    assert state.parse_options(state.option_choices(Options())) == Options()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("x", None),
        ("nan", None),
        ("-1", None),
        ("0", None),
        ("1.5", 1.5),
        ("inf", 2.0**40),
        ("64KiB", 1 / 16),
        ("2 GiB", 2048),
        ("xB", None),
        ("0B", None),
        ("1YB", None),
    ],
)
def test_a_capacity_is_a_number_above_nothing(text, value):
    assert state.parse_mebibytes(text) == value


def test_markdown_shows_names_as_they_stand():
    # What would turn the direction of all that follows is left out; letters of any script stay.
    assert messages.plain("\u202eevil\u2066 אב") == "evil אב"
    assert messages.plain("a_b *c* [d](e)\n$f$ :red[g]") == (r"a\_b \*c\* \[d\]\(e\) \$f\$ \:red\[g\]")


# Documents.


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["app.py"])
    return tmp_path / "uploads"


def test_uploads_are_kept_by_content_under_a_safe_name(store):
    key, is_new = uploads.keep("../../my model.csv", b"one")
    assert is_new
    assert documents.path_of(key) == store / "upload" / key.removeprefix("upload:") / "my model.csv"
    assert uploads.keep("../../my model.csv", b"one") == (key, False)
    other, _ = uploads.keep("my model.csv", b"two")
    labels = documents.catalogue()
    assert labels[key] == f"my model.csv ({key[7:11]})"
    assert labels[other] == f"my model.csv ({other[7:11]})"
    uploads.drop(key)
    assert key not in documents.catalogue()
    with pytest.raises(InputError, match="no such file"):
        documents.path_of(key)


def test_the_oldest_uploads_make_room(store, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_UPLOADS", 2)
    for seconds, content in enumerate((b"two", b"one", b"three")):
        key, _ = uploads.keep("x.csv", content)
        os.utime(documents.path_of(key), (100 - seconds, 100 - seconds) if content != b"three" else None)
    assert sorted(path.read_bytes() for path in store.glob("*/*/*")) == [b"three", b"two"]


def test_what_a_killed_server_left_is_no_upload_and_goes(store):
    key, _ = uploads.keep("x.csv", b"one")
    old, fresh = (uploads.folder() / f"{name}.part" for name in ("old", "fresh"))
    for draft in (old, fresh):
        draft.write_bytes(b"tw")
    assert list(uploads.listed()) == [key]
    os.utime(old, (0, 0))
    uploads.keep("y.csv", b"two")
    assert not old.exists()
    # Somebody may be writing it.
    assert fresh.exists()


def test_any_name_can_be_uploaded(store):
    for name in ("x.part", ".hidden", "計" * 80 + ".csv"):
        key, _ = uploads.keep(name, name.encode())
        assert documents.path_of(key).read_bytes() == name.encode()


def test_where_nothing_can_be_kept_an_upload_says_so(store):
    (store.parent if uploads.folder() == store else uploads.folder().parent).mkdir(
        parents=True, exist_ok=True
    )
    uploads.folder().write_text("a file where the folder should be")
    with pytest.raises(MemplanError, match=r"x.csv: cannot be kept in .*: .*; XDG_CACHE_HOME names another"):
        uploads.keep("x.csv", b"one")


def test_files_of_the_command_line_come_first_and_keep_apart(store, tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text(folder)
    monkeypatch.setattr("sys.argv", ["app.py", "--flag", *(str(tmp_path / f / "x.csv") for f in "ab")])
    assert documents.first_key() == "file:x.csv"
    assert list(documents.catalogue())[:2] == ["file:x.csv", "file:x.csv (2)"]
    assert [documents.path_of(key).read_text() for key in list(documents.catalogue())[:2]] == ["a", "b"]


def test_what_opens_when_nothing_is_named(store):
    assert documents.first_key() == documents.EXAMPLE
    read = documents.read_document(documents.EXAMPLE, (), False)
    opened = documents.make_document(documents.EXAMPLE, Options(), *read)
    assert (opened.label, len(opened.problem), opened.index_of["add_4"]) == (
        "gpt2.json", 217, opened.problem.names.index("add_4"),
    )  # fmt: skip


@pytest.mark.parametrize("key", ["", "upload:../x", "upload:0123", "example:../gpt2", "file:/etc/passwd"])
def test_keys_that_lead_nowhere_are_refused(store, key):
    with pytest.raises(InputError, match="no such file"):
        documents.path_of(key)
