"""Compile the kernels of replays, which note what they do: `make test` runs this beside `compile_packing`.

A test that is the first to need them would wait for them, and the second core has nothing to do meanwhile.
"""

from __future__ import annotations

from memplan_engine.kernels.jit import compiled_only
from memplan_engine.problem import make_problem
from memplan_engine.replay.make import make_replay, replayable

PROBLEM = make_problem([0, 1, 2, 0], [3, 4, 5, 2], [8, 16, 8, 8], alignment=4)

if __name__ == "__main__":
    with compiled_only():
        for name in replayable():
            make_replay(PROBLEM, name)
