"""What a zoo is made of: variants, what a process is asked for about one, what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from memplan_engine.history.history_values import NewPoint
from memplan_engine.preparation import Preparation

Value = bool | int | float | str
"""Of an axis."""
Pairs = tuple[tuple[str, Value], ...]
"""Names with their values, in the order in which they were given."""

Versions = tuple[tuple[str, str], ...]
"""Of packages, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the graphs of a variant come from: one of these three.

    `factory` is "nets.py:build(batch=8)", captured as `training` says ("" for inference) with the `options`
    of that, by their names on the command line. `file` is a graph, an ONNX model, a .pt2 or whatever else has
    a graph, whose `symbols` have values. `script` is run as every rank of a `world` with `arguments`, on
    fake tensors; each rank that differs gives a graph.
    """

    factory: str = ""
    training: str = ""
    options: Pairs = ()
    file: str = ""
    symbols: tuple[tuple[str, int], ...] = ()
    script: str = ""
    arguments: tuple[str, ...] = ()
    world: int = 1

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.factory or self.file or self.script


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the variants of `model`: the values of its `axes`, where its graphs come from, and by which
    strategies they are planned. `how` is how a graph becomes a problem. `device` is what ranks run on."""

    model: str
    axes: Pairs
    origin: Origin
    strategies: tuple[str, ...]
    how: Preparation = field(default_factory=Preparation)
    device: str = ""

    @property
    def text(self) -> str:
        """ "batch=8, dtype=bfloat16": the variant of a series."""
        return axes_text(self.axes)

    @property
    def label(self) -> str:
        """ "gpt (batch=8)": what people are shown."""
        return f"{self.model} ({self.text})" if self.axes else self.model


@dataclass(frozen=True, slots=True)
class Manifest:
    """The variants of the file `path`, in its order, and the `capacity` in bytes that they are held against,
    None where it names none; `device` is the name of that GPU, "" for a number of bytes."""

    path: Path
    variants: tuple[Variant, ...]
    project: str = ""
    capacity: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class ZooGraph:
    """A graph of a variant: all of it, or that of one `rank`. `json` is memplan JSON in UTF-8, b"" where only
    its SHA-256, `digest`, is carried. `eager` is the peak of the run that it was recorded in and `reserved`
    what the allocator held there, bytes, None where there was no run."""

    digest: str
    json: bytes = field(default=b"", repr=False)
    rank: str = ""
    eager: int | None = None
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class ZooTask:
    """What is asked for: the points of `variant` by `strategies`, of `graphs` where these are known.

    `folder` is where factories and files are looked for. `sources` is the digest of those files when it was
    asked, `versions` are those of the packages: who answers has to have the same. `nodes` and `seed` are
    what a search may spend; a model takes `seconds` at most.
    """

    variant: Variant
    strategies: tuple[str, ...]
    folder: str
    project: str
    sources: str
    versions: Versions
    nodes: int
    seed: int
    seconds: float
    graphs: tuple[ZooGraph, ...] = ()


@dataclass(frozen=True, slots=True)
class ZooAnswer:
    """What became of a task: `points` of each graph by each strategy, the `graphs` where these were not
    known, and in `failures` each strategy that failed ("" for all of them) with the reason, one line. `died`
    is how the process ended that was to answer, "" where it has answered."""

    points: tuple[NewPoint, ...] = ()
    graphs: tuple[ZooGraph, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    died: str = ""


def axes_text(axes: Pairs) -> str:
    """ "batch=8, dtype=bfloat16"."""
    return ", ".join(f"{name}={value}" for name, value in axes)
