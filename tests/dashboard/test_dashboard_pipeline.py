"""The page Pipeline: actions of torch's schedules, the fullest rank, schedules compared."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from memplan_engine.formats.memplan_json.ranks_archive import load_ranks_archive
from tests import ROOT
from tests.support.apptest import open_app, said

LAST = 4
ORDER = {
    "GPipe": {0: "F0 F1 F2 F3 B0 B1 B2 B3", 1: "F0 F1 F2 F3 B0 B1 B2 B3"},
    "1F1B": {0: "F0 F1 B0 F2 B1 F3 B2 B3", 1: "F0 B0 F1 B1 F2 B2 F3 B3"},
}
"""As the papers have them, two stages and four micro-batches."""


@pytest.mark.parametrize("schedule", ORDER)
def test_the_recorded_actions_are_the_schedules(schedule):
    for run in load_ranks_archive(ROOT / "example_graphs" / f"llama_{schedule}.ranks.zip"):
        step = run.actions[-2 * LAST :]
        assert " ".join(f"{each.kind}{each.micro_batch}" for each in step) == ORDER[schedule][run.rank]
        assert all(a.end <= b.first for a, b in zip(run.actions, run.actions[1:], strict=False))


def test_the_page_names_the_fullest_rank_and_compares_schedules():
    app = open_app("pipeline")
    assert said(app.subheader)[0].startswith("Peak ")
    assert "in flight" in said(app.subheader)[0]
    table = app.dataframe[-1].value
    assert len(table) == 6
    assert table["live bytes"].is_monotonic_increasing


def test_a_run_without_a_pipeline_says_so():
    app = open_app("pipeline", ranks="recorded:llama_fsdp_8")
    assert "no pipeline" in app.info[0].value
    assert open_app("pipeline", ranks="nonsense").error
