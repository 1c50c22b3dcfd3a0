"""Plans of TensorFlow Lite models in the interpreter of tflite-micro: the same bits, and how much memory it
takes.

    python -m benchmarks tflite_micro --models FOLDER --python PYTHON [--markdown]

FOLDER has .tflite files, such as those of tflite-micro's examples; PYTHON is that of an environment with
tflite-micro and NumPy. Each model is planned, the plan is written into it, and both files are run there on
three random inputs.

"planned" is our arena and "greedy" that of tflite-micro's own planner, by size (ours of that name, on the
sizes and the alignment that it plans with); "live" is the bound that proves it. "takes" is the least memory
with which the interpreter runs, to 16 bytes, with its own planner and with our plan: tensors, what kernels
ask for, and its records of the model; "bits" whether all results are the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.recompute import Table  # noqa: E402
from memplan_engine import MemplanError, load, make_plan  # noqa: E402
from memplan_engine.files import write  # noqa: E402
from memplan_engine.preparation import Preparation, prepare  # noqa: E402

HOW = Preparation(alignment=16, plan_inputs=True)
CHILD = """
import json, sys
import numpy as np
from tflite_micro.python.tflite_micro import runtime

ROOM, STEP = 64 << 20, 16

def results(path, seed, room):
    interpreter = runtime.Interpreter.from_file(path, arena_size=room)
    random, found, number = np.random.default_rng(seed), [], 0
    while True:
        try:
            told = interpreter.get_input_details(number)
        except IndexError:
            break
        kind = np.dtype(told["dtype"])
        drawn = random.normal(size=told["shape"])
        if kind.kind in "iu":
            drawn = random.integers(-100, 100, told["shape"])
        interpreter.set_input(drawn.astype(kind), number)
        number += 1
    interpreter.invoke()
    return interpreter.get_output(0).tobytes().hex()

def least(path):
    low, high = 0, ROOM
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        try:
            results(path, 0, middle)
            high = middle
        except Exception:
            low = middle
    return high

own, planned = sys.argv[1:3]
same = all(results(own, seed, ROOM) == results(planned, seed, ROOM) for seed in range(3))
print(json.dumps([same, least(own), least(planned)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if options.models is None:
        print("--models FOLDER and --python PYTHON say what is run, and where")
        return
    table = Table(
        options, ("model", "buffers", "greedy", "planned", "live", "takes", "with our plan", "bits")
    )
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(options.models.glob("*.tflite")):
            try:
                problem = prepare(load(path), HOW)
                plan, greedy = make_plan(problem), make_plan(problem, "greedy_by_size")
                target = Path(folder) / path.name
                write(plan, target, path)
            except MemplanError as error:
                print(f"{path.name}: {error}")
                continue
            sizes = [f"{greedy.arena_bytes:,}", f"{plan.arena_bytes:,}", f"{plan.bound.nbytes:,}"]
            command = [options.python, "-c", CHILD, str(path), str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                table.row(path.stem, len(problem), *sizes, "", "", "does not run there")
                continue
            same, own, planned = json.loads(done.stdout.splitlines()[-1])
            table.row(
                path.stem, len(problem), *sizes, f"{own:,}", f"{planned:,}", "same" if same else "OTHERS"
            )


if __name__ == "__main__":
    main()
