"""Predicted runs on the pages: what their calibration says of itself, and which card is shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from memplan_dashboard.session import state  # noqa: E402

from memplan_engine import observe_fake, write_observation  # noqa: E402
from memplan_engine.formats.memplan_json.observation_file import load_observation  # noqa: E402
from memplan_engine.scope import Scope  # noqa: E402
from memplan_engine.units import format_bytes  # noqa: E402
from tests.support.apptest import check, chips_of, figure, open_app, said, widget  # noqa: E402
from tests.support.fake_cards import needs_guard  # noqa: E402

WORDS = "2 of 3 operators measured; nothing known of aten.gelu"


def given(monkeypatch, *paths):
    monkeypatch.setattr("sys.argv", ["app.py", *map(str, paths)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A predicted run without a calibration, and the same with one."""
    folder = tmp_path_factory.mktemp("runs")
    plain = observe_fake(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()), (torch.rand(4, 8),))
    scratch = np.zeros(len(plain.flow.stages), dtype=np.int64)
    calibrated = replace(plain, flow=replace(plain.flow, scratch=scratch, calibration=WORDS))
    write_observation(plain, folder / "plain.json")
    write_observation(calibrated, folder / "calibrated.json")
    return folder / "plain.json", folder / "calibrated.json"


def test_inspect_says_what_is_known_of_kernels(runs, monkeypatch):
    plain, calibrated = runs
    given(monkeypatch, calibrated)
    assert f"calibration: {WORDS}" in said(open_app(doc="file:calibrated.json").caption)
    given(monkeypatch, plain)
    assert not [each for each in said(open_app(doc="file:plain.json").caption) if "calibration:" in each]


def test_diff_says_it_of_the_side_that_has_one(runs, monkeypatch):
    given(monkeypatch, *runs)
    app = open_app("diff", base="file:plain.json", head="file:calibrated.json", strategy="greedy_by_size")
    told = [each for each in said(app.caption) if "calibration:" in each]
    assert told == [f"head calibration: {WORDS}"]
    # As a graph, as on Inspect; its buffers alone were said to be of a real run.
    opened = [state.load_either(f"file:{path.name}").problem.scope for path in runs]
    assert opened == [Scope.PREDICTED, Scope.PREDICTED_WITH_KERNELS]


def test_the_python_of_a_compiled_run_is_never_green(runs, tmp_path, monkeypatch):
    seen = load_observation(runs[0])
    write_observation(replace(seen, flow=replace(seen.flow, compiled=True)), tmp_path / "compiled.json")
    given(monkeypatch, tmp_path / "compiled.json")
    for capacity, room in (("1KiB", "to spare"), ("64B", "over")):
        app = open_app(capacity=capacity)
        chips = chips_of(app)
        assert "Compiled run, eager figures" in chips
        assert [each for each in chips if each.startswith("Undecided, ") and each.endswith(room)]
        assert not [each.value for each in app.markdown if each.value.startswith(":green-badge")]


def test_a_run_with_assumed_values_is_never_green_and_says_what_it_assumes(runs, tmp_path, monkeypatch):
    seen = load_observation(runs[0])
    flow = replace(seen.flow, assumed=("a choice as one", "a loss as 1"), doubts=("a choice as one",))
    write_observation(replace(seen, flow=flow), tmp_path / "assumed.json")
    given(monkeypatch, tmp_path / "assumed.json")
    words = ("assumed: a choice as one (a run may hold more or less)", "assumed: a loss as 1")
    for capacity, room in (("1KiB", "to spare"), ("64B", "over")):
        app = open_app(capacity=capacity)
        assert [each for each in chips_of(app) if each.startswith("Undecided, ") and each.endswith(room)]
        assert not [each.value for each in app.markdown if each.value.startswith(":green-badge")]
        assert all(any(each in told for told in said(app.caption)) for each in words)


def test_the_card_is_chosen(tmp_path, monkeypatch):
    needs_guard()

    def fill():
        small = torch.empty(1 << 20, device="cuda:0", dtype=torch.uint8).relu()
        large = torch.empty(3 << 20, device="cuda:1", dtype=torch.uint8).relu()
        del small, large

    write_observation(observe_fake(fill, device="cuda", cards=2, name="two"), tmp_path / "two.json")
    given(monkeypatch, tmp_path / "two.json")
    app = open_app(doc="file:two.json", strategy="greedy_by_size")
    # Each card has its tensor and what relu makes of it; the fuller one is shown unless one is asked for.
    assert figure(app, "Arena") == format_bytes(6 << 20)
    chosen = widget(app.selectbox, "Part of the recording")
    assert chosen.options[1:] == ["cuda:0", "cuda:1"]
    chosen.set_value("device=0")
    check(app.run())
    assert figure(app, "Arena") == format_bytes(2 << 20)


def test_run_shows_a_prediction_as_one(runs, monkeypatch):
    """With what kernels take, as on Inspect; it was shown as a measured run without it."""
    _, calibrated = runs
    scratch = np.array([0, 4096, 0])
    seen = load_observation(calibrated)
    write_observation(replace(seen, flow=replace(seen.flow, scratch=scratch)), calibrated)
    given(monkeypatch, *runs)
    app = open_app("run", run="file:plain.json")
    assert [(each.label, each.value) for each in app.metric] == [("Predicted peak", "512 B")]
    assert "eager, predicted: nothing was run" in " ".join(said(app.markdown))
    assert [each for each in said(app.caption) if each.startswith("Counted: eager, predicted: ")]
    app = open_app("run", run="file:calibrated.json")
    assert [(each.label, each.value) for each in app.metric] == [("Predicted peak", "4.25 KiB")]
    assert app.dataframe[0].value["kernel scratch, bytes"].tolist() == [4096]
