"""FullyShardedDataParallel, torch's first: flat parameters, gathered and freed by resizing their storages.
With --zero replicas instead, and an optimizer that is shared out among them."""

from __future__ import annotations

import sys
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer

WIDTH, STEPS = 64, 3
KEPT = ShardingStrategy.SHARD_GRAD_OP


def main() -> None:
    device = sys.argv[sys.argv.index("--device") + 1]
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
    layers = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.GELU(), torch.nn.Linear(256, WIDTH))
        for _ in range(4)
    ]
    if "--zero" in sys.argv:
        replica = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
        shared_out = ZeroRedundancyOptimizer(replica.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
        train(replica, shared_out, device)
        return
    # Made on the host and moved by `device_id`, as most scripts do.
    model = FullyShardedDataParallel(
        torch.nn.Sequential(*layers),
        auto_wrap_policy=partial(size_based_auto_wrap_policy, min_num_params=20_000),
        device_id=torch.device(device),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16) if "--bfloat16" in sys.argv else None,
        use_orig_params="--original" in sys.argv,
        sharding_strategy=KEPT if "--kept" in sys.argv else None,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, device)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    for _ in range(STEPS):
        model(torch.rand(16, WIDTH, device=device)).square().mean().backward()
        if isinstance(model, FullyShardedDataParallel):
            model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
