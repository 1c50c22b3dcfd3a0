"""Names of buffers and ops as people know them: module path and operation, as `h.0.mlp.act · gelu`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.graph import Graph, Op, Phase
from memplan_engine.problem import Problem
from memplan_engine.units import shorten_path

SEPARATOR = " · "
MOST_OF = 0.5
"""A first segment that this share of the ops begins with is left out: "transformer", "bert", "model"."""
MOST_LETTERS = 90
"""Of a name in a sentence."""

_FLATTENED = ("p_", "b_", "c_")
"""What torch.export's names of parameters, buffers and constants begin with."""
_NO_NAME = re.compile("[^a-zA-Z0-9]")
"""What it makes "_" of."""


def short_name(name: str) -> str:
    """`name` as a sentence holds it: of a longer one the end, where names differ."""
    short = shorten_path(name, MOST_LETTERS, ".")
    return short.replace("….", "…", 1) if short != name else name


def kind_label(kind: str) -> str:
    """The operation without the namespace that nearly all have: "aten.gelu" → "gelu"."""
    return kind.removeprefix("aten.")


def module_paths(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The module path of every op by its dotted text, layer numbers joined to what they count:
    `transformer.h.0.mlp` → ("h.0", "mlp"). The segment that most of the ops begin with is left out where the
    paths stay different without it."""
    counts = Counter(op.module for op in graph.ops if op.module)
    segments = {module: module.split(".") for module in counts}
    first = Counter[str]()
    for module, count in counts.items():
        first[segments[module][0]] += count
    common, most = first.most_common(1)[0] if first else ("", 0)
    others = {path[0] for path in segments.values()} - {common}
    below = {path[1] for path in segments.values() if path[0] == common and len(path) > 1}
    if most > MOST_OF * len(graph.ops) and below and not below & others and not _counts(below):
        segments = {
            module: path[1:] if path[0] == common and len(path) > 1 else path
            for module, path in segments.items()
        }
    return {module: join_numbers(path) for module, path in segments.items()}


def _counts(segments: Iterable[str]) -> bool:
    """Whether one is a number, which says nothing without what stands before it."""
    return any(segment.isdigit() for segment in segments)


def join_numbers(path: Iterable[str]) -> tuple[str, ...]:
    """`path` with each number joined to what it counts: ("h", "0", "mlp") → ("h.0", "mlp")."""
    joined: list[str] = []
    for segment in path:
        if segment.isdigit() and joined:
            joined[-1] += f".{segment}"
        else:
            joined.append(segment)
    return tuple(joined)


def op_labels(graph: Graph) -> dict[str, str]:
    """What each op does within its module, by its name: "gelu", "mul.2" for the second of several, "mm
    (backward)". O(ops)."""
    labels: dict[str, str] = {}
    counts = Counter[tuple[str, str, Phase | None]]()
    for op in graph.ops:
        phase = op.phase if op.phase in (Phase.BACKWARD, Phase.OPTIMIZER) else None
        key = op.module, op.kind, phase
        counts[key] += 1
        number = f".{counts[key]}" if counts[key] > 1 else ""
        labels[op.name] = f"{kind_label(op.kind)}{number}{f' ({phase})' if phase else ''}"
    return labels


def op_names(problem: Problem) -> dict[str, str]:
    """The name of each op as people know it, by its name in the graph, which is kept where it stands in no
    module; none where there is no graph. O(ops), once a problem."""
    return problem.once(_op_names)


def _op_names(problem: Problem) -> dict[str, str]:
    return {} if problem.origin is None else names_of_ops(problem.origin.graph)


def step_labels(problem: Problem) -> list[str]:
    """The ops of each step as people know them, joined by commas; [] when the problem comes from no graph."""
    if problem.origin is None:
        return []
    names = op_names(problem)
    labels: list[list[str]] = [[] for _ in range(problem.steps)]
    for op, step in zip(problem.origin.graph.ops, problem.origin.schedule.step_of_op, strict=True):
        labels[step].append(names[op.name])
    return [", ".join(names) for names in labels]


def names_of_ops(graph: Graph) -> dict[str, str]:
    """`op_names` of a graph that nobody plans."""
    paths, labels = module_paths(graph), op_labels(graph)
    return {
        op.name: f"{'.'.join(paths[op.module])}{SEPARATOR}{labels[op.name]}" if op.module else op.name
        for op in graph.ops
    }


def weight_names(graph: Graph) -> dict[str, str]:
    """The names of weights that torch.export has flattened as people know them, by their names in the graph:
    "p_transformer_h_0_ln_1_weight" → "h.0.ln_1.weight", and the same of what an optimizer keeps for one.

    torch.export joins the parts of a path with "_", which stands within names as well: where a path was cut
    is told by the modules of the ops that read a weight, and one that none of them explains has no name here.
    O(ops × depth of the modules).
    """
    paths = module_paths(graph)
    unnamed = {name for name in graph.constants if name.startswith(_FLATTENED)}
    shown: dict[str, str] = {}
    for op in graph.ops:
        for name in unnamed.intersection((*op.inputs, *op.mutates)) if op.module else ():
            if label := _within(name[2:], op.module.split("."), paths[op.module]):
                shown[name] = label
                unnamed.discard(name)
    owners = {name: name.partition(".")[0] for name in unnamed}
    return shown | {name: shown[of] + name[len(of) :] for name, of in owners.items() if of in shown}


def _within(flat: str, segments: list[str], path: tuple[str, ...]) -> str:
    """What the flattened name `flat` is within the innermost of the modules `segments` that it begins with,
    behind the module's own path; "" where it begins with none. `path` is how people know all of them."""
    left_out = int(path != join_numbers(segments))
    for depth in range(len(segments), left_out, -1):
        lead = _NO_NAME.sub("_", "_".join(segments[:depth])) + "_"
        if len(flat) > len(lead) and flat.casefold().startswith(lead.casefold()):
            return ".".join((*join_numbers(segments[left_out:depth]), flat[len(lead) :]))
    return ""


def tensor_names(graph: Graph) -> dict[str, str]:
    """The name of each tensor that an op makes, views included, as people know it: that of the op, with the
    place of the tensor where the op makes several; and those of the weights."""
    names = names_of_ops(graph)
    return weight_names(graph) | {
        tensor: names[op.name] + (f"[{place}]" if len(op.outputs) > 1 else "") if op.module else tensor
        for op in graph.ops
        for place, tensor in enumerate(op.outputs)
    }


def labels_of(problem: Problem) -> dict[str, str]:
    """`buffer_names` by the names that the buffers have in the graph."""
    return dict(zip(problem.names, buffer_names(problem), strict=True))


def layout_names(problem: Problem) -> dict[str, str]:
    """The names of all that has a place in the memory of a plan, as people know them: weights, buffers, and
    the ops that have workspaces."""
    weights = weight_names(problem.origin.graph) if problem.origin else {}
    return weights | op_names(problem) | labels_of(problem)


def without_module(label: str) -> str:
    """What something is called where its module stands above it: "h.0.mlp.act · gelu" → "gelu"."""
    return label.rpartition(SEPARATOR)[2]


def buffer_names(problem: Problem) -> tuple[str, ...]:
    """The name of each buffer as people know it: that of the op that makes it. Buffers that come from no
    module keep their own. O(ops + buffers), once a problem."""
    return problem.once(_buffer_names)


def _buffer_names(problem: Problem) -> tuple[str, ...]:
    if problem.origin is None:
        return problem.names
    names = op_names(problem)
    makers = [
        provenance.maker if isinstance(provenance.maker, Op) else None
        for provenance in find_provenance(problem)
    ]
    several = Counter(maker.name for maker in makers if maker)
    seen = Counter[str]()
    shown = []
    for name, maker in zip(problem.names, makers, strict=True):
        if maker is None or not maker.module:
            shown.append(name)
            continue
        place = f"[{seen[maker.name]}]" if several[maker.name] > 1 else ""
        seen[maker.name] += 1
        shown.append(names[maker.name] + place)
    return tuple(shown)
