"""Colourings of the rectangles: each gives a palette index per buffer, the palette and its legend.

Categories: Paul Tol's bright and muted schemes, safe for colour-blind readers. Magnitudes: cividis
(Nuñez, Anderton and Renslow 2018), evenly sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.provenance import Provenance, find_provenance
from memplan_engine.analysis.training_phases import saved_activations
from memplan_engine.graph import Phase
from memplan_engine.problem import Problem
from memplan_engine.units import format_bytes

CATEGORIES = (
    ("#4477AA", "#5B8FC7"),
    ("#EE6677", "#F07F8E"),
    ("#228833", "#3FA652"),
    ("#CCBB44", "#D6C75E"),
    ("#66CCEE", "#66CCEE"),
    ("#AA3377", "#C75B99"),
    ("#EE7733", "#F28F56"),
    ("#44AA99", "#55BDAC"),
    ("#332288", "#8577D6"),
    ("#999933", "#B3B34D"),
)
SAVED, NO_PHASE = "saved for backward", "no phase"
PHASE_ORDER = ("forward", "backward", "optimizer", SAVED, NO_PHASE)
PHASE_COLOURS = dict(zip((Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER), CATEGORIES, strict=False))
OTHER = ("#BBBBBB", "#8A8A8A")
MAGNITUDES = (
    ("#00224E", "#45516C"),
    ("#2A3F6D", "#5B606E"),
    ("#575C6D", "#707173"),
    ("#7D7C78", "#8A8779"),
    ("#A59C74", "#A69D75"),
    ("#D2C060", "#C9B868"),
    ("#FEE838", "#FEE838"),
)
"""On a dark ground the scale begins where it can be seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Colouring:
    """`index` (uint8, n) into `palette`, pairs of a light and a dark colour; `legend` names the indices."""

    index: NDArray[np.uint8]
    palette: tuple[tuple[str, str], ...]
    legend: tuple[tuple[str, int], ...]


def by_kind(problem: Problem) -> Colouring:
    """By the kind of the op that makes the buffer."""
    return _categories([provenance.kind for provenance in find_provenance(problem)], problem)


def by_role(problem: Problem) -> Colouring:
    """By role: activation, output, input."""
    return _categories([str(provenance.role or "buffer") for provenance in find_provenance(problem)], problem)


def by_module(problem: Problem) -> Colouring:
    """By module path, as deep as ten colours reach, all layers of one kind taken together."""
    return _categories(_module_groups(find_provenance(problem)), problem)


def by_size(problem: Problem) -> Colouring:
    """By size, in seven equal steps of its logarithm."""
    return _magnitudes(problem.size, format_bytes)


def by_lifetime(problem: Problem) -> Colouring:
    """By lifetime in steps, in seven equal steps of its logarithm."""
    return _magnitudes(problem.end - problem.start, lambda steps: f"{steps:,} step{'s' * (steps != 1)}")


def by_phase(problem: Problem) -> Colouring:
    """By the phase of a training step that makes the buffer; what forward saves for backward is apart."""
    labels = _phases(problem)
    phases = [label for label in PHASE_ORDER if label in labels]
    index = np.array([phases.index(label) for label in labels], dtype=np.uint8)
    palette = dict(zip(PHASE_ORDER, CATEGORIES, strict=False))
    legend = tuple((label, colour) for colour, label in enumerate(phases))
    return Colouring(index, tuple(palette[label] for label in phases), legend)


COLOURINGS: dict[str, Callable[[Problem], Colouring]] = {
    "op kind": by_kind,
    "size": by_size,
    "lifetime": by_lifetime,
    "role": by_role,
    "module": by_module,
    "phase": by_phase,
}


def _phases(problem: Problem) -> list[str]:
    if problem.origin is None:
        return [NO_PHASE] * len(problem)
    graph = problem.origin.graph
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    phase_of: dict[str, str] = {}
    for op in graph.ops:
        for name in op.outputs:
            phase_of.setdefault(home[name], str(op.phase or NO_PHASE))
    phase_of |= dict.fromkeys(saved_activations(graph), SAVED)
    return [phase_of.get(name, NO_PHASE) for name in problem.names]


def _categories(labels: Sequence[str], problem: Problem) -> Colouring:
    """The ten labels with the most bytes × steps get a colour of their own."""
    weight: Counter[str] = Counter()
    areas = problem.size.astype(float) * (problem.end - problem.start)
    for label, area in zip(labels, areas.tolist(), strict=True):
        weight[label] += area
    ranked = [label for label, _ in weight.most_common()]
    own = {label: colour for colour, label in enumerate(ranked[: len(CATEGORIES)])}
    rest = len(own)
    index = np.array([own.get(label, rest) for label in labels], dtype=np.uint8)
    legend = [(label or "no module", colour) for label, colour in own.items()]
    if len(ranked) > rest:
        legend.append((f"{len(ranked) - rest} others", rest))
    return Colouring(index, (*CATEGORIES[:rest], OTHER), tuple(legend))


def _magnitudes(values: NDArray[np.int64], text: Callable[[int], str]) -> Colouring:
    logs = np.log2(np.maximum(values, 1).astype(float))
    low, high = (float(logs.min()), float(logs.max())) if len(logs) else (0.0, 0.0)
    bins = len(MAGNITUDES) if high > low else 1
    span = (high - low) or 1.0
    index = np.minimum((logs - low) / span * bins, bins - 1).astype(np.uint8)
    # The smallest value of each colour; colours that nothing has are left out.
    legend = [
        (f"from {text(int(values[index == colour].min()))}", colour) for colour in np.unique(index).tolist()
    ]
    return Colouring(index, MAGNITUDES[:bins], tuple(legend))


def _module_groups(provenances: Sequence[Provenance]) -> list[str]:
    """Module paths cut at the greatest depth that leaves ten groups or fewer; layers count as one: `h.*`."""
    paths = [
        tuple("*" if part.isdigit() else part for part in provenance.module.split("."))
        for provenance in provenances
    ]
    best = [".".join(path[:1]) for path in paths]
    for depth in range(2, max(map(len, paths), default=1) + 1):
        groups = [".".join(path[:depth]) for path in paths]
        if len(set(groups)) > len(CATEGORIES):
            break
        best = groups
    return best
