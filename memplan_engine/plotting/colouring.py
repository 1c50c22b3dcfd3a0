"""Colourings of the rectangles: each gives a palette index per buffer, the palette and its legend.

A module role, an op kind, a role and a phase have one colour in every graph. Categories: Paul Tol's bright
and muted schemes, safe for colour-blind readers. Magnitudes: cividis (Nuñez, Anderton and Renslow 2018),
evenly sampled.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.module_roles import ModuleRole, kind_name, module_roles
from memplan_engine.analysis.provenance import Provenance, find_provenance
from memplan_engine.analysis.training_phases import saved_activations
from memplan_engine.graph import Phase, Role
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
HELD_COLOURS = {
    "weight": "#4477AA",
    "optimizer state": "#332288",
    "gradient": "#AA3377",
    "input": "#66CCEE",
    "activation": "#44AA99",
    "KV cache": "#DDCC77",
    "temporary": "#999933",
    "all-gather": "#CCBB44",
    "reduce-scatter": "#EE7733",
    "all-reduce": "#EE6677",
    "point to point": "#228833",
    "communication": "#CC6677",
    "unknown": "#BBBBBB",
}
"""Of every category that memory is held for, in the order in which they are stacked."""
SAVED, NO_PHASE = "saved for backward", "no phase"
PHASE_ORDER = ("forward", "backward", "optimizer", SAVED, NO_PHASE)
PHASE_COLOURS = dict(zip((Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER), CATEGORIES, strict=False))
OTHER = ("#BBBBBB", "#8A8A8A")
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, ORANGE, TEAL, INDIGO, OLIVE = range(10)
ROLE_COLOURS = {
    ModuleRole.ATTENTION: RED,
    ModuleRole.MLP: BLUE,
    ModuleRole.RESIDUAL: GREEN,
    ModuleRole.NORM: CYAN,
    ModuleRole.EMBEDDING: YELLOW,
    ModuleRole.HEAD: PURPLE,
    ModuleRole.CONVOLUTION: ORANGE,
    ModuleRole.ACTIVATION: TEAL,
    ModuleRole.POOLING: INDIGO,
}
STORAGE_COLOURS = {str(Role.ACTIVATION): BLUE, str(Role.OUTPUT): RED, str(Role.INPUT): GREEN}
_KINDS = {
    BLUE: "addmm linear gemm fully_connected; mm matmul; bmm baddbmm",
    RED: "mul; pow; div",
    GREEN: "add; sub; neg sum",
    YELLOW: "layer_norm native_layer_norm batch_norm native_batch_norm layernormalization; rsqrt; mean",
    CYAN: "tanh gelu; relu silu; hardtanh sigmoid",
    PURPLE: "scaled_dot_product_attention scaled_dot_product_flash_attention_for_cpu; softmax safe_softmax; "
    "log_softmax",
    ORANGE: "conv2d convolution conv conv_2d; conv1d depthwise_conv_2d; max_pool2d maxpool",
    TEAL: "embedding embedding_dense; gather index; arange cumsum",
    INDIGO: "cat concat; clone contiguous copy to; pad reshape transpose view",
    OLIVE: "where; eq ne le ge; empty_like zeros_like ones_like",
}
"""The hue of a kind of op, and which of its three shades: so that those of one model can be told apart."""
_SHADES = 3
_SHADE_OF = {
    kind: hue * _SHADES + shade
    for hue, shades in _KINDS.items()
    for shade, kinds in enumerate(shades.split(";"))
    for kind in kinds.split()
}
_BACKWARD = "_backward"
_STRENGTH = 0.5
"""By how much a lighter or darker shade is mixed with white or black."""
_SIZES = tuple(tuple(2**power for power in range(0, 63, gap)) for gap in (1, 2, 5, 10))
"""1 KiB, 32 KiB, 1 MiB … where sizes are far apart."""
SMALL_SHARE = 0.01
"""What is too small to see: with all of it on the scale, GPT-2's sizes from 1 to 12 MiB had one colour, for
the sake of a buffer of 8 bytes."""
_LIFETIMES = (
    tuple(range(1, 64)),
    *(
        tuple(factor * 10**power for power in range(0, 18, gap) for factor in factors)
        for gap, factors in ((1, (1, 2, 5)), (1, (1,)), (3, (1,)))
    ),
)
MAGNITUDES = (
    ("#00224E", "#45516C"),
    ("#2A3F6D", "#5B606E"),
    ("#575C6D", "#707173"),
    ("#82817B", "#8A8779"),
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


def by_module_role(problem: Problem) -> Colouring:
    """By the part of the model that makes the buffer: attention, mlp, residual, norm …"""
    return _fixed([str(role) for role in module_roles(problem)], {str(r): c for r, c in ROLE_COLOURS.items()})


def by_kind(problem: Problem) -> Colouring:
    """By the kind of the op that makes the buffer: ten hues in three shades, known kinds by a table, others
    by a hash of their name; what runs backward has the hue of its forward op."""
    labels = [provenance.kind for provenance in find_provenance(problem)]
    shades = {label: _shade_of_kind(label) for label in set(labels)}
    ranked = _ranked(labels, problem)
    own = {shade: place for place, shade in enumerate(dict.fromkeys(shades[label] for label in ranked))}
    index = np.array([own[shades[label]] for label in labels], dtype=np.uint8)
    legend = tuple((label, own[shades[label]]) for label in ranked)
    return Colouring(index, tuple(map(_shaded, own)), legend)


def by_role(problem: Problem) -> Colouring:
    """By role: activation, output, input."""
    return _fixed([str(each.role or "buffer") for each in find_provenance(problem)], STORAGE_COLOURS)


def by_module(problem: Problem) -> Colouring:
    """By module path, as deep as ten colours reach, all layers of one kind taken together. A path has its
    colour by its name, unless a larger one has it."""
    return _categories(_module_groups(find_provenance(problem)), problem)


def by_size(problem: Problem) -> Colouring:
    """By size, on a scale of powers of two, which begins where the bytes are: the smallest buffers, with
    SMALL_SHARE of all bytes or less, are at its foot."""
    ascending = np.sort(problem.size)
    held = np.cumsum(ascending)
    small = int(np.searchsorted(held, SMALL_SHARE * held[-1], side="right")) if len(held) else 0
    return _magnitudes(problem.size, format_bytes, _SIZES, int(ascending[small]) if small < len(held) else 0)


def by_lifetime(problem: Problem) -> Colouring:
    """By lifetime in steps, on a scale of round numbers."""
    lifetimes = problem.end - problem.start
    return _magnitudes(lifetimes, lambda steps: f"{steps:,} step{'s' * (steps != 1)}", _LIFETIMES)


def by_phase(problem: Problem) -> Colouring:
    """By the phase of a training step that makes the buffer; what forward saves for backward is apart."""
    labels = _phases(problem)
    phases = [label for label in PHASE_ORDER if label in labels]
    index = np.array([phases.index(label) for label in labels], dtype=np.uint8)
    palette = dict(zip(PHASE_ORDER, CATEGORIES, strict=False))
    legend = tuple((label, colour) for colour, label in enumerate(phases))
    return Colouring(index, tuple(palette[label] for label in phases), legend)


COLOURINGS: dict[str, Callable[[Problem], Colouring]] = {
    "module role": by_module_role,
    "op kind": by_kind,
    "size": by_size,
    "lifetime": by_lifetime,
    "role": by_role,
    "module": by_module,
    "phase": by_phase,
}


def knows_roles(problem: Problem) -> bool:
    """Whether at least half of bytes × steps belongs to a part of the model that is known."""
    areas = problem.size.astype(float) * (problem.end - problem.start)
    known = np.array([role is not ModuleRole.OTHER for role in module_roles(problem)], dtype=bool)
    return bool(len(areas)) and float(areas[known].sum()) >= areas.sum() / 2


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


def _ranked(labels: Sequence[str], problem: Problem) -> list[str]:
    """The labels, those with the most bytes × steps first."""
    weight: Counter[str] = Counter()
    areas = problem.size.astype(float) * (problem.end - problem.start)
    for label, area in zip(labels, areas.tolist(), strict=True):
        weight[label] += area
    return [label for label, _ in weight.most_common()]


def _fixed(labels: Sequence[str], hues: Mapping[str, int]) -> Colouring:
    """Each label in the hue that `hues` gives it, in that order; all others in grey."""
    known = set(labels)
    shown = [*(label for label in hues if label in known), *sorted(known - hues.keys())]
    place = {label: min(i, len(known & hues.keys())) for i, label in enumerate(shown)}
    palette = [CATEGORIES[hues[label]] for label in shown if label in hues]
    index = np.array([place[label] for label in labels], dtype=np.uint8)
    return Colouring(index, (*palette, OTHER), tuple(place.items()))


def _shade_of_kind(kind: str) -> int:
    name = kind_name(kind)
    forward = name.removesuffix(_BACKWARD).removesuffix("_backward_data")
    shade = _SHADE_OF.get(forward, zlib.crc32(forward.encode()) % (len(CATEGORIES) * _SHADES))
    return shade if name == forward else shade - shade % _SHADES + (shade + 1) % _SHADES


def _shaded(shade: int) -> tuple[str, str]:
    """A hue as it is, lighter, or darker."""
    hue, variant = divmod(shade, _SHADES)
    light, dark = CATEGORIES[hue]
    return light if not variant else _mixed(light, variant), dark if not variant else _mixed(dark, variant)


def _mixed(colour: str, variant: int) -> str:
    ground = (255, 20)[variant - 1]
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (ground - part) * _STRENGTH):02X}" for part in parts)


def _categories(labels: Sequence[str], problem: Problem) -> Colouring:
    """The ten labels with the most bytes × steps get a colour of their own: that of their name, or the next
    that is free."""
    ranked = _ranked(labels, problem)
    own: dict[str, int] = {}
    for label in ranked[: len(CATEGORIES)]:
        hue = zlib.crc32(label.encode())
        own[label] = next(c % 10 for c in range(hue, hue + 10) if c % 10 not in own.values())
    rest = len(CATEGORIES)
    index = np.array([own.get(label, rest) for label in labels], dtype=np.uint8)
    legend = [(label or "no module", colour) for label, colour in own.items()]
    if len(ranked) > rest:
        legend.append((f"{len(ranked) - rest} others", rest))
    return Colouring(index, (*CATEGORIES, OTHER), tuple(legend))


def _magnitudes(
    values: NDArray[np.int64], text: Callable[[int], str], scales: Sequence[Sequence[int]], foot: int = 0
) -> Colouring:
    """On the finest of `scales` (ascending, from 1) that needs no more colours than there are; what is below
    `foot` has the colour of it."""
    if not len(values):
        return Colouring(np.zeros(0, np.uint8), MAGNITUDES[:1], ())
    for scale in scales:
        places = np.searchsorted(scale, np.maximum(values, max(foot, 1)), side="right") - 1
        low, bins = int(places.min()), int(places.max() - places.min()) + 1
        if bins <= len(MAGNITUDES) and values.max() < scale[-1]:
            break
    # From the darkest to the lightest, however few they are.
    palette = [MAGNITUDES[round(i * (len(MAGNITUDES) - 1) / max(1, bins - 1))] for i in range(bins)]
    index = (places - low).astype(np.uint8)
    least = int(values.min())
    legend = [(f"≥ {text(scale[low + c] if c or least else 0)}", c) for c in np.unique(index).tolist()]
    if least < foot and least < scale[low]:
        legend[0] = (f"< {text(scale[low + 1])}", 0)
    return Colouring(index, tuple(palette), tuple(legend))


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
