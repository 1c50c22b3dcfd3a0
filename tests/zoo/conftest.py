"""Models that stand in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.zoo_workers import LAYERS, MODELS


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nets.py and layers.py, which it imports; what is recorded there goes into history.db."""
    monkeypatch.setenv("MEMPLAN_HISTORY", "history.db")
    (tmp_path / "nets.py").write_text(MODELS)
    (tmp_path / "layers.py").write_text(LAYERS)
    return tmp_path
