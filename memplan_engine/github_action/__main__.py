"""`python -m memplan_engine.github_action STEP`: one step of the action."""

from __future__ import annotations

import os
import sys

from memplan_engine.github_action.action_steps import run_step

if __name__ == "__main__":
    sys.exit(run_step(" ".join(sys.argv[1:]), os.environ))
