"""What the benchmark of large plans asks of the page is what the page understands."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.launch import command
from memplan_dashboard.views.inspect.buffer_filter import pattern_of

from benchmarks.browser_scale import PATTERN, SERVER, name_of


def test_the_search_finds_some_buffers_and_the_server_has_its_name():
    pattern = re.compile(pattern_of(PATTERN))
    found = sum(bool(pattern.search(name_of(buffer))) for buffer in range(10_000))
    # Block 7 of 13, a last digit of 9: one in 130.
    assert found == 77
    assert any(SERVER in word for word in command([], 8501))
