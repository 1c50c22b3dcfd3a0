"""ExecuTorch programs as buffers, and as the plan that is in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.formats.executorch_program.pte_buffers import Uses
from memplan_engine.formats.executorch_program.pte_tables import IDENTIFIER, aligned, read_method
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.plan import Plan
from memplan_engine.planner import adopt
from memplan_engine.problem import Gap, Problem, make_problem

ALIGNMENT = 16
"""Of ExecuTorch, unless somebody asks for another: sizes are rounded up to it, too."""


@dataclass(frozen=True, slots=True)
class PteImporter:
    """Programs of ExecuTorch: the planned tensors of the method `forward`, or of the first one. A step is an
    instruction. What delegates plan for themselves is not in the file."""

    name: str = "pte"
    description: str = "an ExecuTorch program"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By the identifier behind the first offset."""
        return head[4:8] == IDENTIFIER

    def load(self, path: Path, options: ImportOptions) -> Problem | Plan:
        """The buffers, or with `options.offsets_as_plan` where the program has them.

        Raises
        ------
        InputError: a damaged file, a method without planned tensors, or with tensors in several memories.
        """
        method = read_method(path)
        memories = sorted({each.memory for each in method.placed.values()})
        if len(memories) > 1:
            found = f"tensors in the memories {', '.join(map(str, memories[:8]))}"
            raise InputError(path.name, f"method {method.name!r}", found, "a method with one memory")
        buffers = Uses(method).buffers()
        if not buffers:
            raise InputError(path.name, f"method {method.name!r}", "no planned tensors", "at least one")
        unit = ALIGNMENT if aligned(list(method.placed.values()), ALIGNMENT) else 1
        places = [[method.placed[value] for value in use.values] for use in buffers]
        problem = make_problem(
            [use.first for use in buffers],
            [use.last + 1 for use in buffers],
            [-(-max(each.nbytes for each in tensors) // unit) * unit for tensors in places],
            names=[f"{use.name.rpartition('::')[2]}_{min(use.values)}" for use in buffers],
            alignment=unit,
            gaps={row: tuple(Gap(*gap) for gap in use.gaps) for row, use in enumerate(buffers) if use.gaps},
            steps=len(method.steps) + 1,
            name=path.stem,
        )
        if not options.offsets_as_plan:
            return problem
        return adopt(problem, np.array([tensors[0].offset for tensors in places], np.int64))
