"""Edits and suggestions as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.problem import Problem
from memplan_engine.units import exact, format_bytes, format_span
from memplan_engine.what_if.edits import Align, Drop, Edit, Pin, Resize, Shorten, Split
from memplan_engine.what_if.suggestions.cover import Shortage
from memplan_engine.what_if.suggestions.suggest import Kind, Suggestion

MOST_NAMES = 4


def edit_words(edit: Edit) -> str:
    """ "resize conv1 to 64 KiB (65,536 B)"."""
    match edit:
        case Pin(name, None):
            return f"let {name} lie anywhere"
        case Pin(name, offset):
            return f"pin {name} at byte {offset:,}"
        case Resize(name, nbytes):
            return f"resize {name} to {exact(nbytes)}"
        case Split(name, parts):
            return f"split {name} into {parts}"
        case Drop(name):
            return f"drop {name}"
        case Shorten(name, start, end):
            return f"{name} lives in {format_span(start, end)}"
        case Align(name, alignment):
            return f"align {name} to {exact(alignment)}"


def suggestion_words(suggestion: Suggestion, problem: Problem) -> str:
    """What to do, of the buffers of `problem`: one clause."""
    edit = suggestion.edits[0]
    if suggestion.kind in (Kind.DROP_SEVERAL, Kind.SHRINK_SEVERAL):
        verb = "drop" if suggestion.kind is Kind.DROP_SEVERAL else "shrink"
        by = "," if suggestion.kind is Kind.DROP_SEVERAL else " by"
        names = _names([each.buffer for each in suggestion.edits])
        return f"{verb} {len(suggestion.edits)} buffers{by} {exact(suggestion.nbytes)} in all: {names}"
    row = problem.names.index(edit.buffer)
    match edit:
        case Drop(name):
            return f"drop {name}, {exact(suggestion.nbytes)}"
        case Resize(name, nbytes):
            return f"shrink {name} by {exact(suggestion.nbytes)}, to {exact(nbytes)}"
        case Shorten(name, _, end):
            last = int(problem.end[row]) - 1
            return f"end {name} ({format_bytes(suggestion.nbytes)}) after step {end - 1} instead of {last}"
        case Pin(name, None):
            return f"free the offset of {name}"
        case _:
            return edit_words(edit)


def proof_words(suggestion: Suggestion) -> str:
    """How sure it is that nothing smaller of the kind will do."""
    if suggestion.kind is Kind.RELAX:
        return "changes no bytes"
    if suggestion.heuristic:
        return "not proved: a quick guess, for which a packing was found; far less may do"
    if suggestion.kind is Kind.SHRINK_SEVERAL:
        return "found; the same buffers, no further than needed"
    if suggestion.kind is Kind.DROP_SEVERAL and not suggestion.exact:
        return "chosen greedily; fewer may do"
    if suggestion.short_of_all:
        return "proved: no buffer can do with a smaller loss, short of all its bytes"
    if not suggestion.proved:
        return "found; something smaller may do"
    says = {
        Kind.SHRINK: "proved: no buffer can do with a smaller loss",
        Kind.DROP: "proved: no smaller buffer will do",
        Kind.CUT: "proved: no smaller buffer will do; later readers need it made again",
        Kind.DROP_SEVERAL: "proved: no fewer buffers will do, nor as many smaller ones",
    }
    return says[suggestion.kind]


def shortage_words(shortage: Shortage) -> str:
    """Why no packing will do, and whether one buffer could be enough."""
    first = shortage.stretches[0]
    steps, where = shortage.steps, f"at {format_span(first.start, first.end)}"
    if len(shortage.stretches) > 1:
        where = f"in {len(shortage.stretches)} stretches of steps, {steps} steps in all"
    told = (
        f"whatever the packing, live bytes must fall by {exact(shortage.nbytes)} at step {shortage.step}; "
        f"too much is alive {where}"
    )
    able = len(shortage.single)
    if able:
        return f"{told}; {able} buffer{'s' * (able != 1)} could make room alone"
    return f"{told}; no single buffer is alive at all of them with enough bytes"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
