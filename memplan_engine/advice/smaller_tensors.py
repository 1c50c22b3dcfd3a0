"""Proposals that make the tensors of the peak smaller, with their counterparts in all layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from memplan_engine.advice.code import code_changes
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.values import Candidate
from memplan_engine.advice.words import listed
from memplan_engine.analysis.buffer_names import kind_label, module_paths
from memplan_engine.analysis.provenance import Provenance, find_provenance
from memplan_engine.analysis.tied_peaks import layer_of, repeated
from memplan_engine.analysis.training_phases import is_training
from memplan_engine.graph import PRODUCED, Graph, Op
from memplan_engine.problem import FREE, Problem
from memplan_engine.profile import bytes_held
from memplan_engine.units import format_bytes
from memplan_engine.what_if.edits import MOST_EDITS, Resize

HALF = {"float64": "float32", "float32": "bfloat16", "complex128": "complex64", "int64": "int32"}
"""The type of half the bytes, by the name of the other."""
LEAST_SHARE = 0.05
"""What a pattern holds of the peak, to be among those that are made smaller."""
MOST_PATTERNS = 2
"""How many are tried alone."""
MOST_PEAKS = 64
"""At how many of the tied peaks one looks for what holds them."""

Key = tuple[str, str, int, str]


@dataclass(slots=True)
class Pattern:
    """Results that repeat through the layers: of one kind of op, one size (bytes) and one type, in modules
    that differ in numbers only. `rows` are the buffers, `at_peak` the most bytes that they hold at a peak."""

    module: str
    kind: str
    dtype: str
    rows: list[int] = field(default_factory=list)
    at_peak: int = 0


def propose_half(situation: Situation) -> Iterator[Candidate]:
    """Half of the bytes for what holds the peak: each of the largest patterns alone, and all of them. Not of
    a training step: gradients have the type of their weights, and under autocast losses stay in float32, so
    that a cast in the forward pass saved a ninth of what the resized plan did."""
    if situation.graph is None or not situation.peaks or is_training(situation.graph):
        return
    least = max(LEAST_SHARE * situation.peaks[0].nbytes, 1)
    large = [each for each in patterns_at_peak(situation) if each.at_peak >= least]
    for several in [[each] for each in large[:MOST_PATTERNS]] + [large] * (len(large) > 1):
        rows = [row for each in several for row in each.rows]
        if len(rows) + len(situation.edits) <= MOST_EDITS:
            yield _candidate(situation, several, rows)


def patterns_at_peak(situation: Situation) -> list[Pattern]:
    """The patterns of which something is live at a tied peak and whose type has one of half the bytes, those
    that hold most first. Buffers that are pinned, made by no op or by one that torch runs by itself, and
    results of branches, which have one type in all of them, belong to none."""
    problem = situation.problem
    results = _results_of_branches(situation.graph) if situation.graph else set()
    provenances = find_provenance(problem)
    patterns: dict[Key, Pattern] = {}
    of_row: dict[int, Pattern] = {}
    resized = {edit.buffer for edit in situation.edits if isinstance(edit, Resize)}
    for row, provenance in enumerate(provenances):
        maker = provenance.maker
        made = provenance.role in PRODUCED and isinstance(maker, Op) and not maker.is_of_torch
        if problem.names[row] in resized or problem.names[row] in results:
            continue
        if made and provenance.dtype in HALF and problem.fixed[row] == FREE:
            key = _key(problem, row, provenance)
            pattern = patterns.setdefault(key, Pattern(key[0], key[1], provenance.dtype))
            pattern.rows.append(row)
            of_row[row] = pattern
    for peak in situation.peaks[:MOST_PEAKS]:
        held = bytes_held(problem, peak.step)
        together: dict[int, int] = {}
        for row in held.nonzero()[0].tolist():
            if row in of_row:
                together[id(of_row[row])] = together.get(id(of_row[row]), 0) + int(held[row])
        for pattern in patterns.values():
            pattern.at_peak = max(pattern.at_peak, together.get(id(pattern), 0))
    return sorted((each for each in patterns.values() if each.at_peak), key=lambda each: -each.at_peak)


def _results_of_branches(graph: Graph) -> set[str]:
    """Return the storages that an op with others inside it returns."""
    calls = {call for op in graph.ops for call, _ in op.within}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    return {home[name] for op in graph.ops if op.name in calls for name in op.outputs}


def _key(problem: Problem, row: int, provenance: Provenance) -> Key:
    return repeated(provenance.module), provenance.kind, int(problem.size[row]), provenance.dtype


def _candidate(situation: Situation, patterns: list[Pattern], rows: list[int]) -> Candidate:
    problem = situation.problem
    assert problem.origin
    graph, provenances = problem.origin.graph, find_provenance(problem)
    makers = [each.maker for row in rows if isinstance((each := provenances[row]).maker, Op)]
    types = listed(dict.fromkeys(HALF[each.dtype] for each in patterns))
    where = _where(graph, [maker.module for maker in makers])
    if len(patterns) == 1:
        size = format_bytes(int(problem.size[rows[0]]))
        # Without a module the size says which of several.
        what = f"{kind_label(patterns[0].kind)}{f' of {where}' if where else f' ({size})'}"
        title, part = f"{types} for {what}", f"{types} for {where or what}"
    else:
        what = "what holds the peak"
        title = part = f"{types} at the peak{f' in {where}' if where else ''}"
    layers = len({layer_of(maker.module) for maker in makers if repeated(maker.module) != maker.module})
    times = f", in {layers:,} layers" if layers > 1 else f", {len(rows):,} times" * (len(rows) > 1)
    inside = any(maker.within for maker in makers)
    dtype_of = {each.module + each.kind: each.dtype for each in patterns}
    return Candidate(
        ("half",),
        title,
        edits=tuple(Resize(problem.names[row], -(-int(problem.size[row]) // 2)) for row in rows),
        same_bits=False,
        note=f"compute {what} in {types}{times}: results are rounded, so not the same bits; autocast keeps "
        "elementwise ops in float32" + "; what a branch or a turn gives keeps its type" * inside,
        code=code_changes(graph, makers, lambda op: _code(op, dtype_of[repeated(op.module) + op.kind])),
        parts=(part,),
    )


def _where(graph: Graph, modules: Iterable[str]) -> str:
    """What the paths of `modules` have in common, with * for the numbers of layers: "h.*.mlp"."""
    paths = module_paths(graph)
    whole = {paths.get(module, ()) for module in modules}
    told = whole if len(whole) == 1 else {tuple(map(repeated, path)) for path in whole}
    columns = takewhile(lambda segments: len(set(segments)) == 1, zip(*told, strict=False))
    common = ".".join(segments[0] for segments in columns)
    return common if common != "*" else ""


def _code(op: Op, dtype: str) -> str:
    """Python by which `op` makes a result of half the bytes of `dtype`."""
    half = HALF[dtype]
    if not op.inputs:
        return f"dtype=torch.{half}"
    return f"x.to(torch.{half})  # for each {dtype} input x of this op"
