"""Which work of which stream is known to be done: what decides when the CUDA allocator uses a block again
that another stream had used (`record_stream`).

Nothing runs, so that nothing is ever done early: work counts as done once the host has waited for it. That
is the latest that it can be. What waits for what is kept as vector clocks (Mattern 1989, Virtual time and
global states of distributed systems): of each stream how far it, and so whoever waits for it, is behind which
work of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

Stream = tuple[int, int]
"""The number of a card, and of a stream there."""
Moment = dict[Stream, int]
"""Of each stream the number of the last op that is over."""


class News(IntEnum):
    """What the device guard has been asked for, as `cuda_guard.cpp` numbers it."""

    RECORD = 0
    WAIT = 1
    EVENT = 2
    STREAM = 3
    DEVICE = 4
    USED = 5


class StreamClock:
    """Hears of ops and events in their order. Blocks that wait are known by numbers; `done` has of each that
    is over the op that had begun last."""

    def __init__(self) -> None:
        self._issued: Moment = {}
        self._behind: dict[Stream, Moment] = {}
        self._events: dict[int, Moment] = {}
        self._known: Moment = {}
        self._waiting: dict[int, Moment] = {}
        self.done: dict[int, int] = {}

    def runs(self, op: int, stream: Stream) -> None:
        """An op is given to a stream."""
        self._issued[stream] = op

    def hears(self, op: int, news: Iterable[tuple[int, int, int, int]]) -> None:
        """What was asked for since: kind, number of the event, card and stream, while `op` was the last."""
        for kind, event, card, number in news:
            stream = card, number
            if kind == News.RECORD:
                self._events[event] = self._now(stream)
            elif kind == News.WAIT:
                _reach(self._behind.setdefault(stream, {}), self._events.get(event, {}))
            elif kind == News.EVENT:
                self._is_done(op, self._events.get(event, {}))
            elif kind == News.STREAM:
                self._is_done(op, self._now(stream))
            elif kind == News.DEVICE:
                for each in [each for each in self._issued if each[0] == card]:
                    self._is_done(op, self._now(each))

    def synchronizes(self, op: int, stream: Stream) -> None:
        """The host has waited for a stream."""
        self._is_done(op, self._now(stream))

    def frees(self, block: int, op: int, users: Iterable[Stream]) -> None:
        """A block goes that `users` have used beside its own stream."""
        left = {each: self._issued[each] for each in users if not self._is_known(each)}
        if left:
            self._waiting[block] = left
        else:
            self.done[block] = op

    def waiting(self) -> tuple[int, ...]:
        """The blocks of which nobody has heard that they are done."""
        return tuple(self._waiting)

    def _is_known(self, stream: Stream) -> bool:
        return self._known.get(stream, -1) >= self._issued.get(stream, -1)

    def _now(self, stream: Stream) -> Moment:
        """What is over when all is that the stream has been given."""
        behind = self._behind.get(stream, {})
        return {**behind, stream: max(self._issued.get(stream, -1), behind.get(stream, -1))}

    def _is_done(self, op: int, moment: Moment) -> None:
        _reach(self._known, moment)
        for block, left in list(self._waiting.items()):
            if all(self._known.get(stream, -1) >= last for stream, last in left.items()):
                del self._waiting[block]
                self.done[block] = op


def _reach(behind: Moment, moment: Moment) -> None:
    for stream, op in moment.items():
        behind[stream] = max(op, behind.get(stream, -1))
