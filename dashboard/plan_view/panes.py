"""What stands beside the chart: what a step is made of as a tree, and everything about one buffer. The
browser has it whole, so that a click on a step, a group or a buffer asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.peak_tree import Grouping
from memplan_engine.plotting.columns import Columns

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Panes:
    """Everything about the n buffers of a problem that rectangles do not say.

    `groupings` are those that tell anything apart. `scratch_start` and `scratch_bytes` are what single ops
    hold inside while they run, a step each; `always` bytes are kept for them at every step. Of the ops:
    names, names in the graph, source lines with their code, steps, the buffer that each makes (-1: none).
    `ties` are the places that reach the same peak, where there are several: a label and a step each.
    `maker` is the op that makes each buffer, `readers` the others that touch it and `inputs` the buffers that
    each op reads, both as (ends, ids). `place` is where a buffer comes from if no op makes it. `by` is the
    grouping to begin with. `stack` is the call stack that asked for each buffer (-1: none is known), of
    `stacks`, as (ends, ids): each is some of `frames`, the innermost call first.
    """

    groupings: dict[str, Grouping]
    by: str
    scratch_start: Ints
    scratch_bytes: Ints
    always: int
    ties: Sequence[tuple[str, int]]
    own_names: Sequence[str]
    tensors: Sequence[str]
    kinds: Sequence[str]
    places: Sequence[str]
    ops: OpColumns
    maker: NDArray[np.int32]
    readers: tuple[NDArray[np.uint32], NDArray[np.int32]]
    stack: NDArray[np.int32]
    stacks: tuple[NDArray[np.uint32], NDArray[np.int32]]
    frames: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class OpColumns:
    """The ops of a graph, in order; `properties` are what people are told of them: a label, a text an op."""

    names: Sequence[str]
    own_names: Sequence[str]
    properties: Sequence[tuple[str, Sequence[str]]]
    sources: Sequence[str]
    codes: Sequence[str]
    step: Ints
    makes: NDArray[np.int32]
    inputs: tuple[NDArray[np.uint32], NDArray[np.int32]]


def pack_panes(panes: Panes, columns: Columns) -> dict[str, Any]:
    """What the browser reads, its columns placed in `columns`."""
    ops = panes.ops
    return {
        "groupings": {by: _grouping(each, columns) for by, each in panes.groupings.items()},
        "by": panes.by,
        "scratchStart": columns.add_steps(panes.scratch_start),
        "scratchBytes": columns.add_bytes(panes.scratch_bytes),
        "always": panes.always,
        "ties": [[label, step] for label, step in panes.ties],
        "ownNames": columns.add_texts(panes.own_names),
        "tensors": columns.add_texts(panes.tensors),
        "kinds": columns.add_texts(panes.kinds),
        "places": columns.add_texts(panes.places),
        "maker": columns.add(panes.maker),
        "readers": [columns.add(each) for each in panes.readers],
        "stack": columns.add(panes.stack),
        "stacks": [columns.add(each) for each in panes.stacks],
        "frames": columns.add_texts(panes.frames),
        "ops": {
            "names": columns.add_texts(ops.names),
            "ownNames": columns.add_texts(ops.own_names),
            "properties": [[label, columns.add_texts(texts)] for label, texts in ops.properties],
            "sources": columns.add_texts(ops.sources),
            "codes": columns.add_texts(ops.codes),
            "step": columns.add_steps(ops.step),
            "makes": columns.add(ops.makes),
            "inputs": [columns.add(each) for each in ops.inputs],
        },
    }


def _grouping(given: Grouping, columns: Columns) -> dict[str, Any]:
    return {
        "labels": columns.add_texts(given.labels),
        "parent": columns.add(given.parent),
        "group": columns.add(given.group),
        "leaf": columns.add_texts(given.leaf),
    }
