"""What of a graph lives in its slab, by which way, and what does not, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.units import format_bytes


def share_in_place(storages: Iterable[MadeStorage], returned: Collection[str]) -> float:
    """Bytes written in place, of all bytes `storages` but those `returned`; 1.0 where none are."""
    planned = [entry for entry in storages if entry.storage not in returned]
    whole = sum(entry.nbytes for entry in planned)
    return sum(entry.nbytes for entry in planned if entry.way in IN_PLACE) / whole if whole else 1.0


class Way(StrEnum):
    """How a storage comes to hold its values.

    NATIVE: written into the slab by the operator's own `out` overload. EQUIVALENT: by operators that write
    in place and give the same bits. GENERATED: by an `out` overload that computes as ever and then copies.
    COPIED: made by the allocator and copied into the slab. LEFT: with the allocator.
    """

    NATIVE = "native"
    EQUIVALENT = "equivalent"
    GENERATED = "generated"
    COPIED = "copied"
    LEFT = "left"


IN_PLACE = (Way.NATIVE, Way.EQUIVALENT)


@dataclass(frozen=True, slots=True)
class MadeStorage:
    """A storage that an op makes: its name and bytes, the op's name and kind, its way into the slab, and the
    reason where it is not written in place ("" otherwise)."""

    storage: str
    nbytes: int
    op: str
    kind: str
    way: Way
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SlabReport:
    """All storages that the ops of a graph make, in order. `returned` are those that the graph returns: with
    policy `native` they stay with the allocator, with `all` they are copied out of the slab at the end.
    `views` and `in_place` are the numbers of nodes that make no memory."""

    name: str
    policy: str
    slab_bytes: int
    made: tuple[MadeStorage, ...]
    returned: frozenset[str]
    views: int
    in_place: int

    @property
    def left_out(self) -> tuple[MadeStorage, ...]:
        """What stays with the allocator."""
        return tuple(entry for entry in self.made if entry.way is Way.LEFT)

    @property
    def nodes(self) -> dict[Way, int]:
        """How many storages go each way."""
        counted = Counter(entry.way for entry in self.made)
        return {way: counted[way] for way in Way}

    @property
    def nbytes(self) -> dict[Way, int]:
        """Bytes of the storages that go each way."""
        return {way: sum(entry.nbytes for entry in self.made if entry.way is way) for way in Way}

    @property
    def share(self) -> float:
        """Bytes written in place, of all bytes made but those returned; 1.0 where none are."""
        return share_in_place(self.made, self.returned)

    def __str__(self) -> str:
        """A table of ways, and the reasons of what is not written in place, the most bytes first."""
        lines = [
            f"{self.name}: slab of {format_bytes(self.slab_bytes)}, policy {self.policy}, "
            f"{self.share:.1%} of the bytes written in place",
            *(
                f"  {way.value:<11}{self.nodes[way]:>6} nodes  {format_bytes(self.nbytes[way])}"
                for way in Way
                if self.nodes[way]
            ),
            f"  views      {self.views:>6} nodes",
            f"  in place   {self.in_place:>6} nodes",
        ]
        reasons: Counter[tuple[str, str]] = Counter()
        for entry in self.made:
            if entry.reason:
                reasons[entry.kind, entry.reason] += entry.nbytes
        lines += [f"  {kind}: {reason}, {format_bytes(n)}" for (kind, reason), n in reasons.most_common()]
        return "\n".join(lines)
