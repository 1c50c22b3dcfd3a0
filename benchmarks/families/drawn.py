"""Random instances in the shapes that planners meet; their optimum is not known."""

from __future__ import annotations

import numpy as np

from benchmarks.families.instance import Instance
from memplan_engine.problem import make_problem

UNIT = 64


def mixed(count: int, seed: int, long_lived: float = 0.0) -> Instance:
    """One buffer made at each step, small ones most often; most live 8 steps or so, a share `long_lived`
    anywhere up to the end. Sizes of 64 bytes to 4 MiB."""
    random = np.random.default_rng(seed)
    start = np.arange(count)
    length = random.geometric(1 / 8, count)
    kept = random.random(count) < long_lived
    length[kept] = random.integers(1, count, count)[kept]
    size = UNIT * np.exp2(random.uniform(0, 16, count)).astype(np.int64)
    name = f"drawn/{'long' if long_lived else 'short'}-{count}-s{seed}"
    return Instance(name, make_problem(start, np.minimum(start + length, count), size, name=name))


def two_sizes(count: int, seed: int) -> Instance:
    """A tenth are large (1 to 4 MiB) and live at most 8 steps; the rest has 7 to 112 KiB and lives for a
    twentieth of all steps up to half of them. There are a third as many steps as buffers."""
    random = np.random.default_rng(seed)
    steps = max(20, count // 3)
    large = random.random(count) < 0.1
    size = np.where(large, random.integers(16_384, 65_537, count), random.integers(112, 1_793, count)) * UNIT
    start = random.integers(0, steps, count)
    length = np.where(large, random.integers(1, 9, count), random.integers(steps // 20, steps // 2, count))
    name = f"drawn/two-sizes-{count}-s{seed}"
    return Instance(name, make_problem(start, start + length, size, name=name))


def training(layers: int, seed: int) -> Instance:
    """A training step: layer l's activation lives from step l to its backward step 2 × layers − 1 − l; beside
    it, scratch for one step, a temporary for two, and in the backward half gradients that are handed on."""
    random = np.random.default_rng(seed)
    forward = np.arange(layers)
    backward = 2 * layers - 1 - forward
    width = UNIT * np.exp2(random.uniform(6, 14, layers)).astype(np.int64)
    steps = np.arange(2 * layers)
    scratch = UNIT * random.integers(1, 1 << 12, 2 * layers)
    brief = UNIT * random.integers(1, 1 << 10, 2 * layers)
    start = np.concatenate([forward, steps, steps, backward])
    end = np.concatenate([backward + 1, steps + 1, np.minimum(steps + 2, 2 * layers), backward + 2])
    size = np.concatenate([width, scratch, brief, width])
    end = np.minimum(end, 2 * layers)
    name = f"drawn/training-{len(start)}-s{seed}"
    return Instance(name, make_problem(start, end, size, name=name))
