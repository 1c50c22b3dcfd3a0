"""The JSON of a run: what was predicted of a model and what was measured when it ran inside its plan."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field

from memplan_engine.formats.memplan_json.json_base import (
    Count,
    Counts,
    Names,
    ScopeName,
    Strict,
    check_length,
)
from memplan_engine.scope import RUN_OF_GRAPH, Scope, scope_summary

Seconds = Annotated[float, Field(ge=0)]


class TakerEntry(Strict):
    """An op that holds `bytes` for itself while it runs; operators inside it make `inside_bytes` of them, its
    kernels take the rest."""

    op: str
    kind: str = ""
    bytes: Count
    inside_bytes: Count = 0


class EqualityEntry(Strict):
    """Whether results have the bits of `reference`; else the largest absolute difference (none where they
    cannot be compared), the output that has it, and the op whose result is the first to differ.
    `unrepeatable` is, of an eager step, the result in which it differs from itself, taken again."""

    reference: str
    exact: bool
    largest: float | None = None
    output: str = ""
    op: str | None = None
    unrepeatable: str = ""


class WayEntry(Strict):
    """How many storages, of how many bytes, come into the slab by one way, or do not."""

    way: Literal["native", "equivalent", "generated", "copied", "left"]
    storages: Count
    bytes: Count


class LeftEntry(Strict):
    """A storage that is not written in place: the op that makes it, its way, and the reason."""

    storage: str
    op: str
    kind: str
    bytes: Count
    way: Literal["generated", "copied", "left"]
    reason: str


class SlabEntry(Strict):
    """The slab of the run. `share` is the bytes written in place, of all that ops make and do not return."""

    policy: Literal["native", "all"]
    bytes: Count
    share: Annotated[float, Field(ge=0, le=1)]
    views: Count = 0
    in_place: Count = 0
    ways: Annotated[tuple[WayEntry, ...], FailFast()]
    left: Annotated[tuple[LeftEntry, ...], FailFast()] = ()


class CheckEntry(Strict):
    """What safety mode said: `fault` is "" for a run that went through, with `guard` bytes between buffers,
    `ops` watched and `compared_bytes` in all."""

    fault: str = ""
    ops: Count = 0
    compared_bytes: Count = 0
    arena_bytes: Count = 0
    guard: Count = 0


class KindEntry(Strict):
    """Seconds that all ops of one kind took in one iteration, one by one, by torch's allocator (`plain`) and
    in the slab."""

    kind: str
    ops: Count
    plain: Seconds
    slab: Seconds


class ProfileEntry(Strict):
    """Seconds an iteration, medians of `runs` by turns; `setup` is what exporting, planning and inserting the
    slab took. `eager` is none where there is no model beside the graph."""

    runs: Count
    eager: Seconds | None = None
    interpreter: Seconds
    slab: Seconds
    setup: Seconds
    kinds: Annotated[tuple[KindEntry, ...], FailFast()] = ()


class PlanEntry(Strict):
    """The plan that the model ran in; `file` is where it came from, "" when it was made for the run."""

    strategy: str
    arena_bytes: Count
    bound_bytes: Count
    file: str = ""


class OrderEntry(Strict):
    """The order in which the ops ran, where it was not the captured one: the fewest ops that had to be moved
    for it, the live bytes at the worst step before and after, and what every order needs at least, none where
    nobody asked. `file` is the schedule that it came from, "" for the best order that was found."""

    moved: Count
    live_before: Count
    live_after: Count
    bound_bytes: Count | None = None
    file: str = ""


class RunFile(Strict):
    """A file in the format memplan/run, version 1. Of each op, in order, the most live bytes during it:
    `predicted`, and measured at the levels `dispatch` and `allocator`; () for what is not known. `scope` says
    what `predicted` counts ("eager" where nothing is predicted); what is measured is of scope "eager". An
    observation of a predicted run has no other curve, and `remarks` on which part of a run it is of and what
    it assumes."""

    format: Literal["memplan/run"]
    version: Literal[1]
    name: str
    functional: bool = False
    training: bool = False
    scope: ScopeName = "with_temporaries"
    remarks: Names = ()
    ops: Names
    kinds: Names
    predicted: Counts = ()
    dispatch: Counts = ()
    allocator: Counts = ()
    temporaries: Annotated[tuple[TakerEntry, ...], FailFast()] = ()
    order: OrderEntry | None = None
    plan: PlanEntry | None = None
    slab: SlabEntry | None = None
    equality: EqualityEntry | None = None
    check: CheckEntry | None = None
    profile: ProfileEntry | None = None

    @property
    def curves(self) -> dict[str, Counts]:
        """The curves that are known, by name."""
        found = {"predicted": self.predicted, "dispatch": self.dispatch, "allocator": self.allocator}
        return {name: curve for name, curve in found.items() if curve}

    @property
    def difference(self) -> int | None:
        """Bytes measured at the dispatch level − predicted, at the peak; None when one is not known."""
        if not self.predicted or not self.dispatch:
            return None
        return max(self.dispatch) - max(self.predicted)

    @property
    def passed(self) -> bool:
        """Whether results are equal and safety mode, if it ran, found nothing."""
        equal = self.equality is None or self.equality.exact
        return equal and not (self.check and self.check.fault)


def peak_of(curve: Counts) -> tuple[int, int]:
    """The most bytes of a curve, and the place of the first op that has them; (0, −1) without ops."""
    top = max(curve, default=0)
    return top, curve.index(top) if curve else -1


def check_run(file: RunFile, source: str) -> RunFile:
    """`file`, whose columns are as long as its ops; raises InputError naming the one that is not."""
    n = len(file.ops)
    for name, column in {"kinds": file.kinds, **file.curves}.items():
        check_length(column, n, name, source, each="op")
    return file


def run_summary(run: RunFile) -> dict[str, Any]:
    """The run as plain values for machines: the fields of the file, and what follows from them."""
    peaks = {f"{name}_peak_bytes": peak_of(curve)[0] for name, curve in run.curves.items()}
    derived = {**peaks, "difference_bytes": run.difference, "passed": run.passed}
    ran = RUN_OF_GRAPH if run.predicted else ""
    measured = {f"measured_{key}": told for key, told in scope_summary(Scope.EAGER, ran).items()}
    return derived | run.model_dump(mode="json") | scope_summary(Scope(run.scope)) | measured
