"""check_extras.py WHEEL [EXTRA …]: each extra installed from the wheel into a new environment, and used.

Without extras named it is memplan alone. What is installed are the pins of `requirements.lock` for that extra
and nothing else: an extra that needs more than its list says does not pass.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

import lock

BARE = "memplan"
FILES = {
    # a and b are live together at step 1, b and c at step 2: 1024 + 512 bytes, and no plan needs less.
    "three.csv": "id,lower,upper,size\na,0,2,1024\nb,1,3,512\nc,2,4,1024\n",
    "proved.py": """\
import json, sys
plan = json.load(sys.stdin)
found = plan["arena_bytes"], plan["lower_bound_bytes"], plan["optimal"]
sys.exit(None if found == (1536, 1536, True) else f"memplan plans {found}")
""",
    "model.py": """\
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).eval(), (torch.rand(4, 8),)
""",
    "function.py": """\
import jax
def square():
    return lambda x: x @ x.T, (jax.ShapeDtypeStruct((8, 16), "float32"),)
""",
    "zoo.toml": '[[models]]\nname = "net"\nfactory = "model.py:net"\n',
    "answers.py": """\
import sys, time, urllib.request
for _ in range(600):
    time.sleep(0.1)
    try:
        sys.exit(urllib.request.urlopen(sys.argv[1], timeout=2).read() != b"ok")
    except OSError:
        pass
sys.exit("the dashboard does not answer")
""",
    "chart.py": """\
from memplan_dashboard.notebook import chart
from memplan_engine import load, make_plan
assert chart(make_plan(load("three.csv")))._message
""",
}
"""What lies in the folder in which the commands run."""

COMMANDS = {
    BARE: """
        memplan --help
        memplan strategies
        memplan plan three.csv --json | python proved.py
        memplan plan three.csv -o plan.json
        memplan validate plan.json
        """,
    "torch": """
        memplan capture model.py:net -o graph.json
        memplan run model.py:net --check
        """,
    "onnx": "memplan peak $(python -c 'import memplan_examples as m; print(m.PATH / \"squeezenet.onnx\")')",
    "jax": "memplan capture --jax function.py:square -o graph.json",
    "executorch": "python -c 'import executorch.exir, memplan_engine as m; m.ExecutorchPlanner()'",
    "dashboard": """
        memplan dashboard --no-browser --port $PORT three.csv & pid=$!
        trap 'kill $pid; wait $pid' EXIT
        python answers.py http://127.0.0.1:$PORT/_stcore/health
        """,
    "figures": "memplan report three.csv --svg plan.svg --png plan.png && test -s plan.png",
    "notebook": "python chart.py",
    "history": """
        git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m first
        memplan history record three.csv --store store.db
        memplan history log --store store.db
        """,
    # There is no server: what is said is that none answers, and not that psycopg is missing.
    "postgresql": """
        said=$(memplan history log --store postgresql://n@127.0.0.1:1/x 2>&1 || true)
        grep "no answer from the server" <<<"$said"
        """,
    "cluster": """
        dask scheduler --host 127.0.0.1 --port $PORT --no-dashboard & scheduler=$!
        dask worker tcp://127.0.0.1:$PORT --nthreads 1 --no-dashboard & worker=$!
        trap 'kill $worker $scheduler; wait' EXIT
        memplan zoo zoo.toml --scheduler tcp://127.0.0.1:$PORT
        """,
    "examples": "python -c 'import transformers' && memplan run model.py:net --check",
    "bench": "python -c 'import omnimalloc, ortools.sat.python.cp_model'",
    "test": "pytest --version && ruff --version && mypy --version",
    "docs": "mkdocs --version && towncrier --version",
}
"""What is tried of an extra, by bash."""

ALL = "torch", "onnx", "figures", "history", "dashboard"
"""What the extra `all` brings. The dashboard comes last: it is ended at the end."""


def check(wheel: Path, extra: str) -> None:
    """Install `extra` from `wheel` and use it; CalledProcessError where one of both fails."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
        install = [*pip, "install", "--no-deps", "--no-compile"]
        (folder / "pins.txt").write_text("\n".join(lock.chosen_pins([extra])), encoding="utf-8")
        subprocess.run([*install, "--require-hashes", "-r", str(folder / "pins.txt")], check=True)
        subprocess.run([*install, str(wheel)], check=True)
        subprocess.run([*pip, "check"], check=True)
        work = folder / "elsewhere"
        work.mkdir()
        use(extra, programs, work)


def use(extra: str, programs: Path, work: Path) -> None:
    """Run the commands of `extra` with those in `programs`, in the folder `work`."""
    script = "\n".join(COMMANDS[name] for name in ((BARE, *ALL) if extra == "all" else (extra,)))
    for file, text in FILES.items():
        (work / file).write_text(text, encoding="utf-8")
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    line = ["bash", "-euo", "pipefail", "-c", script]
    # A file, not a pipe: that would stay open as long as something that was started does.
    with (work / "log.txt").open("w") as log:
        done = subprocess.run(
            line, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        )
    if done.returncode:
        print((work / "log.txt").read_text(errors="replace"), file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, script)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(wheel: str, *extras: str) -> int:
    """Check the extras, or memplan alone; return 1 where one does not work."""
    failed = []
    for extra in extras or (BARE,):
        try:
            check(Path(wheel).resolve(), extra)
        except subprocess.CalledProcessError as error:
            print(f"memplan: {extra}: {error}", file=sys.stderr)
            failed.append(extra)
        else:
            print(f"memplan: {extra} works outside the checkout", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
