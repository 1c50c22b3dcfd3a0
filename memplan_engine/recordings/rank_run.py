"""One rank of a distributed run, and which others do the same."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.recordings.observation import Observation

MOST_RANKS = 1 << 20
"""Of a run, and more than there are stages or micro-batches of a pipeline."""


@dataclass(frozen=True, slots=True)
class PipelineAction:
    """What a rank did for one micro-batch of a pipeline, as torch's schedule had it do: `kind` is torch's
    letter (F forward, B backward, I its part for the inputs, W that for the weights); the ops `first` to
    `end` (exclusive) are its own."""

    kind: str
    stage: int
    micro_batch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class RankRun:
    """What `rank` of `world_size` does; `ranks` are those that do the same, itself included: the same stages
    of a pipeline, shards of the same shapes. `groups` are the process groups of more than one rank that it is
    in: each has a communicator; `group_sizes` are their ranks, where these are known. `actions` are those of
    a pipeline, in the order in which they ran."""

    rank: int
    world_size: int
    observation: Observation
    ranks: tuple[int, ...]
    stages: tuple[int, ...]
    groups: int
    actions: tuple[PipelineAction, ...] = ()
    group_sizes: tuple[int, ...] = ()
