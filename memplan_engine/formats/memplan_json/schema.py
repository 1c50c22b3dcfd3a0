"""The published JSON Schemas. `python -m memplan_engine.formats.memplan_json.schema` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path

from memplan_engine.formats.memplan_json.banks.banks_format import BankedPlanFile
from memplan_engine.formats.memplan_json.calibration_format import CalibrationFile
from memplan_engine.formats.memplan_json.edits_format import EditsFile
from memplan_engine.formats.memplan_json.flow_format import FlowFile
from memplan_engine.formats.memplan_json.graph_format import GraphFile
from memplan_engine.formats.memplan_json.json_base import Strict
from memplan_engine.formats.memplan_json.observation_format import ObservationFile
from memplan_engine.formats.memplan_json.plan_format import PlanFile
from memplan_engine.formats.memplan_json.problem_format import ProblemFile
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.formats.memplan_json.schedule_format import ScheduleFile
from memplan_engine.system import write_atomically

FOLDER = Path(__file__).parents[2] / "schema"
_FILES: dict[str, type[Strict]] = {
    "graph": GraphFile,
    "problem": ProblemFile,
    "plan": PlanFile,
    "schedule": ScheduleFile,
    "edits": EditsFile,
    "observation": ObservationFile,
    "run": RunFile,
}
_LATER: dict[tuple[str, int], type[Strict]] = {
    ("observation", 2): FlowFile,
    ("plan", 2): BankedPlanFile,
    # Version 1 is one without what came with version 2: files of it are files of this.
    ("calibration", 2): CalibrationFile,
}


def schemas() -> dict[str, bytes]:
    """File name → JSON Schema (draft 2020-12) of each format, as it is published."""
    made = {}
    files = {(kind, 1): model for kind, model in _FILES.items()} | _LATER
    for (kind, version), model in files.items():
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **model.model_json_schema(),
            "title": f"memplan/{kind}, version {version}",
        }
        made[f"{kind}.v{version}.json"] = json.dumps(schema, indent=2).encode() + b"\n"
    return made


if __name__ == "__main__":
    for name, text in schemas().items():
        write_atomically(FOLDER / name, text)
