"""The script that makes the pairs of graphs for `memplan diff`."""

from __future__ import annotations

import importlib.util

import memplan_examples
import pytest

from tests import ROOT

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_pairs", ROOT / "example_graphs" / "make_pairs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_makes_the_pairs_that_are_there(script, tmp_path, monkeypatch):
    assert set(script.PAIRS) == set(memplan_examples.pairs())
    monkeypatch.chdir(ROOT)  # source lines are relative to it
    written = script.write_pair("kept_view", tmp_path)
    for path, known in zip(written, memplan_examples.pairs()["kept_view"], strict=True):
        assert path.read_bytes() == known.read_bytes()


def test_a_pair_above_the_limit_is_refused(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "MAX_BYTES", 1000)
    with pytest.raises(RuntimeError, match=r"diff_kept_view_base\.json has [0-9,]+ bytes, more than 1,000"):
        script.write_pair("kept_view", tmp_path)
