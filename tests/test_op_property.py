"""A property of an op is declared once, in `graph.py`; then files, tables and pages have it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests import ROOT
from tests.support.waiting import HANG_SECONDS


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Any]:
    """What `new_op_property` prints: three properties more, of which people are told of two."""
    path = tmp_path_factory.mktemp("new") / "net.json"
    line = [sys.executable, "-m", "tests.support.new_op_property", str(path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_written_read_and_kept_by_all_that_changes_ops(places):
    assert places["ops"] == dict.fromkeys(
        (
            "file",
            "file of a problem",
            "resolved",
            "in place",
            "with workspaces",
            "workspaces as tensors",
        ),
        [["Tensor", 4096, False]] * 2,
    )


def test_it_is_a_column_of_the_peak_and_a_fact_for_machines(places):
    tables = places["tables"]
    assert tables["peak"] == [[name, "Tensor", 4096] for name in ("h", "y", "mul.workspace")]
    assert tables["headings"] == [
        "buffer", "in graph", "size", "share", "kind", "module", "overload", "FLOPs", "source",
    ]  # fmt: skip
    assert tables["cells"] == [["Tensor"] * 3, ["4,096"] * 3]
    assert tables["diff"] == {"overload": "Tensor", "flops": 4096}


def test_it_is_in_the_report_unless_it_says_nothing(places):
    assert places["tables"]["report"] == [1, 1, 0, 0]
    assert places["tables"]["report cells"] == 3
    assert places["hover"] == [
        "float32 [16]",
        "aten.add",
        "aten.mul",
        "body",
        "Tensor",
        "4,096",
        "net.py:3 x + x",
    ]


def test_the_page_has_it_in_the_details_and_in_both_tables(places):
    assert places["page"] == {
        "details": ["body", "Tensor", "4,096"],
        "labels": ["module", "overload", "FLOPs"],
        "peak": [["Tensor", "4,096"]] * 3,
        "all": [["Tensor", "4,096"]] * 2,
    }
