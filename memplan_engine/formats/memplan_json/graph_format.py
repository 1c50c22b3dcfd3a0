"""The JSON of a graph: tensors and ops by name, source lines in a table of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Names, ScopeName, Shape, Strict, Stride
from memplan_engine.graph import (
    MOST_DIMENSIONS,
    Graph,
    Op,
    Source,
    Storage,
    Symbol,
    Tensor,
    Workspace,
    check_graph,
    storage_role,
)
from memplan_engine.scope import Scope


class SymbolEntry(Strict):
    """A size from `low` to `high` (no limit without); without `hint` it depends on the data. `called` is its
    name in the file that the graph was read from, where that is another one. `given`: set by `--symbol`."""

    name: str
    low: Count = 1
    high: Count | None = None
    hint: Count | None = None
    called: str = ""
    given: bool = False


class TensorEntry(Strict):
    """One tensor; `storage` is its own name unless given, or that of the tensor it is a view of.

    Without `strides` (elements) it is contiguous; `offset` is in bytes from the storage's start; `formulas`
    are its dimensions in the graph's symbols, `layout` its strides and, last, its offset.
    """

    name: str
    nbytes: Count
    shape: Shape = ()
    dtype: str = ""
    storage: str | None = None
    view_of: str | None = None
    strides: Annotated[tuple[Stride, ...] | None, FailFast(), Field(max_length=MOST_DIMENSIONS)] = None
    offset: Count = 0
    formulas: Names = ()
    layout: Names = ()


class StorageEntry(Strict):
    """One storage; `alignment` 0 means the plan's own; `formula` is its size in the graph's symbols;
    `held_by` is the op up to whose end it is held, its last use without."""

    name: str
    nbytes: Count
    alignment: Count = 0
    formula: str = ""
    held_by: str = ""


class SourceEntry(Strict):
    """A line of the user's code."""

    file: str
    line: Count
    code: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceEntry(Workspace):
    """Scratch of one op in bytes: `shared` with other ops, or `unique`; `formula` is what is shared in the
    graph's symbols, null where it is known at their hints only."""

    shared: Count = 0
    unique: Count = 0


@dataclass(frozen=True, slots=True)
class OpEntry(Op):
    """One op; `source` is a place in the file's table `sources`. `out_variant` says whether it can write into
    memory that it is given."""

    # The fields of `Op`; here stand those that may be left out in a file, or are written in another way.
    __pydantic_config__: ClassVar[ConfigDict] = {**Strict.model_config, "revalidate_instances": "always"}

    kind: str = "op"
    inputs: Names = ()
    outputs: Names = ()
    source: Count | None = None  # type: ignore[assignment]
    workspace: WorkspaceEntry = WorkspaceEntry()


class GraphBody(Strict):
    """A graph inside another file.

    Without `storages` every storage takes the size of its largest tensor, in the order in which the
    tensors name them. `scope` says what the storages and the ops' workspaces together are all of: "graph"
    where the temporaries inside ops are unknown. `notes` say what else there is to know of its figures,
    `assumed` which values a predicted run took for granted; with `doubts`, some of these, a run may hold
    something else. `compiled`: it is of Python that `torch.compile` compiles.
    """

    name: str = "graph"
    inputs: Names = ()
    outputs: Names = ()
    constants: Names = ()
    tensors: Annotated[tuple[TensorEntry, ...], FailFast()]
    storages: Annotated[tuple[StorageEntry, ...], FailFast()] = ()
    ops: Annotated[tuple[OpEntry, ...], FailFast()]
    sources: Annotated[tuple[SourceEntry, ...], FailFast()] = ()
    symbols: Annotated[tuple[SymbolEntry, ...], FailFast()] = ()
    scope: ScopeName = "graph"
    notes: Names = ()
    assumed: Names = ()
    doubts: Names = ()
    compiled: bool = False


class EstimateEntry(Strict):
    """Peaks in bytes by one rule of the FX memory estimator, inputs and parameters counted."""

    rule: str
    unread: Literal["freed", "held"]
    forward_peak: Count
    baseline: Count
    backward_peak: Count

    @property
    def peak(self) -> int:
        """The larger of both peaks."""
        return max(self.forward_peak, self.backward_peak)


class About(Strict):
    """What a teaching graph says about itself, `optimum` as "12 bytes", and what estimators said when a
    training graph was captured; not part of the graph."""

    title: str = ""
    shows: str = ""
    optimum: str = ""
    why: str = ""
    estimates: Annotated[tuple[EstimateEntry, ...], FailFast()] = ()


class AboutOnly(BaseModel):
    """A graph's file of which nothing but this is read."""

    about: About = About()


class GraphFile(GraphBody):
    """A file in the format memplan/graph, version 1."""

    format: Literal["memplan/graph"]
    version: Literal[1]
    about: About | None = Field(default=None, description="For people; ignored when the graph is read.")


def graph_from(body: GraphBody, source: str) -> Graph:
    """The checked graph; raises InputError naming what is not sound in `source`."""
    tensors = _tensors(body, source)
    lists = {"inputs": body.inputs, "constants": body.constants, "outputs": body.outputs}
    storages = body.storages or _largest(tensors)
    graph = Graph(
        body.name,
        _with_roles(storages, tensors, lists),
        tensors,
        tuple(_op(body, entry, source) for entry in body.ops),
        body.inputs,
        body.outputs,
        body.constants,
        tuple(Symbol(**entry.model_dump()) for entry in body.symbols),
        Scope(body.scope),
        body.notes,
        body.assumed,
        body.doubts,
        body.compiled,
    )
    return check_graph(graph, source)


def body_of(graph: Graph) -> GraphBody:
    """`graph` as it is written inside another file."""
    return GraphBody.model_validate(_fields(graph))


def file_of(graph: Graph, about: About | None = None) -> GraphFile:
    """`graph` as a file of its own."""
    head = {"format": "memplan/graph", "version": 1, "about": about}
    return GraphFile.model_validate({**head, **_fields(graph)})


def _tensors(body: GraphBody, source: str) -> tuple[Tensor, ...]:
    homes = storages_of([(entry.name, entry.storage, entry.view_of) for entry in body.tensors], source)
    return tuple(
        Tensor(
            entry.name,
            entry.shape,
            entry.dtype,
            entry.nbytes,
            home,
            entry.strides,
            entry.offset,
            entry.formulas,
            entry.layout,
        )
        for entry, home in zip(body.tensors, homes, strict=True)
    )


def _op(body: GraphBody, entry: OpEntry, source: str) -> Op:
    line = None
    if entry.source is not None:
        if entry.source >= len(body.sources):
            raise InputError(
                source, f"op {entry.name!r}", f"source {entry.source}", f"below {len(body.sources)}"
            )
        where = body.sources[entry.source]
        line = Source(where.file, where.line, where.code)
    return Op(**{**_values(entry), "source": line, "workspace": Workspace(**_values(entry.workspace))})


def _values(value: Op | Workspace | Symbol) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _largest(tensors: Iterable[Tensor]) -> tuple[StorageEntry, ...]:
    """The storages that `tensors` name, each as large as its largest tensor."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.storage] = max(sizes.get(tensor.storage, 0), tensor.offset + tensor.nbytes)
    return tuple(StorageEntry(name=name, nbytes=nbytes) for name, nbytes in sizes.items())


def _with_roles(
    storages: Iterable[StorageEntry], tensors: Iterable[Tensor], lists: dict[str, tuple[str, ...]]
) -> tuple[Storage, ...]:
    home = {tensor.name: tensor.storage for tensor in tensors}
    owned = {kind: {home[name] for name in names if name in home} for kind, names in lists.items()}
    return tuple(
        Storage(
            entry.name,
            entry.nbytes,
            storage_role(entry.name, **owned),
            entry.alignment,
            entry.formula,
            entry.held_by,
        )
        for entry in storages
    )


def _fields(graph: Graph) -> dict[str, object]:
    distinct = dict.fromkeys(op.source for op in graph.ops if op.source)
    sources = {source: place for place, source in enumerate(distinct)}
    storages = tuple(
        StorageEntry(
            name=storage.name,
            nbytes=storage.nbytes,
            alignment=storage.alignment,
            formula=storage.formula,
            held_by=storage.held_by,
        )
        for storage in graph.storages
    )
    return {
        "name": graph.name,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "constants": graph.constants,
        "tensors": tuple(
            TensorEntry(
                name=t.name,
                nbytes=t.nbytes,
                shape=t.shape,
                dtype=t.dtype,
                storage=None if t.storage == t.name else t.storage,
                strides=t.strides,
                offset=t.offset,
                formulas=t.formulas,
                layout=t.layout,
            )
            for t in graph.tensors
        ),
        "storages": () if storages == _largest(graph.tensors) else storages,
        "ops": tuple(
            OpEntry(
                **{
                    **_values(op),
                    "source": sources[op.source] if op.source else None,
                    "workspace": WorkspaceEntry(**_values(op.workspace)),
                }
            )
            for op in graph.ops
        ),
        "sources": tuple(SourceEntry(file=s.file, line=s.line, code=s.code) for s in sources),
        "symbols": tuple(SymbolEntry(**_values(symbol)) for symbol in graph.symbols),
        "scope": graph.scope.value,
        "notes": graph.notes,
        "assumed": graph.assumed,
        "doubts": graph.doubts,
        "compiled": graph.compiled,
    }


def storages_of(entries: Sequence[tuple[str, str | None, str | None]], source: str) -> list[str]:
    """The storage of each tensor, given (name, storage, view_of) of all of them.

    A view lives in the storage of its base, through views of views; any other tensor in the storage it
    names, or in one of its own name.

    Raises
    ------
    InputError: a view of nothing, of itself through others, or of a tensor in another storage than it names.
    """
    stated = {name: storage for name, storage, _ in entries}
    base = {name: view_of for name, _, view_of in entries if view_of is not None}
    homes: dict[str, str] = {}
    for name in stated:
        chain: dict[str, None] = {}
        at = name
        while at in base and at not in homes:
            if at in chain:
                names = list(chain)
                loop = " → ".join([*names[names.index(at) :], at])
                raise InputError(source, f"tensor {name!r}", f"views in a loop: {loop}", "views that end")
            chain[at] = None
            at = base[at]
        if at not in stated:
            *_, view = chain
            raise InputError(source, f"tensor {view!r}", f"a view of {at!r}", "a tensor of the graph")
        home = homes.get(at) or stated[at] or at
        homes |= dict.fromkeys((*chain, at), home)
    for name, storage, view_of in entries:
        if view_of is not None and storage not in (None, homes[name]):
            expected = f"{homes[name]!r}, that of {view_of!r}"
            raise InputError(source, f"tensor {name!r}", f"storage {storage!r}", expected)
    return [homes[name] for name, _, _ in entries]
