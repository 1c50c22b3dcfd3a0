"""The page Fit: the verdict first, stages with their bounds, the address, cancel, and what has no graph."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.fit_job import FitJob, held_values, stage_values
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.solver_messages import read_message, write_message
from memplan_dashboard.charts import profiles_overlaid, stage_waterfall
from memplan_dashboard.session import fitting, searches, uploads
from memplan_dashboard.views.fit import fit_choices

from memplan_engine import SolveLimits, fit_graph, load
from memplan_engine.accelerators.presets import PRESETS
from memplan_engine.advice.stage_changes import stage_changes
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.reporters.fit.fit_words import fit_verdict
from tests import ROOT
from tests.advice.test_source_edits import graph_of
from tests.rewrites.test_held_gradients import clip, step, update
from tests.support.apptest import CSV, address, check, chips_of, open_app, said, upload, widget
from tests.support.waiting import wait_until

EXAMPLES = ROOT / "example_graphs"


IN_PROCESS = FitJob.run


def run_here(job):
    """Fit in this thread, by nodes, what `fit_process` would fit, and give the job the same messages."""

    def tell(values):
        stream = io.BytesIO()
        write_message(stream, values)
        stream.seek(0)
        job._hear(*read_message(stream))

    if job.state is State.WAITING:
        job._enter(State.RUNNING)
        fit_graph(
            job.graph,
            None,
            job.asked.only,
            how=job.asked.how,
            limits=SolveLimits(nodes=1_000_000),
            tell=lambda part: tell({"kind": "begun", "part": part.replace(" ", "_")}),
            watch=lambda stage: tell(stage_values(stage)),
            on_gradients=lambda held: tell(held_values(held)),
        )
        tell({"kind": "done"})


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """A visitor whose session goes on; there are no fits from before."""
    monkeypatch.setattr(FitJob, "run", run_here)
    monkeypatch.setattr(searches, "session_is_alive", lambda session: True)
    monkeypatch.setattr("sys.argv", ["app.py"])
    fitting.results().clear()


def fit_page(**parameters):
    """The page once its fit has ended."""
    app = open_app("fit", **parameters)
    ended(app)
    return check(app.run())


def ended(app):
    if "fit_job" in app.session_state and (job := app.session_state["fit_job"]) is not None:
        wait_until(lambda: not job.state.is_active, look=lambda: (job.state, job.part, job.fault))


def headline(app):
    return said(app.subheader)[0].replace(":gray[", "").rstrip("]")


def table(app):
    return app.dataframe[0].value


def test_the_answer_and_the_stages_of_gpt2_in_a_process(monkeypatch):
    monkeypatch.setattr(FitJob, "run", IN_PROCESS)
    app = fit_page(doc="example:gpt2", capacity="505MiB", fit_limit="600")
    assert headline(app) == "Fits in 505 MiB: another order of the ops, 474.71 MiB state + 27 MiB arena"
    assert chips_of(app)[:4] == ["fits", "no order is lower: proved", "526,078,976 B", "3.29 MiB left"]
    rows = table(app)
    assert rows["arena"].tolist() == rows["bound"].tolist() == [53_477_376, 40_894_464, 28_311_552]
    assert rows["saved"].tolist() == [0, 12_582_912, 12_582_912]
    assert rows["of"].tolist() == ["this order", "this order", "every order"]
    titles = [text for text in said(app.markdown) if text.startswith(":green[**−12 MiB")]
    assert [text.partition("] ")[2] for text in titles] == ["Write 98 results in place", "Reorder 16 ops"]
    assert any("x.tanh_()" in each.value for each in app.code)


def test_another_capacity_asks_nothing_anew():
    app = fit_page(doc="example:gpt2")
    assert headline(app) == "Needs 501.71 MiB: another order of the ops, 474.71 MiB state + 27 MiB arena"
    outcome = next(iter(fitting.results().values()))
    for typed, told, stages in (
        ("520MiB", "Fits in 520 MiB: in place, zero-copy concat, 474.71 MiB state + 39 MiB arena", 2),
        ("530MiB", "Fits in 530 MiB: as captured, 474.71 MiB state + 51 MiB arena", 1),
        ("400MiB", "Does not fit in 400 MiB, proved: 474.71 MiB state (weights, optimizer state and", 3),
    ):  # fmt: skip
        widget(app.text_input, "Capacity").set_value(typed)
        check(app.run())
        assert headline(app).startswith(told)
        assert len(table(app)) == stages
    assert next(iter(fitting.results().values())) is outcome
    # Between state and the least of all orders: no order meets it, which is a proof and no error.
    widget(app.text_input, "Capacity").set_value("490MiB")
    check(app.run())
    assert headline(app).startswith(
        "Does not fit in 490 MiB, proved: 474.71 MiB state + at least 27 MiB arena"
    )
    assert chips_of(app)[0] == "does not fit"
    assert not app.error


def test_which_stages_may_be_used_is_in_the_address():
    app = fit_page(doc="example:teaching_order")
    assert table(app)["stage"].tolist() == [
        "as captured", "in place, zero-copy concat", "another order of the ops",
    ]  # fmt: skip
    widget(app.checkbox, "In place, zero-copy concat").set_value(False)
    check(app.run())
    assert address(app)["stages"] == "reorder,gradients"
    ended(app)
    check(app.run())
    assert table(app)["stage"].tolist() == ["as captured", "another order of the ops"]
    assert table(app)["arena"].tolist() == [26_624, 16_384]
    for label in ("Another order of the ops", "Gradients freed early"):
        widget(app.checkbox, label).set_value(False)
        check(app.run())
    assert address(app)["stages"] == "none"
    ended(app)
    assert table(check(app.run()))["arena"].tolist() == [26_624]
    assert fit_page(doc="example:teaching_order", stages="reorder,<b>").warning[0].value.replace(
        "\\", ""
    ) == ("stages: found '<b>', expected some of in_place, reorder, gradients.")


def test_the_command_asks_for_the_same(memplan, tmp_path, monkeypatch):
    app = fit_page(doc="example:teaching_order", capacity="20KiB", stages="reorder")
    command = app.code[-1].value
    assert command == (
        "memplan fit teaching_order.json --capacity 20KiB --only reorder -o order.json --save-plan plan.json"
    )
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    words[1] = str(EXAMPLES / words[1])
    code, out, _ = memplan(*words)
    assert code == 0
    assert "verdict        Fits in 20 KiB: another order of the ops" in out
    order = json.loads((tmp_path / "order.json").read_text())["steps"]
    assert sorted(order, key=order.__getitem__) == list("afgbcdeh")


@pytest.mark.parametrize(
    ("optimizer", "told", "code"),
    [
        (
            (clip(), update("v", "both"), update("w", "both")),
            ":orange[**held**] 2, 24 B, held, since one op needs all of them: stack at train.py:9: "
            "clip(model)",
            ["clip(model)  # train.py:9"],
        ),
        (
            (update("v"), update("w")),
            ":green[**can go early**] 2, 24 B, free as soon as the update of each has run",
            [],
        ),
    ],
)
def test_what_holds_gradients_is_told_with_its_line(optimizer, told, code):
    app = upload(open_app("import"), "step.json", dumps(step(*optimizer)))
    app = fit_page(doc=address(app)["doc"])
    assert told in said(app.markdown)
    assert [each.value for each in app.code if "clip(model)" in each.value] == code
    assert not any("holds gradients" in text for text in said(fit_page(doc="example:gpt2").markdown))


def test_the_capacity_of_a_device():
    app = fit_page(doc="example:teaching_order")
    widget(app.selectbox, "Or that of").set_value("rtx4090")
    check(app.run())
    assert headline(app).startswith("Fits in 23.64 GiB (25,383,256,719 B): as captured")
    left = PRESETS["rtx4090"].usable_bytes - 1024
    assert any(f"({left:,} B) are left for the arena" in told for told in said(app.caption))
    again = fit_page(**address(app))
    assert widget(again.selectbox, "Or that of").value == "rtx4090"
    widget(again.selectbox, "Or that of").set_value(fit_choices.NO_DEVICE)
    check(again.run())
    assert "capacity" not in address(again)


def test_a_capacity_that_is_none_is_said_beside_its_field():
    app = fit_page(doc="example:teaching_order")
    widget(app.text_input, "Capacity").set_value("24 apples")
    check(app.run())
    assert "24 apples" in said(app.error)[0]
    assert widget(app.text_input, "Capacity").value == "24 apples"
    assert headline(app).startswith("Needs 17 KiB")


def test_a_list_of_buffers_says_what_to_do_instead():
    app = upload(open_app("import"), "list.csv", CSV)
    app = open_app("fit", doc=address(app)["doc"])
    told = said(app.info)[0]
    assert "has no ops that could be rewritten: it is a list of buffers" in told
    assert "memplan capture" in told
    assert not app.dataframe
    assert not searches.scheduler().jobs


def test_what_the_graph_was_opened_with_is_set_aside_and_said():
    app = fit_page(doc="example:gpt2", in_place="1", streams="2", alignment="1")
    assert "Not taken from the options of the graph: Streams, In-place elementwise ops." in said(app.caption)
    assert table(app)["arena"].tolist()[0] == 53_477_376
    command = next(each.value for each in app.code if each.value.startswith("memplan"))
    assert command == "memplan fit gpt2.json --alignment 1 -o order.json --save-plan plan.json"


def test_a_fit_goes_on_after_a_reload_and_cancel_keeps_what_is_there(monkeypatch):
    hold = []
    monkeypatch.setattr(uploads, "visitor", lambda: "somebody")
    monkeypatch.setattr(FitJob, "run", lambda job: (job._enter(State.RUNNING), hold.append(job)))
    app = open_app("fit", doc="example:teaching_order")
    (job,) = hold
    assert widget(app.button, "Cancel")
    # The page is loaded again: its session is gone, the visitor is the same.
    monkeypatch.setattr(searches, "session_is_alive", lambda session: False)
    again = open_app("fit", doc="example:teaching_order")
    assert again.session_state["fit_job"] is job
    assert len(hold) == 1
    stages = fit_graph(load(EXAMPLES / "teaching_order.json")).stages
    job.stages, job.part = stages[:2], "reorder"
    check(again.run())
    assert headline(again).startswith("Needs 27 KiB: as captured")
    widget(again.button, "Cancel").click()
    check(again.run())
    wait_until(lambda: not job.state.is_active)
    check(again.run())
    assert len(table(again)) == 2
    assert "Cancelled: these are the stages that were there." in said(again.caption)
    widget(again.button, "Fit again").click()
    check(again.run())
    assert len(hold) == 2


def test_while_more_stages_may_come_nothing_is_called_undecided(monkeypatch):
    monkeypatch.setattr(FitJob, "run", lambda job: job._enter(State.RUNNING))
    app = open_app("fit", doc="example:teaching_order", capacity="20KiB")
    job = app.session_state["fit_job"]
    job.stages = fit_graph(load(EXAMPLES / "teaching_order.json")).stages[:1]
    check(app.run())
    assert headline(app) == "Does not fit in 20 KiB yet: so far as captured, 1 KiB state + 26 KiB arena"
    assert not {"undecided", "does not fit"} & set(chips_of(app))


def test_a_fault_of_the_process_is_told(monkeypatch):
    def fails(job):
        job._enter(State.FAILED)
        job.fault = "the process of the fit has ended (exit code -9)"

    monkeypatch.setattr(FitJob, "run", fails)
    app = open_app("fit", doc="example:teaching_order")
    assert said(app.error) == ["the process of the fit has ended (exit code -9)"]


def test_a_training_step_frees_its_gradients_with_the_code_for_it():
    graph = load(EXAMPLES / "gpt2_training_step.json")
    fitted = fit_graph(graph, only=("gradients",))
    (change,) = stage_changes(fitted, graph)
    assert change.change.title == "Run the optimizer in the backward pass"
    assert change.saved_bytes == fitted.stages[0].plan.arena_bytes - fitted.stages[1].plan.arena_bytes
    assert "parameter.register_post_accumulate_grad_hook(update)" in change.change.code[0].ops[0].instead


SOURCE = """import torch.nn.functional as F


def f(x):
    a = x.big()
    b = F.relu(a)
    return b.exp().sum()
"""


def test_code_changes_have_their_lines_and_become_a_patch_of_the_source():
    lines = ((5, "big", "x", "a"), (6, "relu", "a", "b"), (7, "exp", "b", "c"), (7, "sum", "c", "d"))
    graph = graph_of(SOURCE, *lines)
    app = upload(open_app("import"), "net.json", dumps(replace(graph, outputs=("d",))))
    app.switch_page("views/fit/fit_page.py").run()
    ended(app)
    check(app.run())
    diffs = [each.value for each in app.code if each.language == "diff"]
    assert diffs == [
        "- b = F.relu(a)\n+ b = F.relu(a, inplace=True)",
        "- return b.exp().sum()\n+ return b.exp_().sum()",
    ]
    app.file_uploader[0].upload("net.py", SOURCE.encode())
    check(app.run())
    patch = [each.value for each in app.code if each.language == "diff"][-1]
    assert patch.startswith("--- a/net.py\n+++ b/net.py\n@@")
    assert [line for line in patch.splitlines() if line[:1] in "+-"][2:] == [
        "-    b = F.relu(a)", "-    return b.exp().sum()",
        "+    b = F.relu(a, inplace=True)", "+    return b.exp_().sum()",
    ]  # fmt: skip
    assert any("so no saving is claimed" in text for text in said(app.caption))
    for raw, told in ((b"def f(:", "net.py: line 1"), (b"\xff", "no UTF-8"), (b"x = 1" * 2**18, "1 MiB")):
        app.file_uploader[0].upload("net.py", raw)
        check(app.run())
        assert told in said(app.error)[0]


def test_the_waterfall_has_what_the_stages_say():
    fitted = fit_graph(load(EXAMPLES / "teaching_order.json"), 20 * 1024 + 1024)
    shown = stage_waterfall.data(fitted)
    assert shown.room == 20 * 1024
    assert [(bar.label, bar.arena, bar.saved, bar.bound, bar.is_best) for bar in shown.bars] == [
        ("as captured", 26_624, 0, 26_624, False),
        ("in place", 26_624, 0, 26_624, False),
        ("order", 16_384, 10_240, 16_384, True),
    ]
    drawn = stage_waterfall.figure(shown)
    assert list(drawn.data[0].y) == [26_624, 26_624, 16_384]
    assert [trace.name for trace in drawn.data[1:]] == ["lower bound, proved", "left for the arena: 20 KiB"]
    lines = profiles_overlaid.before_and_after(fitted.stages[0].plan, fitted.best.plan)
    assert [live // 1024 for live in lines.base] == [8, 14, 22, 17, 21, 26, 20, 15]
    assert [live // 1024 for live in lines.head] == [8, 14, 16, 16, 16, 11, 15, 15]
    assert fit_verdict(fitted)[0] == "Fits in 21 KiB:"


def test_a_graph_with_assumed_values_is_undecided_and_says_what_it_assumes(tmp_path, monkeypatch):
    graph = replace(load(EXAMPLES / "teaching_order.json"), assumed=("a choice",), doubts=("a choice",))
    (tmp_path / "assumed.json").write_bytes(dumps(graph))
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "assumed.json")])
    app = fit_page(doc="file:assumed.json", capacity="1GiB")
    assert "undecided (some values are assumed)" in chips_of(app)
    assert any("assumed: a choice (a run may hold more or less)" in told for told in said(app.caption))
