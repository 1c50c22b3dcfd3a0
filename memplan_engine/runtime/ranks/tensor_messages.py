"""Which tensors ranks send each other, and which of them never come. Known without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ANY = -1
"""Whose tensor is received where no rank is named."""


@dataclass
class TensorMessages:
    """What a rank has `sent` and `received`: by the other rank, the ranks of the group and the tag (`way`)
    the lines, in order. `whole`: that is all, for its script has come to its end, on all of its data, and
    nothing was assumed on the way."""

    sent: dict[str, list[str]] = field(default_factory=dict)
    received: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = False


def way(rank: int, group: str, tag: int) -> str:
    """How tensors go to `rank`, or come from it: those of one way are received in the order of sending."""
    return f"{rank}/{group}/{tag}"


class LostTensor(NamedTuple):
    """A tensor of `sender` that is `sent` to `receiver`, or waited for there, in a line, and never arrives.
    Unless that is `certain` the sender sends none as far as it was run."""

    sender: int
    receiver: int
    line: str
    sent: bool
    certain: bool


def lost_tensors(ranks: Mapping[int, TensorMessages]) -> Iterator[LostTensor]:
    """Those between `ranks`, of each way the first; of other ranks nothing is known."""
    for rank, own in ranks.items():
        for name, lines in own.received.items():
            sender, rest = _parts(name)
            if sender in ranks:
                sent = len(ranks[sender].sent.get(f"{rank}/{rest}", ()))
                whole = ranks[sender].whole
                # Who was left on its way may send the next one later.
                if len(lines) > sent and (whole or not sent):
                    yield LostTensor(sender, rank, lines[sent], False, whole)
        for name, lines in own.sent.items():
            receiver, rest = _parts(name)
            if receiver in ranks and ranks[receiver].whole:
                other = ranks[receiver].received
                taken = len(other.get(f"{rank}/{rest}", ()))
                from_any = any(_parts(each)[0] == ANY for each in other)
                if len(lines) > taken and not from_any:
                    yield LostTensor(rank, receiver, lines[taken], True, True)


def _parts(name: str) -> tuple[int, str]:
    rank, _, rest = name.partition("/")
    return int(rank), rest
