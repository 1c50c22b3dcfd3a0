"""Instances on disk: published lists of buffers, and the graphs that this project ships."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memplan_examples import examples

from benchmarks.families.instance import Instance
from memplan_engine.errors import MissingDependencyError
from memplan_engine.files import load
from memplan_engine.graph import Graph
from memplan_engine.planner import as_problem
from memplan_engine.problem import FREE, Problem, make_problem

_CAPACITY = re.compile(r"\.(\d+)$")
"""MiniMalloc's files end in the capacity that they are to be packed into: `A.1048576.csv`."""


def published(folder: Path) -> Iterator[Instance]:
    """Every list of buffers below `folder`; nothing when there is no such folder."""
    for path in sorted(folder.rglob("*.csv")):
        loaded = load(path)
        instance = plain(path.relative_to(folder).with_suffix("").as_posix(), loaded)
        if instance:
            capacity = _CAPACITY.search(path.stem)
            yield replace(instance, target=int(capacity.group(1)) if capacity else None)


def captured() -> Iterator[Instance]:
    """The graphs of example_graphs/, each as the buffers of its own schedule."""
    for path in examples():
        try:
            loaded = load(path)
        except MissingDependencyError as error:
            print(f"{path.name} is left out: {error}")
            continue
        instance = plain(f"captured/{path.stem}", loaded)
        if instance and len(instance.problem) >= 20:
            yield instance


def plain(name: str, loaded: object) -> Instance | None:
    """The instance behind a file, as all peers understand it: sizes rounded up to the alignment instead of
    an alignment. None for what has gaps, fixed offsets or several alignments, or is no list of buffers."""
    if not isinstance(loaded, Graph | Problem):
        return None
    problem = as_problem(loaded)
    units = set(problem.alignment.tolist())
    if problem.gaps or (problem.fixed != FREE).any() or len(units) != 1:
        return None
    unit = units.pop()
    size = -(-problem.size // unit) * unit
    return Instance(name, make_problem(problem.start, problem.end, size, steps=problem.steps, name=name))
