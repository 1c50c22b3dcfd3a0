"""Lists of buffers that tests find in files."""

from __future__ import annotations

import numpy as np

from memplan_engine import Problem, make_problem

# The one of the command line, in the folder of each of its tests.

#   steps   0   1   2   3   4     live: 100, 150, 150, 170, 120
#   a (100) ├───────────┤         The optimum is 170, the bytes live at step 3: c and a at the bottom,
#   b  (50)     ├───────────┤     b above c.
#   c (120)             ├───────┤
BUFFERS = "id,lower,upper,size\na,0,3,100\nb,1,4,50\nc,3,5,120\n"


def hard_list(random: np.random.Generator) -> Problem:
    """300 buffers that no search packs to the bound soon."""
    start = random.integers(0, 100, 300)
    return make_problem(start, start + random.integers(20, 80, 300), random.integers(1, 99, 300) << 13)
