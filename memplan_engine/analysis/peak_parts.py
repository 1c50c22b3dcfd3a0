"""The few groups that say what is live at a step, for one sentence."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from memplan_engine.analysis.buffer_names import module_paths
from memplan_engine.analysis.peak import Contributor, Peak
from memplan_engine.analysis.peak_tree import GROUPINGS, NO_LINE, Path
from memplan_engine.graph import Phase
from memplan_engine.problem import Problem

MOST_PARTS = 3
SAYS_NOTHING = 0.95
"""A group with this share of everything is opened: that nearly all is in the model is no news."""
_NUMBER = re.compile(r"\d+")
_INDEX = re.compile(r"(^|\.)\d+$")


@dataclass(frozen=True, slots=True)
class Part:
    """A group of what is live at a step: `label` is its path, with * for numbers where several modules are
    taken together, which are the `layers` that differ first, 1 for one and for modules that are not numbered
    layers; `line` is the source line that most of its `nbytes` come from, `line_bytes` of them; "" where none
    is known."""

    label: str
    nbytes: int
    layers: int
    line: str
    line_bytes: int


@dataclass(slots=True)
class _Group:
    """Layers of one kind count as one group."""

    paths: set[Path] = field(default_factory=set)
    below: dict[Path, _Group] = field(default_factory=dict)
    members: list[Contributor] = field(default_factory=list)

    @property
    def all(self) -> list[Contributor]:
        return [*self.members, *(each for group in self.below.values() for each in group.all)]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.all)


def peak_parts(contents: Peak, problem: Problem) -> tuple[Part, ...]:
    """The largest parts of what is live at a step, as `contents_of` gives it: at most MOST_PARTS, largest
    first. Of recordings these are source lines, of lists buffers by the beginning of their names."""
    if not contents.contributors:
        return ()
    by = "module" if problem.callers is None else "line"
    path_of, root = GROUPINGS[by](problem), _Group()
    family = problem.once(_families)
    for each in contents.contributors:
        path, group = path_of(each.name, each.provenance), root
        for depth in range(1, len(path) + 1):
            own = path[:depth]
            key = (*_starred(own), family.get(own, "")) if by == "module" else own
            group = group.below.setdefault(key, _Group())
            group.paths.add(own)
        own = (*path, each.label)
        group.below[own] = _Group({own}, members=[each])
    line_of = GROUPINGS["line"](problem)
    parts = []
    for group in _opened(root, contents.nbytes):
        lines = Counter[str]()
        for each in group.all:
            lines[line_of(each.name, each.provenance)[0]] += each.nbytes
        line = max(lines, key=lines.__getitem__)
        known = "" if line == NO_LINE else line
        parts.append(Part(_label(group), group.nbytes, _layers(group.paths), known, lines[line]))
    return tuple(parts[:MOST_PARTS])


def _starred(path: Path) -> Path:
    return tuple(_NUMBER.sub("*", segment) for segment in path)


def _families(problem: Problem) -> dict[Path, str]:
    """What tells modules apart whose paths differ in numbers alone, by path: in a sequence of an embedding
    and blocks, the blocks are one family. Two that have an op of one kind at one place below them are of one,
    and so are two that are like a third. O(ops)."""
    if problem.origin is None:
        return {}
    graph = problem.origin.graph
    paths = module_paths(graph)
    like: dict[Path, Path] = {}
    first: dict[tuple[Path, Path, str], Path] = {}

    def root(path: Path) -> Path:
        while like[path] != path:
            path = like[path]
        return path

    seen = {(op.module, op.kind) for op in graph.ops if op.module and op.phase in (None, Phase.FORWARD)}
    for module, kind in sorted(seen):
        path = paths[module]
        for depth in range(1, len(path) + 1):
            own = path[:depth]
            like.setdefault(own, own)
            other = first.setdefault((_starred(own), _starred(path[depth:]), kind), own)
            one, two = sorted((root(own), root(other)))
            like[two] = one
    return {path: ".".join(root(path)) for path in like}


def _layers(paths: set[Path]) -> int:
    """How many numbered layers `paths` are of: where they differ first, as "h.0" and "h.1" do."""
    for segments in zip(*paths, strict=False):
        if len(set(segments)) > 1:
            return len(set(segments)) if all(map(_INDEX.search, segments)) else 1
    return 1


def _opened(root: _Group, total: int) -> list[_Group]:
    groups = [root]
    while groups[0].below and groups[0].nbytes >= SAYS_NOTHING * total:
        first, *rest = groups
        groups = sorted([*first.below.values(), *rest], key=lambda group: -group.nbytes)
    return groups


def _label(group: _Group) -> str:
    path = next(iter(group.paths))
    if len(group.paths) > 1:
        segments = defaultdict[int, set[str]](set)
        for other in group.paths:
            for depth, segment in enumerate(other):
                segments[depth].add(segment)
        path = tuple(
            _NUMBER.sub("*", segment) if len(segments[depth]) > 1 else segment
            for depth, segment in enumerate(path)
        )
    # A buffer's own name begins with its path.
    return path[-1] if group.members else ".".join(path)
