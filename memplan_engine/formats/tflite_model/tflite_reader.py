"""TensorFlow Lite models, without their weights, as graphs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.tflite_model.offline_plan import plan_in_file
from memplan_engine.formats.tflite_model.tflite_graph import read_model
from memplan_engine.formats.tflite_model.tflite_schema import IDENTIFIER
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan


@dataclass(frozen=True, slots=True)
class TfliteImporter:
    """Models of TensorFlow Lite. Variables belong to the model, as its weights do; subgraphs that IF, WHILE
    and CALL_ONCE call stand behind the op that calls them."""

    name: str = "tflite"
    description: str = "a TensorFlow Lite model"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By the identifier behind the first offset."""
        return head[4:8] == IDENTIFIER

    def load(self, path: Path, options: ImportOptions) -> Graph | Plan:
        """The graph, or with `options.offsets_as_plan` the offline plan in the file, where it places all.

        Raises
        ------
        InputError: a damaged file, and as `TfliteModel.graph` and `offline_plan.offline_offsets` do.
        """
        model = read_model(path)
        graph = model.graph(path.stem)
        return (options.offsets_as_plan and plan_in_file(model, graph)) or graph
