"""The ops that copy a storage to the host and back, or between memories, as ops of a graph."""

from __future__ import annotations

TO_HOST = "memplan::to_host"
"""Begins to copy the storage of what it reads, and makes what stands for the copy: no bytes of the device."""
ON_HOST = "memplan::on_host"
"""Waits until the copy is there. It is the last to read the storage before that comes back."""
TO_DEVICE = "memplan::to_device"
"""Begins to copy back, into a new storage, which all that it makes is in; who reads that waits for it."""
MOVE = "memplan::move"
"""Copies the storage of what it reads into a new one in another bank, which all that it makes is in: the same
values, which whoever runs later reads there."""
COPIES = frozenset({TO_HOST, ON_HOST, TO_DEVICE})


def is_copy(kind: str) -> bool:
    """Whether an op of this kind copies to the host, waits for such a copy, or copies back."""
    return kind in COPIES
