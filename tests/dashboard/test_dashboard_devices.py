"""The page Devices: the verdict, ranks, configurations, the address, and uploads that are no ranks."""

from __future__ import annotations

import io
import json
import zipfile
from functools import cache

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.ranks_job import RanksAsked, RanksJob
from memplan_dashboard.session import rank_runs

from memplan_engine.accelerators.presets import accelerator
from memplan_engine.devices.inference_answers import inference_answer
from memplan_engine.devices.rank_answers import device_answers
from memplan_engine.devices.rank_timeline import module_bytes, step_ranges, timeline
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.ranks_archive import load_ranks_archive
from memplan_engine.formats.memplan_json.ranks_folder import write_ranks
from memplan_engine.formats.memplan_json.sweep_folder import write_sweep
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.reporters.devices.device_words import device_headline
from tests import ROOT
from tests.support.apptest import address, check, chips_of, open_app, said, upload, widget

FSDP = ROOT / "example_graphs" / "llama_fsdp_8.ranks.zip"
GPIPE = ROOT / "example_graphs" / "llama_GPipe.ranks.zip"
KEYS = {"fsdp": "recorded:llama_fsdp_8", "gpipe": "recorded:llama_GPipe"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["app.py"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def headline(app):
    return said(app.subheader)[0]


def test_the_verdict_is_the_command_lines():
    app = open_app("devices", ranks=KEYS["gpipe"])
    gpu = accelerator("h100-80")
    answers = device_answers(load_ranks_archive(GPIPE), gpu)
    verdict, reason = device_headline(answers, gpu)
    assert headline(app).startswith(f"{verdict.capitalize()}: {reason}")
    live = answers.fullest.answers.live_bytes
    assert any(chip.startswith("live ") for chip in chips_of(app))
    table = next(each.value for each in app.dataframe if "category" in each.value)
    assert int(table.set_index("category").loc["live", "bytes"]) == live


def test_headroom_that_leaves_nothing_names_the_rank_and_the_line():
    app = open_app("devices", ranks=KEYS["gpipe"], headroom="79GiB")
    assert headline(app).startswith(
        "Does not fit: rank 0 runs out first, 8 MiB to reserve, at most 0 B left of "
    )


def test_a_click_on_a_rank_is_in_the_address():
    app = open_app("devices", ranks=KEYS["gpipe"])
    button = next(each for each in app.button if each.label.startswith("**Rank 1**"))
    check(button.click().run())
    assert address(app)["rank"] == "1"
    assert any(text.startswith("**Rank 1 over one step**") for text in said(app.markdown))


def test_two_configurations_and_their_difference_by_module():
    app = open_app("devices", ranks=KEYS["gpipe"], **{"with": KEYS["fsdp"]})
    tables = [each.value for each in app.dataframe]
    sides = next(table for table in tables if "configuration" in table)
    assert sides["configuration"].tolist() == ["llama GPipe", "llama fsdp 8"]
    modules = next(table for table in tables if "module" in table)
    assert (modules["after"] - modules["before"] == modules["change"]).all()
    assert modules["before"].sum() == sides["live bytes"][0]
    assert modules["after"].sum() == sides["live bytes"][1]


def test_settings_that_are_none_are_said_beside_the_choices():
    app = open_app("devices", ranks=KEYS["fsdp"], settings="nonsense")
    assert "nonsense" in said(app.error)[0]
    assert widget(app.text_input, "Headroom")


@pytest.mark.parametrize("key", ["recorded:none", "ranks:0123456789abcdef", "file:<b>", "nonsense"])
def test_an_address_of_nothing(key):
    app = open_app("devices", ranks=key, rank="x" * 500, **{"with": "nonsense,,"})
    assert app.error


def zipped(**files):
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return kept.getvalue()


INDEX = {"format": "memplan/ranks", "version": 1, "world_size": 2, "ranks": []}
ROW = {"rank": 0, "file": "rank0.json", "ranks": [0], "stages": [], "groups": 0}
BAD = {
    "cut short": FSDP.read_bytes()[:20_000],
    "no index": zipped(other__json="{}"),
    "no ranks": zipped(ranks__json=json.dumps(INDEX)),
    "no zip": b"PK nonsense",
    "beyond the world": zipped(ranks__json=json.dumps({**INDEX, "ranks": [{**ROW, "ranks": [0, 256]}]})),
    "a file elsewhere": zipped(
        ranks__json=json.dumps({**INDEX, "ranks": [{**ROW, "file": "../../etc/passwd"}]})
    ),
    "a missing rank": zipped(ranks__json=json.dumps({**INDEX, "ranks": [ROW]})),
    "twice": zipped(ranks__json=json.dumps({**INDEX, "ranks": [ROW, ROW]})),
    "strange actions": zipped(
        ranks__json=json.dumps({**INDEX, "ranks": [{**ROW, "actions": [["<b>", 0, 0, 0, 1]]}]})
    ),
}


@cache
def bomb():
    return zipped(ranks__json=" " * 50_000_000)


@pytest.mark.parametrize("name", [*BAD, "bomb"])
def test_archives_that_are_no_ranks(tmp_path, name):
    path = tmp_path / "bad.zip"
    path.write_bytes(bomb() if name == "bomb" else BAD[name])
    with pytest.raises(InputError) as error:
        load_ranks_archive(path)
    assert "bad.zip" in str(error.value)
    assert "memplan-" not in str(error.value), "a folder of ours is nobody's business"


def test_an_upload_opens_and_a_broken_one_is_not_kept():
    app = open_app("devices")
    app = upload(app, "mine.zip", FSDP.read_bytes())
    assert address(app)["ranks"].startswith(f"{rank_runs.KIND}:")
    assert "mine.zip" in headline(app)
    before = address(app)["ranks"]
    app = upload(app, "broken.zip", bomb())
    assert any("broken.zip" in text for text in said(app.error))
    assert address(app)["ranks"] == before


def test_categories_over_the_step_sum_to_the_live_bytes():
    for path in (FSDP, GPIPE):
        for each in device_answers(load_ranks_archive(path), accelerator("h100-80")).ranks:
            flow = each.run.observation.flow
            steps = step_ranges(flow)
            assert len(steps) == flow.steps == 3
            assert (steps[0][0], steps[-1][1]) == (0, len(flow.stages))
            lines = [timeline(each.run, each.answers.chosen.run, *step) for step in steps]
            assert max(int(sum(line.live.values()).max()) for line in lines) == each.answers.live_bytes
            assert max(int(line.reserved.max()) for line in lines) == each.reserved_bytes
            assert sum(module_bytes(flow).values()) == each.answers.live_bytes
            assert all((line.reserved >= sum(line.live.values())).all() for line in lines)


def test_a_model_that_is_served_says_how_many_blocks_are_left():
    app = open_app("devices", ranks="recorded:llama_3_8b_served")
    runs = load_ranks_archive(ROOT / "example_graphs" / "llama_3_8b_served.ranks.zip")
    found = inference_answer(runs, accelerator("h100-80"))
    low, high = found.blocks
    assert any(f"Room for {low:,} to {high:,} KV blocks of 16 tokens" in text for text in said(app.markdown))
    check(widget(app.number_input, "Tokens of a block").set_value(32).run())
    low, high = inference_answer(runs, accelerator("h100-80"), block_tokens=32).blocks
    assert any(f"Room for {low:,} to {high:,} KV blocks of 32 tokens" in text for text in said(app.markdown))
    assert address(app)["block"] == "32"


def test_a_run_that_is_no_serving_has_no_blocks():
    app = open_app("devices", ranks=KEYS["fsdp"])
    assert not any("KV" in text for text in said(app.markdown))


def test_a_way_that_cannot_be_starts_no_worker():
    app = open_app("devices", ranks=KEYS["fsdp"])
    for label, value in (("Ranks", 2), ("Tensor parallel", 2), ("Pipeline stages", 2)):
        widget(app.selectbox, label).set_value(value)
    check(widget(app.button, "Run these ranks").click().run())
    assert "found 2 × 2 of 2 ranks" in said(app.error)[0]
    assert "ranks_job" not in app.session_state


def test_what_a_worker_has_found_is_opened_and_listed():
    app = open_app("devices", ranks=KEYS["fsdp"])
    job = RanksJob("a session", RanksAsked(2, 1, 2, "GPipe"))
    job.archive, job.state = GPIPE.read_bytes(), State.DONE
    app.session_state["ranks_job"] = job
    check(app.run())
    assert address(app)["ranks"].startswith("ranks:")
    assert "GPipe" in headline(app)
    live = device_answers(load_ranks_archive(GPIPE), accelerator("h100-80")).fullest.answers.live_bytes
    table = next(each.value for each in app.dataframe if "category" in each.value)
    assert int(table.set_index("category").loc["live", "bytes"]) == live


def test_a_worker_under_way_says_so_and_is_cancelled():
    app = open_app("devices", ranks=KEYS["fsdp"])
    job = RanksJob("a session", RanksAsked(16))
    job.state, job.part = State.RUNNING, "running rank 0 of 16"
    app.session_state["ranks_job"] = job
    check(app.run())
    assert any("FSDP 16 × TP 1" in text and "running rank 0 of 16" in text for text in said(app.markdown))
    check(widget(app.button, "Cancel").click().run())
    assert job.state is State.CANCELLED
    assert any("was cancelled" in text for text in said(app.info))


def test_the_configurations_of_a_sweep_stand_side_by_side(monkeypatch, tmp_path):
    found = []
    for digest, path, values in (("0" * 16, FSDP, {"pp": 1}), ("1" * 16, GPIPE, {"pp": 2})):
        runs = load_ranks_archive(path)
        write_ranks(runs, tmp_path / digest)
        found.append((digest, Configuration(values, (), runs[0].world_size, "h100-80", runs)))
    failed = Configuration({"pp": 4}, (), 2, "h100-80", error="does not run")
    write_sweep(tmp_path, "train.py", [*found, ("2" * 16, failed)])
    monkeypatch.setattr("sys.argv", ["app.py", f"--folder={tmp_path}"])
    app = open_app("devices")
    assert list(widget(app.selectbox, "Configuration").options[:2]) == ["pp=1", "pp=2"]
    sides = next(each.value for each in app.dataframe if "configuration" in each.value)
    assert sides["configuration"].tolist() == ["pp=1", "pp=2"]
    app = open_app("devices", ranks=f"sweep:{tmp_path.name}/{'3' * 16}")
    assert "no such configuration" in said(app.error)[0]
