"""What an aliasing rule answers: which storages a node makes, and which ones its readers read.

A rule is the only thing in which estimates of one graph differ; `fx_estimates.py` knows no operator
and no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch.fx import Graph, Node

SizeOf = Callable[["Node"], int]
"""The bytes of a node's value."""

IsReleasable = Callable[["Node"], bool]
"""Whether the memory of a node's value may be given back during the graph."""


@dataclass(frozen=True, eq=False, slots=True)
class FxStorage:
    """What is released at once: `nbytes` bytes, if every node of `owners` may be released."""

    nbytes: int
    owners: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Storages:
    """The storages of one graph.

    made: node → the storages that are new with it.
    read: node → the storages that those read who read the node.
    unread: the storages that a value without readers holds, by the rule's own idea of holding.
    fixed: storages that belong to the module and are never released.
    """

    made: Mapping[Node, tuple[FxStorage, ...]]
    read: Mapping[Node, tuple[FxStorage, ...]]
    unread: frozenset[FxStorage]
    fixed: frozenset[FxStorage] = field(default=frozenset())


class Interactions(NamedTuple):
    """What a forward graph means for its backward graph.

    baseline: bytes that the forward returns and that stay alive beside the backward graph's own inputs.
    held: names of the backward graph's placeholders whose memory the backward pass may not release.
    """

    baseline: int
    held: set[str]


class Pair(NamedTuple):
    """Storages of a forward graph and of the backward graph that is given what it returns."""

    forward: Storages
    backward: Storages
    interactions: Interactions


class Aliasing(Protocol):
    """A rule for what shares memory."""

    name: ClassVar[str]

    def storages(self, graph: Graph, size_of: SizeOf, source: str) -> Storages:
        """The storages of `graph`; `source` names it in errors."""
        ...

    def interactions(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Interactions:
        """What stays alive, and what may not be released, while `backward` runs after `forward`."""
        ...

    def pair(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Pair:
        """All that is to be known of both."""
        ...
