"""What DTensor works out for a list of tensors is the same where it is worked out once for like ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memplan_engine.runtime.ranks.fake_layouts import ExpandedOnce, flagged_once
from memplan_engine.runtime.ranks.fake_world import fake_ranks


def test_strided_shards_are_looked_for_once_a_call() -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    looked: list[int] = []
    told: list[object] = []

    class Schema:
        def __init__(self, *placements: object) -> None:
            self.specs = [SimpleNamespace(placements=placements, use_strided_shard_as_shard_order=True)]

        @property
        def args_spec(self) -> list[SimpleNamespace]:
            looked.append(1)
            return self.specs

    propagate = flagged_once(lambda strategy, schema: told.append(strategy))
    plain, strided = Schema(Shard(0), Replicate()), Schema(Shard(0), _StridedShard(0, split_factor=2))
    for strategy in range(5):
        propagate(strategy, plain)
    assert (len(looked), told) == (1, [])
    for strategy in range(3):
        propagate(strategy, strided)
    propagate("again", plain)
    assert (len(looked), told) == (3, [0, 1, 2])


SHAPES = ((8, 8), (8, 8), (16, 8), (8, 8))


@pytest.fixture
def mesh() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    with fake_ranks(0, 4):
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))


def specs(mesh: Any, placements: Any, flag: bool | None) -> list[Any]:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    forms = [TensorMeta(torch.Size(shape), (shape[1], 1), torch.float32) for shape in SHAPES]
    return [DTensorSpec(mesh, placements, form, use_strided_shard_as_shard_order=flag) for form in forms]


def forms(strategy: Any) -> list[Any]:
    """All that strategies say, costs included."""
    return [
        (str(each.output_specs), [str(spec) for spec in each.input_specs], each.redistribute_cost)
        for each in strategy.strategies
    ]


def test_strategies_are_those_of_torch_and_made_once_for_like_inputs(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy as expand
    from torch.distributed.tensor.placement_types import _StridedShard

    made: list[Any] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args[1])
        return expand(*args, **kwargs)

    once = ExpandedOnce(counted)
    rows: list[Any] = [[Shard(0)] * 3, [Shard(1)] * 3, [Replicate()] * 3]
    strided = [_StridedShard(0, split_factor=2), Shard(0)]
    given = [
        *specs(mesh, (Shard(0), Replicate()), None),
        *specs(mesh, strided, True),
        *specs(mesh, strided, False),
    ]
    for spec in given:
        inputs = [OpStrategy([OpSpec(spec)]) for _ in range(2)]
        schema = OpSchema(torch.ops.aten.add.Tensor, tuple(inputs), {})
        how = {"output_tensor_meta": spec.tensor_meta, "input_index": 1}
        assert forms(once(mesh, schema, rows, **how)) == forms(expand(mesh, schema, rows, **how))
    # Two shapes, in each of three layouts.
    assert len(made) == 6
    once.afresh(lambda: once(mesh, schema, rows, **how))()
    assert len(made) == 7


@pytest.mark.parametrize("flags", [(True,), (False,), (False, True, False), (True, None, True), (None,)])
def test_flags_are_set_as_torch_sets_them(mesh: Any, flags: tuple[bool | None, ...]) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._op_schema import OpSpec, OpStrategy
    from torch.distributed.tensor._sharding_prop import _propagate_use_strided_shard_flag as propagate
    from torch.distributed.tensor.placement_types import _StridedShard

    strided, plain = (_StridedShard(0, split_factor=2), Shard(0)), (Shard(0), Replicate())
    args = [specs(mesh, plain if flag is None else strided, flag)[0] for flag in flags]
    schema = SimpleNamespace(args_spec=args)

    def flagged(call: Any) -> list[bool]:
        made = specs(mesh, strided, False)
        for each in made:
            call(OpStrategy([OpSpec(each, [each])]), schema)
        return [each.use_strided_shard_as_shard_order for each in made]

    assert flagged(flagged_once(propagate)) == flagged(propagate)
