"""What is live at a step as a tree: by module, source line, op kind or category."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.buffer_names import (
    buffer_names,
    join_numbers,
    kind_label,
    module_paths,
    op_names,
    without_module,
)
from memplan_engine.analysis.peak import Contributor, Peak, contents_of
from memplan_engine.analysis.provenance import Provenance, find_provenance
from memplan_engine.analysis.training_phases import is_training, saved_activations
from memplan_engine.graph import Graph, Op, Phase, Role
from memplan_engine.problem import Problem
from memplan_engine.profile import SUFFIX, scratching

Path = tuple[str, ...]
PathOf = Callable[[str, Provenance], Path]
"""The groups of what is live, the outermost first, from its name and where it comes from."""
_SEPARATORS = re.compile(r"[./]")
NO_LINE = "no source line"


@dataclass(frozen=True, slots=True)
class Node:
    """A group of what is live at a step, or one of it (`contributor`). `nbytes` is the sum of the children,
    which stand largest first; in a difference it may be negative."""

    label: str
    nbytes: int
    children: tuple[Node, ...] = ()
    contributor: Contributor | None = None

    @property
    def leaves(self) -> tuple[Contributor, ...]:
        """All that is in the group."""
        if self.contributor is not None:
            return (self.contributor,)
        return tuple(leaf for child in self.children for leaf in child.leaves)


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups of all n buffers and, behind them, of what single ops hold inside while they run, in the
    order of `profile.scratching`. Group g is called `labels[g]` and lies in `parent[g]`, -1 for none;
    `group` (int32) is the innermost of each, -1 for none, and `leaf` what it is called within that."""

    labels: tuple[str, ...]
    parent: NDArray[np.int32]
    group: NDArray[np.int32]
    leaf: tuple[str, ...]


def peak_tree(contents: Peak, problem: Problem, by: str = "module") -> Node:
    """`contents` of a step of `problem`, as `contents_of` gives them, grouped as GROUPINGS says."""
    return _tree(contents.contributors, problem, by)


def difference_tree(problem: Problem, step: int, base: int, by: str = "module") -> Node:
    """`difference` grouped as GROUPINGS says."""
    return _tree(difference(problem, step, base), problem, by)


def difference(problem: Problem, step: int, base: int) -> tuple[Contributor, ...]:
    """What is live at `step` and was not at `base`, and, negative, the other way round, the largest changes
    first. A buffer that is live at both counts with the difference of its bytes, where it has one."""
    then = {_key(each): each for each in contents_of(problem, base).contributors}
    parts = []
    for each in contents_of(problem, step).contributors:
        before = then.pop(_key(each), None)
        parts.append(replace(each, nbytes=each.nbytes - (before.nbytes if before else 0)))
    parts += [replace(each, nbytes=-each.nbytes) for each in then.values()]
    changed = [each for each in parts if each.nbytes]
    return tuple(sorted(changed, key=lambda each: -abs(each.nbytes)))


def _key(contributor: Contributor) -> int | str:
    return contributor.name if contributor.buffer is None else contributor.buffer


def groupings_of(problem: Problem) -> dict[str, Grouping]:
    """Those of GROUPINGS that tell anything of `problem` apart, and that by module: O(buffers + ops)."""
    # The buffers of a list have names, and nothing else to group them by.
    is_list = problem.origin is None and problem.callers is None
    several = {by: grouping(problem, by) for by in (("module",) if is_list else GROUPINGS)}
    told = {"module"} | ({"category"} if problem.origin else set())
    return {by: each for by, each in several.items() if by in told or len(each.labels) > 1}


def grouping(problem: Problem, by: str) -> Grouping:
    """The groups of everything that is live at any step: O(buffers + ops)."""
    path_of, provenances = GROUPINGS[by](problem), find_provenance(problem)
    scratch = [(op.name, _scratch(op)) for op, _ in scratching(problem)]
    holders = [*zip(problem.names, provenances, strict=True), *scratch]
    number: dict[Path, int] = {}
    parent: list[int] = []

    def group_of(path: Path) -> int:
        if not path:
            return -1
        if path not in number:
            above = group_of(path[:-1])
            number[path] = len(parent)
            parent.append(above)
        return number[path]

    group = [group_of(path_of(name, provenance)) for name, provenance in holders]
    names = op_names(problem)
    labels = [*buffer_names(problem), *(names[op] + SUFFIX for op, _ in scratch)]
    return Grouping(
        tuple(path[-1] for path in number),
        np.array(parent, np.int32),
        np.array(group, np.int32),
        tuple(_within(label, by) for label in labels),
    )


def _scratch(op: Op) -> Provenance:
    return Provenance("temporaries", maker=op)


def _within(label: str, by: str) -> str:
    """What is called `label` is called this within its group: without the module where that is the group."""
    return without_module(label) if by == "module" else label


def _tree(contributors: Iterable[Contributor], problem: Problem, by: str) -> Node:
    path_of = GROUPINGS[by](problem)
    below: dict[Path, dict[Path, None]] = defaultdict(dict)
    members: dict[Path, list[Contributor]] = defaultdict(list)
    for each in contributors:
        path = path_of(each.name, each.provenance)
        members[path].append(each)
        for depth in range(len(path), 0, -1):
            below[path[: depth - 1]][path[:depth]] = None

    def make(path: Path) -> Node:
        leaves = [Node(_within(each.label, by), each.nbytes, (), each) for each in members[path]]
        children = [*(make(child) for child in below[path]), *leaves]
        ordered = sorted(children, key=lambda node: -abs(node.nbytes))
        return Node(path[-1] if path else "", sum(node.nbytes for node in children), tuple(ordered))

    return make(())


# The groupings.


def _by_module(problem: Problem) -> PathOf:
    if problem.origin is None:
        return _by_caller if problem.callers is not None else _by_name()
    paths = module_paths(problem.origin.graph)
    return lambda name, provenance: paths.get(provenance.module, ())


def _by_caller(name: str, provenance: Provenance) -> Path:
    """The function that asked for the memory, for recordings."""
    return (provenance.module,) if provenance.module else ()


def _by_name() -> PathOf:
    """What stands before the last . or / of a buffer's own name, for lists of buffers."""
    known: dict[str, Path] = {}

    def path_of(name: str, provenance: Provenance) -> Path:
        end = max(name.rfind("."), name.rfind("/"))
        if end < 0:
            return ()
        before = name[:end]
        if before not in known:
            known[before] = join_numbers(_SEPARATORS.split(before))
        return known[before]

    return path_of


def _by_line(problem: Problem) -> PathOf:
    makers = {id(each.maker): each.maker for each in find_provenance(problem) if each.maker}
    sources = {maker.source for maker in makers.values() if maker.source}
    short = _short_files({source.file for source in sources})
    is_recorded = problem.callers is not None

    def path_of(name: str, provenance: Provenance) -> Path:
        source = provenance.source
        if source is None:
            return (NO_LINE,)
        line = f"{short.get(source.file, source.file)}:{source.line}"
        # What a recording knows beside its lines are functions; of a graph the tree has modules.
        return (f"{line} {provenance.module}" if is_recorded and provenance.module else line,)

    return path_of


def _short_files(files: set[str]) -> dict[str, str]:
    """The end of each path that tells it from the others: the file name, with folders where two are alike."""
    short: dict[str, str] = {}
    waiting, depth = files, 1
    while waiting:
        ends = {file: "/".join(file.replace("\\", "/").split("/")[-depth:]) for file in waiting}
        counts: dict[str, int] = defaultdict(int)
        for end in ends.values():
            counts[end] += 1
        alone = {file for file, end in ends.items() if counts[end] == 1 or end.count("/") + 1 < depth}
        short |= {file: ends[file] for file in alone}
        waiting, depth = waiting - alone, depth + 1
    return short


def _by_kind(problem: Problem) -> PathOf:
    return lambda name, provenance: (kind_label(provenance.kind),)


def _by_category(problem: Problem) -> PathOf:
    if problem.origin is None:
        return lambda name, provenance: ("buffers" if provenance.kind == "buffer" else "allocations",)
    categories = category_of_storage(problem.origin.graph)
    return lambda name, provenance: (
        categories[name] if name in categories and provenance.kind != "temporaries" else "temporaries",
    )


GROUPINGS: dict[str, Callable[[Problem], PathOf]] = {
    "module": _by_module,
    "line": _by_line,
    "op": _by_kind,
    "category": _by_category,
}
"""How what is live may be grouped."""


def category_of_storage(graph: Graph) -> dict[str, str]:
    """What each storage is kept for, in the words of PyTorch's memory profiler: weights, inputs, optimizer
    state (what the caller brings and the optimizer alone reads), gradients of weights, activations, and
    temporaries: whatever else a training step makes on its way, as values of the forward pass that nobody
    saves, gradients of activations and scratch of the optimizer. O(ops + tensors)."""
    roles = {storage.name: storage.role for storage in graph.storages}
    categories = {name: _EXTERNAL.get(role, "activations") for name, role in roles.items()}
    if not is_training(graph):
        return categories
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    made_in: dict[str, Phase | None] = {}
    read_in: dict[Phase | None, set[str]] = defaultdict(set)
    for op in graph.ops:
        for name in op.outputs:
            made_in.setdefault(home[name], op.phase)
        read_in[op.phase].update(home[name] for name in (*op.inputs, *op.mutates))
    by_optimizer = read_in[Phase.OPTIMIZER]
    by_passes = {name for phase, names in read_in.items() if phase is not Phase.OPTIMIZER for name in names}
    saved = set(saved_activations(graph))
    for name, role in roles.items():
        phase = made_in.get(name)
        if role is Role.CONSTANT:
            if name in by_optimizer and name not in by_passes:
                categories[name] = "optimizer state"
        elif role is Role.INPUT:
            continue
        elif phase is Phase.BACKWARD:
            is_kept = role is Role.OUTPUT or name in by_optimizer
            categories[name] = "gradients" if is_kept else "temporaries"
        elif phase is Phase.OPTIMIZER:
            categories[name] = "optimizer state" if role is Role.OUTPUT else "temporaries"
        elif name not in saved and role is not Role.OUTPUT:
            categories[name] = "temporaries"
    return categories


_EXTERNAL = {Role.INPUT: "inputs", Role.CONSTANT: "weights"}
