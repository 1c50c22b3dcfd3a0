"""What all tests of the dashboard share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test is a visitor of its own, whose uploads lie in a folder that goes with it."""
    pytest.importorskip("streamlit")
    from memplan_dashboard.session import uploads

    monkeypatch.setattr(uploads, "folder", lambda: tmp_path / "uploads")
    return tmp_path / "uploads"
