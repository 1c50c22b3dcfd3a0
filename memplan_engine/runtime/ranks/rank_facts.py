"""What one rank's run says of the others: which hold shards of the same shapes; and its process groups."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import distributed_c10d
from torch.distributed.pipelining import stage as stages
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.runtime.recorder.op_recorder import recorder_on
from memplan_engine.torch_capture.torch_fake import patched

FILE = "facts.json"
Shapes = list[tuple[tuple[int, ...], str]]


@dataclass
class RankFacts:
    """Of the run of `rank`: its `stages` of pipelines, the ranks of its replicas, and of each rank whose
    parameters follow from those of this one a digest of their shapes."""

    rank: int
    world_size: int
    stages: list[int] = field(default_factory=list)
    replicas: set[int] = field(default_factory=set)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    groups: list[int] = field(default_factory=list)
    """The sizes of its process groups of more than one rank."""
    actions: list[tuple[str, int, int, int, int]] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """With what happens in this process noted."""
        make_stage, make_replica = stages._PipelineStageBase.__init__, DistributedDataParallel.__init__

        def stage(own: Any, submodule: Any, index: int, *args: Any, **kwargs: Any) -> None:
            self.stages.append(int(index))
            make_stage(own, submodule, index, *args, **kwargs)

        def replica(own: Any, *args: Any, **kwargs: Any) -> None:
            make_replica(own, *args, **kwargs)
            self.replicas.update(torch.distributed.get_process_group_ranks(own.process_group))

        hook = register_optimizer_step_pre_hook(self._step)
        try:
            with patched(
                (stages._PipelineStageBase, "__init__", stage),
                (DistributedDataParallel, "__init__", replica),
                *self._noting_actions(),
            ):
                yield
        finally:
            hook.remove()

    def _noting_actions(self) -> Iterator[tuple[Any, str, Any]]:
        """What torch's schedules call for each action, with the ops that it makes noted."""
        base = stages._PipelineStageBase
        for name, letter in (
            ("forward_one_chunk", "F"),
            ("backward_one_chunk", "B"),
            ("backward_weight_one_chunk", "W"),
        ):
            yield base, name, self._noted_action(getattr(base, name), letter)

    def _noted_action(self, call: Any, letter: str) -> Any:
        def act(own: Any, number: int, *args: Any, **kwargs: Any) -> Any:
            first = _ops_so_far()
            result = call(own, number, *args, **kwargs)
            # `full_backward` is the third that torch gives it.
            full = kwargs.get("full_backward", args[1] if len(args) > 1 else True)
            kind = "I" if letter == "B" and not full else letter
            if first is not None:
                end = _ops_so_far()
                self.actions.append((kind, int(own.stage_index), int(number), first, end or first))
            return result

        return act

    def _step(self, optimizer: Any, *call: Any) -> None:
        for each in itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups):
            self.parameters.setdefault(id(each), each)
        self._count_groups()

    def _count_groups(self) -> None:
        groups = distributed_c10d._world.pg_map
        self.groups = (
            sorted(group.size() for group in groups if group.size() > 1 and group.rank() >= 0) or self.groups
        )

    def digests(self) -> dict[int, str]:
        """Of each rank that is known of, this one included, a digest of its stages and shards."""
        shards = [each for each in self.parameters.values() if isinstance(each, DTensor)]
        with unset_fake_temporarily(), _disable_current_modes():
            meshes = {each.device_mesh: _coordinates(each.device_mesh) for each in shards}
        known = set.intersection(*(set(each) for each in meshes.values())) if meshes else set()
        known |= self.replicas | {self.rank}
        return {rank: self._digest(rank, meshes) for rank in sorted(known)}

    def _digest(self, rank: int, meshes: dict[Any, dict[int, tuple[int, ...]]]) -> str:
        shapes: Shapes = []
        for each in self.parameters.values():
            shape = tuple(each.shape)
            if isinstance(each, DTensor):
                # Replicas hold what this rank holds.
                at = meshes[each.device_mesh].get(rank, meshes[each.device_mesh][self.rank])
                shape = shard_shape(shape, tuple(each.device_mesh.shape), at, each.placements)
            shapes.append((shape, str(each.dtype)))
        said = json.dumps([sorted(self.stages), sorted(shapes)])
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        """Leave in `folder` what `read_facts` reads."""
        # A run without a step, or with groups that came after the last one.
        self._count_groups()
        said = {
            "groups": self.groups,
            "stages": sorted(set(self.stages)),
            "actions": self.actions,
            "digests": {str(rank): digest for rank, digest in self.digests().items()},
        }
        (folder / FILE).write_text(json.dumps(said))


def _ops_so_far() -> int | None:
    """How many ops the recorder of this process has; None without one."""
    recorder = recorder_on()
    return None if recorder is None else len(recorder.flow.origins)


def shard_shape(
    shape: tuple[int, ...], mesh: tuple[int, ...], at: tuple[int, ...], placements: Any
) -> tuple[int, ...]:
    """The shape of what the rank at a place of a mesh holds of a tensor, as DTensor works it out."""
    local, _ = _compute_local_shape_and_global_offset(shape, mesh, list(at), placements, skip_offset=True)
    return tuple(int(size) for size in local)


def _coordinates(mesh: Any) -> dict[int, tuple[int, ...]]:
    """Of each rank of a mesh its place there."""
    ranks = mesh.mesh.tolist()
    found: dict[int, tuple[int, ...]] = {}
    for place in itertools.product(*map(range, mesh.mesh.shape)):
        value = ranks
        for index in place:
            value = value[index]
        found[int(value)] = place
    return found


def read_facts(folder: Path) -> dict[str, Any]:
    """What `RankFacts.write` left there; nothing where it did not come to that."""
    path = folder / FILE
    if not path.exists():
        return {"groups": [], "stages": [], "digests": {}, "actions": []}
    said = json.loads(path.read_text())
    return {**said, "digests": {int(rank): digest for rank, digest in said["digests"].items()}}
