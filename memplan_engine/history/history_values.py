"""What a store of history holds: runs, series, points with their figures, acknowledgements."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

Pairs = tuple[tuple[str, str], ...]
"""Names with their values, in the order of the names."""

SHORT_HASH = 12
"""Letters of a commit or of a digest that people are shown."""


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """When and where figures were taken: a commit of `project`, "" where there is none.

    `parent` is the first parent of the commit, "" for none. `committed_at` and `recorded_at` are seconds
    since 1970, UTC; 0 for a time that is not known. `dirty` says that the files were not those of the commit.
    `versions` are those of the packages that matter; `host` is the machine. `key` names the run in every
    store that it is copied to, 32 hexadecimal digits; a store gives one to a run that has none.
    """

    project: str
    commit: str = ""
    parent: str = ""
    committed_at: int = 0
    branch: str = ""
    dirty: bool = False
    recorded_at: int = 0
    versions: Pairs = ()
    host: str = ""
    key: str = ""

    @property
    def label(self) -> str:
        """The commit as people are shown it, "+" behind one whose files were changed."""
        return (self.commit[:SHORT_HASH] or "no commit") + ("+" if self.dirty else "")


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """What is compared over time: a `variant` ("batch 8, bf16") of a `model` of `project`, planned by
    `strategy` with `options`. Two series are one where all of these are equal."""

    project: str
    model: str
    variant: str = ""
    strategy: str = "auto"
    options: Pairs = ()

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, in hexadecimal."""
        fields = [self.project, self.model, self.variant, self.strategy, self.options]
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @property
    def label(self) -> str:
        """The series as people are shown it."""
        return f"{self.model} ({self.variant})" if self.variant else self.model


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """The figures of one point, bytes: the `arena`, the `demand` (the most bytes live at one step), the
    `bound` with the kind of its argument, `weights`, and `temporaries`, what ops hold beside the arena.

    `peak_op` is the op that runs at the peak. `eager` is the peak of a run without a plan and `reserved` what
    its allocator held, None where nobody has measured them.
    """

    arena: int
    demand: int
    bound: int
    bound_kind: str
    weights: int = 0
    temporaries: int = 0
    peak_op: str = ""
    eager: int | None = None
    reserved: int | None = None

    @property
    def loss(self) -> int:
        """Arena minus demand, bytes: what is lost to packing."""
        return self.arena - self.demand

    @property
    def nbytes(self) -> tuple[int | None, ...]:
        """All that is counted in bytes: two points with the same are no change."""
        return (
            self.arena,
            self.demand,
            self.bound,
            self.weights,
            self.temporaries,
            self.eager,
            self.reserved,
        )


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """SHA-256 in hexadecimal, "" for what there is not: of the `graph` as memplan JSON, of its `structure`
    (the same without lines of source), of the `problem`, and of the `plan`'s offsets."""

    graph: str = ""
    structure: str = ""
    problem: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A point before it is recorded: its series and figures, and its graph as memplan JSON in UTF-8, b"" for
    none. `nodes` is what the search visited; `cut_short` says that its limit ended it."""

    series: HistorySeries
    figures: HistoryFigures
    fingerprints: Fingerprints = Fingerprints()
    graph_json: bytes = field(default=b"", repr=False)
    nodes: int = 0
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A point of a store: `number` counts them in the order in which they came."""

    number: int
    run: HistoryRun
    series: HistorySeries
    figures: HistoryFigures
    fingerprints: Fingerprints
    nodes: int = 0
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Somebody's word that the change which came with `commit` in `series` is meant: `reason`, who said so,
    and when, in seconds since 1970, UTC."""

    series: HistorySeries
    commit: str
    reason: str
    author: str = ""
    acknowledged_at: int = 0


def pairs(values: dict[str, object]) -> Pairs:
    """`values` as text, in the order of their names."""
    return tuple((name, str(values[name])) for name in sorted(values))
