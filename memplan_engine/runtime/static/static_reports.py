"""What a static runtime says of itself: its memory, and when it planned anew."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.runtime.slab.slab_report import Made, counted
from memplan_engine.units import format_bytes, format_percent


@dataclass(frozen=True, slots=True)
class Grown:
    """A storage that has become larger: bytes before (0: it was not there) and now."""

    storage: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan made anew before run number `run` (the first is 1), because of the storages in `grown`; () where
    only lifetimes differ. `before` and `after` are bytes of the buffer, `shapes` those of the tensors among
    the inputs, by name."""

    run: int
    before: int
    after: int
    grown: tuple[Grown, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes)
        what = f"{counted(len(self.grown), 'storage')} grew" if self.grown else "storages live at other times"
        sizes = f"buffer {format_bytes(self.before)} → {format_bytes(self.after)}"
        return f"run {self.run} ({shapes}): {what}, planned anew, {sizes}"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes, for the largest sizes seen so far.

    `buffer_bytes` is the one buffer as planned by `strategy`, `held_bytes` what of it is allocated now;
    `slots_bytes` what it would be with a slot of its own for each storage, as Static Runtime has it, and
    `bound_bytes` a lower bound on every placement. `storages` are managed, with `tensors` in them and
    `managed_bytes` in all. `share` of the bytes made (of those not returned) is written into the buffer, in
    the run before this report. `left` is what stays with the allocator, and why; `constant_bytes` are
    results worked out once."""

    strategy: str
    buffer_bytes: int
    held_bytes: int
    slots_bytes: int
    bound_bytes: int
    storages: int
    tensors: int
    managed_bytes: int
    share: float
    constant_bytes: int
    left: tuple[Made, ...]
    replans: int

    @property
    def saved_bytes(self) -> int:
        """What sharing bytes over time saves."""
        return self.slots_bytes - self.buffer_bytes

    @property
    def saved_share(self) -> float:
        """The same as a part of the slots; 0.0 where there are none."""
        return self.saved_bytes / self.slots_bytes if self.slots_bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{counted(self.storages, 'storage')} ({counted(self.tensors, 'tensor')}) in one buffer of "
            f"{format_bytes(self.buffer_bytes)} ({self.strategy}); a slot for each would be "
            f"{format_bytes(self.slots_bytes)}: {format_percent(self.saved_share)} saved, bound "
            f"{format_bytes(self.bound_bytes)}; {format_percent(self.share)} of the bytes made lie there"
        )
