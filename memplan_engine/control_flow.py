"""Ops that run graphs of their own: branches, loops, and others that are called on sub-graphs.

The ops of a sub-graph are ops of the graph, one branch behind the other, followed by the op that calls them.
`Op.within` names, from the outside in, the calling ops and the branch of each. A run takes one of several
branches, or a loop's body again and again: live bytes are right at each step, and the maximum over all
branches counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memplan_engine.graph import Graph, Role, Storage, Tensor, Workspace, storage_role


@dataclass(frozen=True, slots=True)
class Region:
    """`graph.ops[first:call]` are inside `graph.ops[call]`. `branches` has the half-open range of the ops of
    each branch by its name, in their order."""

    first: int
    call: int
    branches: Mapping[str, tuple[int, int]]


def regions(graph: Graph) -> tuple[Region, ...]:
    """Return the outermost regions of `graph`, in order."""
    found: list[Region] = []
    branches: dict[str, tuple[int, int]] = {}
    first = 0
    for index, op in enumerate(graph.ops):
        if op.within:
            if not branches:
                first = index
            name = op.within[0][1]
            branches[name] = (branches.get(name, (index, index))[0], index + 1)
        elif branches:
            found.append(Region(first, index, branches))
            branches = {}
    return tuple(found)


def contract(graph: Graph, inside: Mapping[str, int], *, scratch: bool = False) -> Graph:
    """Return `graph` with each outermost region as the one op that calls it.

    That op reads and writes what its branches read and write outside. `inside` has by its name the bytes that
    it holds next to its arguments and results: they become a storage that no op reads, or with `scratch`
    workspace of the op.
    """
    made = {name for op in graph.ops if op.within for name in op.outputs}
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    outer_op = {op.name: op.within[0][0] for op in graph.ops if op.within}
    calls = {graph.ops[region.call].name: region for region in regions(graph)}
    ops, tensors, storages = [], [], []
    for op in graph.ops:
        if op.name in calls:
            members = (op, *graph.ops[calls[op.name].first : calls[op.name].call])
            read = dict.fromkeys(name for each in members for name in each.inputs if name not in made)
            # A view that is made inside may show what is outside.
            changed = {home[name] for each in members for name in each.mutates}
            written = [name for name in read if home[name] in changed]
            extra: tuple[str, ...] = ()
            nbytes = inside.get(op.name, 0)
            if scratch:
                op = replace(op, workspace=Workspace(nbytes))
            elif nbytes:
                extra = (f"{op.name}.inside",)
                tensors.append(Tensor(extra[0], (nbytes,), "uint8", nbytes, extra[0]))
                storages.append(Storage(extra[0], nbytes, Role.ACTIVATION))
            op = replace(op, inputs=tuple(read), mutates=tuple(written), outputs=(*op.outputs, *extra))
        if not op.within:
            ops.append(op)
    kept = [tensor for tensor in graph.tensors if tensor.name not in made]
    homes = {tensor.storage for tensor in kept}
    for storage in graph.storages:
        if storage.name in homes:
            held_by = outer_op.get(storage.held_by, storage.held_by)
            storages.append(replace(storage, held_by=held_by))
    return replace(graph, ops=tuple(ops), tensors=(*kept, *tensors), storages=tuple(storages))


def branch_graph(graph: Graph, region: Region, branch: str) -> Graph:
    """Return the ops of one branch as a separate graph. Its inputs are tensors made elsewhere. Its outputs
    lie in storages that are touched elsewhere: results, and what the calling op holds."""
    begin, end = region.branches[branch]
    ops = tuple(replace(op, within=op.within[1:]) for op in graph.ops[begin:end])
    names = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.mutates, *op.outputs))
    made = {name for op in ops for name in op.outputs}
    others = (*graph.ops[:begin], *graph.ops[end:])
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    elsewhere = {home[name] for op in others for name in (*op.inputs, *op.mutates, *op.outputs)}
    elsewhere |= {home[name] for name in (*graph.inputs, *graph.constants, *graph.outputs)}
    inputs = tuple(name for name in names if name not in made)
    given = {home[name] for name in inputs}
    own = {name for op in ops if not op.within for name in op.outputs}
    outputs = tuple(name for name in names if name in own and home[name] in elsewhere - given)
    returned = {home[name] for name in outputs}
    there, holders = {home[name] for name in names}, {op.name for op in ops}
    storages = tuple(
        replace(
            each,
            role=storage_role(each.name, inputs=given, constants=set(), outputs=returned),
            held_by=each.held_by if each.held_by in holders else "",
        )
        for each in graph.storages
        if each.name in there
    )
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in names)
    return replace(
        graph,
        name=f"{graph.name}.{branch}",
        storages=storages,
        tensors=tensors,
        ops=ops,
        inputs=inputs,
        outputs=outputs,
        constants=(),
    )
