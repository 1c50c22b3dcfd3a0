"""What one rank's run says of the others: which hold shards of the same shapes; and its process groups."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.pipelining import stage as stages
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.runtime.ranks.rank_launch import FACTS
from memplan_engine.runtime.ranks.tensor_messages import TensorMessages
from memplan_engine.runtime.recorder.op_recorder import recorder_on
from memplan_engine.torch_capture.torch_fake import patched

Shapes = list[tuple[tuple[int, ...], str]]


@dataclass
class RankFacts:
    """Of the run of `rank`: its `stages` of pipelines, the ranks that hold the same (`replicas`; of flat
    parameters as much), and of each rank whose parameters follow from those of this one a digest of their
    shapes."""

    rank: int
    world_size: int
    stages: list[int] = field(default_factory=list)
    replicas: set[int] = field(default_factory=set)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    steps_for: dict[int, Shapes] = field(default_factory=dict)
    """Of the ranks among which an optimizer is shared out the parameters that each steps for."""
    groups: list[int] = field(default_factory=list)
    """The sizes of its process groups of more than one rank."""
    actions: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    tensors: TensorMessages = field(default_factory=TensorMessages)
    cut: bool = False
    """Whether its data loaders had more than they gave."""
    _undo: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """With what happens in this process noted."""
        make_stage, make_replica = stages._PipelineStageBase.__init__, DistributedDataParallel.__init__
        make_flat = FullyShardedDataParallel.__init__

        def stage(own: Any, submodule: Any, index: int, *args: Any, **kwargs: Any) -> None:
            self.stages.append(int(index))
            make_stage(own, submodule, index, *args, **kwargs)

        def replica(own: Any, *args: Any, **kwargs: Any) -> None:
            make_replica(own, *args, **kwargs)
            self.replicas.update(torch.distributed.get_process_group_ranks(own.process_group))

        def flat(own: Any, *args: Any, **kwargs: Any) -> None:
            make_flat(own, *args, **kwargs)
            # Shards of a flat parameter are padded to one size; the parts of original ones in them are not.
            if not own._use_orig_params:
                self.replicas.update(torch.distributed.get_process_group_ranks(own.process_group))

        hook = register_optimizer_step_pre_hook(self._step)
        _noting.append(self)
        with self._undo:
            self._undo.callback(hook.remove)
            self._undo.callback(_noting.pop)
            self._undo.enter_context(
                patched(
                    (stages._PipelineStageBase, "__init__", stage),
                    (DistributedDataParallel, "__init__", replica),
                    (FullyShardedDataParallel, "__init__", flat),
                    *self._noting_actions(),
                )
            )
            yield

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
        # Who has one has imported it; nobody else has to.
        shared_out = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
        if shared_out is not None and isinstance(optimizer, shared_out.ZeroRedundancyOptimizer):
            if not self.steps_for:
                self._undo.enter_context(patched((shared_out, "_broadcast_object", _own_object)))
            ranks = torch.distributed.get_process_group_ranks(optimizer.process_group)
            partitions = optimizer._partition_parameters()
            for rank, groups in zip(ranks, partitions, strict=True):
                own = itertools.chain.from_iterable(group["params"] for group in groups)
                self.steps_for[rank] = [(tuple(each.shape), str(each.dtype)) for each in own]
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
                shape = _shard_shape(shape, tuple(each.device_mesh.shape), at, each.placements)
            shapes.append((shape, str(each.dtype)))
        said = json.dumps([sorted(self.stages), sorted(shapes), sorted(self.steps_for.get(rank, []))])
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        """Leave in `folder` what `read_facts` reads."""
        # A run without a step, or with groups that came after the last one.
        self._count_groups()
        said = {
            "groups": self.groups,
            "stages": sorted(set(self.stages)),
            "actions": self.actions,
            "cut": self.cut,
            "sent": self.tensors.sent,
            "received": self.tensors.received,
            "digests": {str(rank): digest for rank, digest in self.digests().items()},
        }
        (folder / FACTS).write_text(json.dumps(said))


def _own_object(value: Any, *args: Any, **kwargs: Any) -> Any:
    """What an optimizer that is shared out broadcasts of its state: each rank has its own part alone."""
    return value


_noting: list[RankFacts] = []
"""Of this process, while it is a rank."""


def note_parameters(parameters: Iterable[torch.Tensor]) -> None:
    """Take note of what a rank holds that no optimizer will step for."""
    for facts in _noting:
        facts.parameters.update((id(each), each) for each in parameters)


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


_shard_shape = functools.cache(shard_shape)
"""Ranks by weights are many; like places of like weights are few."""


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
