"""Experts on different ranks, with a capacity: each takes as many words as any other, sent by all-to-all."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

WIDTH, WORDS, STEPS = 16, 64, 3


def main() -> None:
    device = sys.argv[sys.argv.index("--device") + 1]
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
    ranks = dist.get_world_size()
    router = torch.nn.Linear(WIDTH, ranks, bias=False, device=device)
    expert = torch.nn.Linear(WIDTH, WIDTH, bias=False, device=device)
    optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.1)
    for _ in range(STEPS):
        words = torch.rand(WORDS, WIDTH, device=device)
        weight, which = router(words).softmax(-1).t().topk(WORDS // ranks)
        sent = all_to_all_single_autograd(words[which.flatten()], None, None, dist.group.WORLD)
        back = all_to_all_single_autograd(expert(sent), None, None, dist.group.WORLD)
        (back * weight.flatten()[:, None]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
