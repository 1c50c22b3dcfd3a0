"""Calibrations as files: read back equal, and refused in one line where they are not sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from memplan_engine.calibration.kernel_table import Calibration
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.calibration_format import (
    dump_calibration,
    load_calibration,
    write_calibration,
)
from memplan_engine.formats.memplan_json.schema import FOLDER
from tests.calibration.test_formulas import table


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    write_calibration(table(), path)
    read = load_calibration(path)
    assert isinstance(read, Calibration)
    assert (read.machine, read.formulas) == (table().machine, table().formulas)
    jsonschema.validate(
        json.loads(path.read_bytes()), json.loads((FOLDER / "calibration.v2.json").read_bytes())
    )


def wrong(change: Any) -> str:
    document = json.loads(dump_calibration(table()))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (wrong(lambda d: d.update(format="memplan/graph")), "expected memplan/calibration"),
        (wrong(lambda d: d.update(version=3)), "field version"),
        (wrong(lambda d: d.pop("machine")), "field machine"),
        (wrong(lambda d: d["formulas"].append(d["formulas"][0])), "formulas[1]"),
        (wrong(lambda d: d["formulas"][0]["sums"][0].update(w=1)), "'w'"),
        (wrong(lambda d: d["formulas"][0]["sums"][0].update(in0=10**7)), "sums[0].in0"),
        (wrong(lambda d: d["formulas"][0]["low"].pop("in0")), "formulas[0].low"),
        (wrong(lambda d: d["formulas"][0].update(worst_error=-1.0)), "worst_error"),
        ("[]", ""),
    ],
)
def test_a_file_that_is_not_sound_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_calibration(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith("bad.json")
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    text = dump_calibration(table()).rstrip()
    path = tmp_path / "cut.json"
    for length in range(0, len(text) - 1, 7):
        path.write_bytes(text[:length])
        with pytest.raises(InputError, match=r"cut\.json"):
            load_calibration(path)
