"""The ops that keep the state of torch's random generator and put it back, as ops of a graph."""

from __future__ import annotations

KEEP_GENERATOR = "memplan.keep_generator"
"""Makes a copy of the state that the generator is in."""
SET_GENERATOR = "memplan.set_generator"
"""Puts the generator in the state that it reads, and makes a copy of the one in which it was."""
PUT_GENERATOR_BACK = "memplan.put_generator_back"
"""Puts the generator in the state that it reads."""
GENERATOR_OPS = frozenset({KEEP_GENERATOR, SET_GENERATOR, PUT_GENERATOR_BACK})
GENERATOR_BYTES = 5056
"""A state of torch's generator on a CPU, mt19937, as `torch.get_rng_state` gives it. One on CUDA has 16."""


OWN_GENERATOR_OPS = frozenset({"memplan.get_rng_state", "memplan.set_rng_state", "memplan.manual_seed"})
"""What the model's own code does with the generator: a checkpoint keeps its state, and puts it back before
what it drew is drawn again."""


def is_of_generator(kind: str) -> bool:
    """Whether an op of this kind keeps a state of the generator, or puts one back."""
    return kind in GENERATOR_OPS


def is_of_own_code(kind: str) -> bool:
    """Whether an op of this kind is the model's own reading or setting of the generator: its place is among
    those that draw, and it runs once."""
    return kind in OWN_GENERATOR_OPS
