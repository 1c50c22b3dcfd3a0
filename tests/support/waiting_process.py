"""A process that says that it is there and waits until its input ends; `tests.support.waiting_process`."""

import os
import sys

if os.environ.get("MEMPLAN_TEST_GIVES_UP"):
    sys.exit(3)
sys.stdin.buffer.read()
