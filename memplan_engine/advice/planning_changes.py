"""Proposals that change how the same ops are planned: reuse, alignment, what is held, streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memplan_engine.advice.code import code_changes, concat_code, in_place_code
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.source_edits import edited_line
from memplan_engine.advice.values import Candidate, CodeChange, OpChange
from memplan_engine.advice.words import capitalised
from memplan_engine.graph import Graph, Op, Phase
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, Unread
from memplan_engine.profile import load_of
from memplan_engine.rewrites.early_updates import gradient_storages
from memplan_engine.rewrites.held_gradients import gradients, held_gradients
from memplan_engine.rewrites.reuse import Reused, Rewrite
from memplan_engine.schedule import moved_ops
from memplan_engine.units import count_of
from memplan_engine.what_if.edits import MOST_EDITS, Align

PARTS = {"in_place": "in place", "concat": "concat without copies"}
"""The ways to reuse memory, with what they are called in a combination."""
REUSE = tuple(PARTS)
_EARLY_UPDATES = """
# once, after {optimizer} is made; {optimizer}.step() in the loop may stay, and finds no gradient
def update(parameter):
    {optimizer}.step()  # no other parameter has a gradient
    parameter.grad = None

for group in {optimizer}.param_groups:
    for parameter in group["params"]:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(update)
"""
_STEP = re.compile(r"([A-Za-z_][\w.]*)\.step\(")


def propose_reuse(situation: Situation) -> Iterator[Candidate]:
    """Writing in place, concatenating without copies, and both."""
    if situation.graph is None:
        return
    missing = [name for name in REUSE if not getattr(situation.how, name)]
    ways = [{name: True} for name in missing]
    if len(missing) > 1:
        ways.append(dict.fromkeys(missing, True))
    rewritten: list[dict[str, bool]] = []
    for options in ways:
        if len(options) > 1 and len(rewritten) < len(options):
            # One of the two has nothing to do.
            continue
        reused = situation.reused(options)
        if reused is None or not all(_of(reused, name) for name in options):
            continue
        rewritten.append(options)
        code = _reuse_code(situation, reused, options)
        parts = tuple(PARTS[name] for name in options)
        yield Candidate(tuple(options), _title(reused, options), options, code=code, parts=parts)


def _of(reused: Reused, name: str) -> tuple[Rewrite, ...]:
    return reused.in_place if name == "in_place" else reused.concats


def _title(reused: Reused, options: Mapping[str, Any]) -> str:
    if len(options) > 1:
        return capitalised(", and ".join(PARTS.values()))
    if "in_place" in options:
        return f"Write {count_of(len(reused.in_place), 'result')} in place"
    joined = len({rewrite.op for rewrite in reused.concats})
    return f"Make {count_of(joined, 'concatenation')} without copies"


def _reuse_code(situation: Situation, reused: Reused, options: Mapping[str, Any]) -> tuple[CodeChange, ...]:
    """The lines of what is rewritten, those that run at the peak first, then those of most bytes."""
    at_peak = _peak_steps(situation)
    op_of = {op.name: op for op in reused.graph.ops}
    dtypes = {tensor.name: tensor.dtype for tensor in reused.graph.tensors}
    changes: tuple[CodeChange, ...] = ()
    for name in options:
        rewrites = sorted(
            _of(reused, name), key=lambda each: (each.step not in at_peak, -each.nbytes, each.step)
        )
        written = {rewrite.op: rewrite.tensor for rewrite in rewrites}

        def instead(op: Op, written: Mapping[str, str] = written, name: str = name) -> str:
            if name != "in_place":
                return concat_code(op)
            # Eager mode writes no other type over a tensor.
            alike = dtypes[written[op.name]] == dtypes[op.outputs[0]]
            return in_place_code(op, written[op.name]) if alike else ""

        for change in code_changes(reused.graph, (op_of[op] for op in written), instead):
            edited = ""
            if name == "in_place" and change.source:
                edited = edited_line(reused.graph, change.source, written)
            changes += (replace(change, edited=edited),)
    return changes


def _peak_steps(situation: Situation) -> set[int]:
    load = load_of(situation.problem)
    bounds = load.sections.bounds
    rows = (load.live == load.peak).nonzero()[0]
    return {step for row in rows.tolist() for step in range(int(bounds[row]), int(bounds[row + 1]))}


def propose_order(situation: Situation) -> Iterator[Candidate]:
    """Another order of the ops; with writes in place where only together with them it is another one."""
    how, graph = situation.how, situation.graph
    if graph is None or how.reorder or how.streams is not None or how.schedule is not None:
        return
    ways: list[dict[str, bool]] = [{"reorder": True}]
    if not how.in_place:
        ways.append({"reorder": True, "in_place": True})
    for options in ways:
        found = situation.reused(options)
        if found is None or not (moved := moved_ops(graph, found.graph)):
            continue
        note = "only the order of the ops changes; memplan run --reorder runs the model in it"
        yield order_change(moved, options, note)
        return


def order_change(moved: Sequence[str], options: Mapping[str, Any], note: str) -> Candidate:
    """Another order of the ops, in which those that are `moved` are all that moves; with writes in place
    where `options` has them, too."""
    written = (PARTS["in_place"],) if "in_place" in options else ()
    title = ", ".join((f"Reorder {count_of(len(moved), 'op')}", *written))
    return Candidate(tuple(options), title, dict(options), note=note, parts=("reordered ops", *written))


def propose_early_updates(situation: Situation) -> Iterator[Candidate]:
    """The optimizer in the backward pass, which frees each gradient early; where every gradient can go so and
    one optimizer has them all to itself."""
    how, graph = situation.how, situation.graph
    if graph is None or how.early_updates or how.streams is not None or how.schedule is not None:
        return
    held = held_gradients(graph)
    optimizers = _optimizers(graph)
    if not all(group.free_by_hooks for group in held) or len(optimizers) != 1 or not gradients(graph):
        return
    (optimizer,) = optimizers
    if not optimizer:
        return
    count = sum(len(group.tensors) for group in held)
    code = _EARLY_UPDATES.strip().format(optimizer=optimizer)
    yield Candidate(
        ("early_updates",),
        "Run the optimizer in the backward pass",
        {"early_updates": True},
        note=f"{count_of(count, 'parameter')} updated as soon as the gradient is complete, which is "
        "freed: no gradient is there after the step, and gradients cannot be clipped together",
        code=(CodeChange(None, "", (OpChange("parameters", count, code),)),),
        parts=("optimizer in the backward pass",),
    )


def _optimizers(graph: Graph) -> set[str]:
    """Return what each line that reads gradients calls `step()` on, "optimizer" for a line of torch's own or
    none; with "" where something else than an optimizer reads or changes them, as clipping by value does."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    found: set[str] = set()
    for storage, places in gradient_storages(graph).items():
        for op in (graph.ops[index] for index in places):
            if op.phase is not Phase.OPTIMIZER:
                continue
            if storage in {home[name] for name in op.mutates}:
                found.add("")
            elif op.source is None or "torch/optim/" in op.source.file:
                found.add("optimizer")
            else:
                found.update(_STEP.findall(op.source.code) or [""])
    return found


def propose_alignment(situation: Situation) -> Iterator[Candidate]:
    """A smaller alignment: that of the widest elements for a graph, none at all for buffers."""
    problem, how, graph = situation.problem, situation.how, situation.graph
    if situation.plan.arena_bytes <= load_of(problem).peak and not how.round_sizes:
        return
    note = "vector loads of a CPU and some GPU kernels want aligned addresses"
    if graph is not None:
        now = DEFAULT_ALIGNMENT if how.alignment is None else how.alignment
        least = max((_itemsize(t.nbytes, t.shape) for t in graph.tensors), default=1)
        if least < now:
            title = f"Align to {count_of(least, 'byte')}, not to {now}"
            yield Candidate(("alignment",), title, {"alignment": least}, same_bits=False, note=note)
        return
    if how.alignment is not None:
        title = f"Align as the list says, not to {count_of(how.alignment, 'byte')}"
        yield Candidate(("alignment",), title, {"alignment": None}, same_bits=False, note=note)
    aligned = (problem.alignment > 1).nonzero()[0].tolist()
    if 0 < len(aligned) + len(situation.edits) <= MOST_EDITS:
        edits = tuple(Align(problem.names[row], 1) for row in aligned)
        title = f"Give up the alignment of {count_of(len(edits), 'buffer')}"
        yield Candidate(("alignment",), title, edits=edits, same_bits=False, note=note)


def propose_defaults(situation: Situation) -> Iterator[Candidate]:
    """What the plan was asked for that costs bytes: sizes rounded up, values held, several ops at once."""
    how = situation.how
    if how.round_sizes:
        yield Candidate(("round_sizes",), "Do not round sizes up", {"round_sizes": False})
    if how.unread is Unread.HELD:
        yield Candidate(
            ("unread",),
            "Free values that nobody reads at once",
            {"unread": Unread.FREED},
            note="Python frees what has no name: write no variable that nothing reads",
        )
    if how.streams is not None and how.streams > 1:
        yield Candidate(
            ("streams",), "Run one op at a time", {"streams": None}, note="ops no longer run at the same time"
        )


def propose_sizes(situation: Situation) -> Iterator[Candidate]:
    """Half of a symbolic size: a smaller batch, a shorter sequence."""
    loaded = situation.loaded
    if not isinstance(loaded, Graph):
        return
    given = dict(situation.how.symbols)
    for symbol in loaded.symbols:
        name = symbol.called if symbol.called in given else symbol.name
        value = given.get(name, symbol.hint)
        if value is None or value // 2 < max(symbol.low, 1):
            continue
        symbols = tuple({**given, name: value // 2}.items())
        yield Candidate(
            ("size",),
            f"Halve {symbol}, {value:,} to {value // 2:,}",
            {"symbols": symbols},
            same_bits=False,
            note="another shape: fewer results at once",
        )


def _itemsize(nbytes: int, shape: tuple[int, ...]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return nbytes // elements if elements else 1
