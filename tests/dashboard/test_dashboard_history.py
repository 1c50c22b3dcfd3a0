"""The page History: what it says of a store, its choices, its actions, and what it does not open."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("sqlalchemy")
import memplan_examples
from memplan_dashboard.background.jobs import State
from memplan_dashboard.session import stores

from memplan_engine import Acknowledgement, HistoryRun, load, measure_graph, open_history
from memplan_engine.history.alarms import watch_series
from memplan_engine.history.blame import blame_change
from memplan_engine.history.history_values import HistoryFigures, HistorySeries, NewPoint
from memplan_engine.history.store_place import FACTORIES, VARIABLE
from memplan_engine.reporters.history.change_words import cause_sentences, growth_sentence, short_cause
from tests.support.apptest import address, check, chips_of, open_app, said, upload, widget

PLAIN = HistorySeries("shop", "plain")
DAY = 86_400
COMMITS = [f"{number:02x}" * 20 for number in range(1, 7)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """`kept` grows with the third commit, `attention` shrinks with the second, `plain` has figures alone and
    an acknowledged change; on the branch `topic` a commit whose parent was not recorded."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    graphs = memplan_examples.pairs()
    points = {
        (name, side): measure_graph(load(graphs[name][side]), project="shop", model=model, variant="batch 8")
        for name, model in (("kept_view", "kept"), ("attention", "attention"))
        for side in (0, 1)
    }
    sides = [(0, 1, 100), (0, 0, 110), (1, 0, 110), (1, 0, 105)]
    with open_history(path) as history:
        for number, (kept, attention, size) in enumerate(sides):
            parent = COMMITS[number - 1] if number else ""
            run = HistoryRun(
                "shop", COMMITS[number], parent, (1 + 30 * number) * DAY, "main", key=f"{number:032x}"
            )
            plain = NewPoint(PLAIN, HistoryFigures(size + 5, size, size, "load"))
            history.record(run, [points["kept_view", kept], points["attention", attention], plain])
        run = HistoryRun("shop", COMMITS[5], "f" * 40, 200 * DAY, "topic")
        history.record(run, [points["kept_view", 0]])
        history.record(replace(run, commit="e" * 40, parent=COMMITS[5], committed_at=201 * DAY), [])
        history.record(
            replace(run, commit="d" * 40, parent="e" * 40, committed_at=202 * DAY), [points["kept_view", 1]]
        )
        history.acknowledge(Acknowledgement(PLAIN, COMMITS[1], "a wider head", "ann"))
    return path


@pytest.fixture(autouse=True)
def _alone(monkeypatch, store):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(FACTORIES, raising=False)
    monkeypatch.setattr("sys.argv", ["app.py", str(store)])


def caused(**parameters):
    """The page once all causes are worked out."""
    app = open_app("history", **parameters)
    for _ in range(20):
        if not any("Comparing graphs" in text for text in said(app.caption)):
            return app
        check(app.run())
    raise AssertionError("causes are still to be worked out")


def changes_of(app):
    return next(each.value for each in app.dataframe if "cause" in each.value)


def of_series(store, model):
    with open_history(store, read_only=True) as history:
        series = [each for each in history.series() if each.model == model]
        (watched,) = watch_series(history, series, branch="main")
        return watched, [blame_change(change, history.graph) for change, _ in watched.changes]


def test_the_headline_and_the_causes_are_the_command_lines(store):
    app = caused()
    watched, (blame,) = of_series(store, "kept")
    assert said(app.subheader) == [
        f"{growth_sentence(watched)} :gray[{COMMITS[2][:7]}: {short_cause(blame)}]"
    ]
    table = changes_of(app)
    assert table["commit"].tolist() == [COMMITS[number][:7] for number in (3, 2, 1, 1)]
    assert sorted(table["state"]) == ["acknowledged", "⚠ to look at", "✓ lower", "✓ lower"]
    row = table[table["model"] == "kept (batch 8)"].iloc[0]
    assert (row["cause"], row["line"]) == (short_cause(blame), "make_pairs.py:67")
    told = "\n".join(said(app.markdown))
    assert all(sentence in told for sentence in cause_sentences(blame))
    assert "recorded without a graph" in " ".join(table["cause"])


def test_a_limit_turns_an_alarm_into_a_word():
    app = caused(growth="1GiB")
    assert "within the limit of 1 GiB" in chips_of(app)
    assert "to look at" not in " ".join(changes_of(app)["state"])
    app = open_app("history", growth="nonsense")
    assert any("growth: found 'nonsense'" in text for text in said(app.error))


def test_filters_by_model_since_module_and_branch():
    app = caused(model="attention")
    assert changes_of(app)["model"].tolist() == ["attention (batch 8)"]
    assert said(app.subheader)[0].startswith("attention (batch 8) needs ")
    # 30 days before the last commit, which is on another branch.
    app = caused(since="7")
    assert not [each for each in app.dataframe if "cause" in each.value]
    assert said(app.caption).count("Nothing changed.") == 1
    app = caused(module="h.0.attn")
    assert changes_of(app)["model"].tolist() == ["attention (batch 8)"]
    app = caused(module="nowhere")
    assert any("'nowhere'" in text for text in said(app.caption))
    app = caused(branch="topic")
    assert changes_of(app)["commit"].tolist() == ["ddddddd"]


@pytest.mark.parametrize(
    "asked", [{"branch": "<b>"}, {"project": "none"}, {"model": "x" * 500}, {"history": "file:none.db"},
              {"history": "history:0123456789abcdef"}, {"history": "named:x"},
              {"history": "folder:../../etc/passwd"}]
)  # fmt: skip
def test_an_address_of_nothing(asked):
    assert open_app("history", **asked).error


def test_a_card_and_a_row_are_in_the_address():
    app = caused()
    button = next(each for each in app.button if each.label.startswith("**plain**"))
    app = check(button.click().run())
    assert address(app)["series"] == PLAIN.digest[:12]
    assert said(app.subheader)[0].startswith("plain needs 110 B, −5 B since ")


def test_both_graphs_open_on_diff(store):
    app = caused(model="kept")
    button = next(each for each in app.button if each.label == "Diff")
    app = check(button.click().run())
    asked = address(app)
    assert asked["base"].startswith("upload:")
    assert asked["head"].startswith("upload:")
    assert asked["base"] != asked["head"]
    _, (blame,) = of_series(store, "kept")
    assert any(text.lstrip("# ").startswith("Peak +4 MiB") for text in said(app.markdown)), said(app.markdown)
    assert blame.change.demand == 4 << 20


def test_what_has_no_graph_does_not_open():
    app = caused(model="plain")
    button = next(each for each in app.button if each.label == "Diff")
    app = check(button.click().run())
    assert "recorded without a graph" in said(app.error)[0]


def test_a_change_is_acknowledged_with_a_reason(store, tmp_path, monkeypatch):
    own = tmp_path / "own.db"
    with open_history(store, read_only=True) as history:
        history.export(own)
    monkeypatch.setattr("sys.argv", ["app.py", str(own)])
    app = caused(model="kept")
    form = next(each for each in app.button if each.label == "Acknowledge")
    app = check(form.click().run())
    assert any("expected why the change is meant" in text for text in said(app.error))
    widget(app.text_input, "Why is it meant?").input("residuals are kept")
    widget(app.text_input, "Your name").input("ann")
    app = check(next(each for each in app.button if each.label == "Acknowledge").click().run())
    with open_history(own, read_only=True) as history:
        (said_last,) = [each for each in history.acknowledgements() if each.series.model == "kept"]
    assert (said_last.commit, said_last.reason, said_last.author) == (COMMITS[2], "residuals are kept", "ann")
    app = caused(model="kept")
    assert "1 change acknowledged" in chips_of(app)
    assert changes_of(app)["state"].tolist() == ["acknowledged"]


def test_an_upload_is_read_and_never_written_to(store):
    app = open_app("history")
    app = upload(app, "export.db", store.read_bytes())
    assert address(app)["history"].startswith(f"{stores.KIND}:")
    place = stores.place_of(address(app)["history"])
    assert "uploaded" in place.why_not_written
    before = place.path.read_bytes()
    app = caused(history=address(app)["history"])
    disabled = {each.label for each in app.button if each.disabled}
    assert {"Acknowledge", "Bisect"} <= disabled
    assert place.path.read_bytes() == before
    assert [each.name for each in place.path.parent.iterdir()] == ["export.db"]


def test_what_is_no_store_is_not_kept(tmp_path):
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE other (number)")
    connection.close()
    app = open_app("history")
    for name, content in (("foreign.db", foreign.read_bytes()), ("no.db", json.dumps({}).encode())):
        app = upload(app, name, content)
        assert any(name in text for text in said(app.error))
        assert not any("/uploads/" in text for text in said(app.error)), (
            "a folder of ours is nobody's business"
        )
        assert "history" not in address(app)


def test_bisect_says_why_it_cannot_be(store, monkeypatch):
    def why(**parameters):
        app = caused(model="kept", **parameters)
        (button,) = [each for each in app.button if each.label == "Bisect"]
        return button.help.replace("\\", "")

    assert "nothing lies between" in why()
    assert "--factory package.module:factory" in why(branch="topic")
    monkeypatch.setenv(FACTORIES, "models:make\nnet.py:build")
    assert "no such commit" in why(branch="topic") or "in the repository" in why(branch="topic")


def test_without_a_store_it_says_how_to_begin_one(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["app.py"])
    monkeypatch.chdir(tmp_path)
    app = open_app("history")
    assert "memplan history record" in said(app.info)[0]
    with open_history(tmp_path / "own.db"):
        pass
    monkeypatch.setenv(VARIABLE, "own.db")
    app = open_app("history")
    assert "Nothing is recorded in this store yet" in said(app.info)[0]


def test_a_bisection_is_started_with_a_factory_of_the_server_and_cancelled(store, monkeypatch):
    from memplan_dashboard.views.history import bisect_panel

    asked = []
    stub = SimpleNamespace(submit=asked.append, before=lambda job: 0, waits_for_its_own=lambda job: False)
    monkeypatch.setattr(bisect_panel, "why_not", lambda place, change: "")
    monkeypatch.setattr(bisect_panel, "scheduler", lambda: stub)
    monkeypatch.setenv(FACTORIES, "models:make\nnet.py:kept")
    app = caused(model="kept", branch="topic")
    assert widget(app.selectbox, "Factory").value == "net.py:kept"
    app = check(next(each for each in app.button if each.label == "Start").click().run())
    (job,) = asked
    told = job.asked
    assert (told.location, told.factory, told.good, told.bad, told.branch, told.training) == (
        str(store), "net.py:kept", COMMITS[5], "d" * 40, "topic", "",
    )  # fmt: skip
    assert told.series.label == "kept (batch 8)"
    assert any(text.startswith("waiting: ") for text in said(app.markdown))
    app = check(next(each for each in app.button if each.label == "Cancel").click().run())
    assert job.state is State.CANCELLED
    assert "was cancelled" in said(app.info)[0]
