"""How long a zoo takes: captures on one worker and on two, and variants that are all known.

    python benchmarks/zoo_speed.py [--captures N] [--known N] [--scheduler]

Each row is `memplan zoo` as a process of its own, with a cache and a store of its own: wall seconds, CPU
seconds of it and all that it starts, and how many cores it had. The work that each capture is, and what is
done once, are told apart by a run of a single variant; from the two follows what two workers come to where
both have a core to themselves, which a busy machine does not show. With --scheduler workers are those of a
Dask cluster, a process each. Known variants are of a graph of 48 ops each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from memplan_engine import Graph, load
from memplan_engine.history.measuring import NODES
from memplan_engine.zoo.manifest import read_zoo
from memplan_engine.zoo.planning import graph_of, planned
from memplan_engine.zoo.variant_keys import graphs_key, point_key, sources_digest, versions_here
from memplan_engine.zoo.zoo_cache import ZooCache
from memplan_engine.zoo.zoo_values import ZooTask

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(24))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def build(batch):
    return Net(), (torch.zeros(batch, 256),)
"""
MEMPLAN = (sys.executable, "-c", "from memplan_engine.cli.main import main; main()", "zoo")
ADDRESS = "tcp://127.0.0.1:28786"


def write(folder: Path, variants: int) -> Path:
    """A manifest of so many variants of one model."""
    (folder / "nets.py").write_text(MODEL)
    path = folder / f"zoo{variants}.toml"
    axes = f"axes = {{ batch = {list(range(2, variants + 2))} }}"
    path.write_text(f'project = "bench"\n[[models]]\nname = "net"\nfactory = "nets.py:build"\n{axes}\n')
    return path


def timed(folder: Path, manifest: Path, name: str, *options: str) -> tuple[float, float]:
    """Wall and CPU seconds of one run; `name` is that of its cache and store."""
    line = [*MEMPLAN, manifest.name, "--cache", f"{name}-cache", "--store", f"{name}.db", "--json", *options]
    begun = time.perf_counter()
    process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said.decode()
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime


def fill(folder: Path, manifest: Path, cache: Path) -> None:
    """Have in the cache what a run of `manifest` would leave, each variant with a graph of its own."""
    graph = load(folder / "graph.json")
    assert isinstance(graph, Graph)
    kept, versions, read = ZooCache(cache), versions_here(), read_zoo(manifest)
    for number, variant in enumerate(read.variants):
        sources = sources_digest(variant.origin, manifest.resolve().parent)
        task = ZooTask(variant, ("auto",), "", "bench", sources, versions, NODES, 0, 0.0)
        answer = planned(task, [graph_of(replace(graph, name=f"net{number}"))])
        kept.keep_graphs(graphs_key(variant, sources, versions), answer.graphs)
        (point,) = answer.points
        key = point_key(point.fingerprints.graph, variant.how, "auto", NODES, 0, versions)
        kept.keep_point(key, point)


def cpu_seconds(process: int) -> float:
    """What `process`, those that it has started, and those of them that have ended have taken (Linux)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        # Each thread has the processes that it has started.
        threads = Path(f"/proc/{process}/task").glob("*/children")
        children = [child for thread in threads for child in thread.read_text().split()]
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


@contextmanager
def cluster(workers: int) -> Iterator[Callable[[], float]]:
    """A scheduler with so many workers of one thread; gives what tells the CPU seconds of the workers."""
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = ADDRESS.rpartition(":")[2]
    started = [subprocess.Popen([*dask, "scheduler", "--port", port, "--no-dashboard"], **quiet)]  # type: ignore[call-overload]
    worker = [*dask, "worker", ADDRESS, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    started += [subprocess.Popen(worker, **quiet) for _ in range(workers)]  # type: ignore[call-overload]
    try:
        time.sleep(10)
        yield lambda: sum(cpu_seconds(process.pid) for process in started[1:])
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def compare(folder: Path, captures: int, scheduler: bool) -> None:
    """Captures on one worker and on two, and what follows where each has a core."""
    one, many = write(folder, 1), write(folder, captures)
    start_wall, start_cpu = timed(folder, one, "start", "--jobs", "1")
    print(f"{'run':28} {'wall s':>8} {'CPU s':>8} {'cores':>6}")
    print(f"{'1 variant':28} {start_wall:8.1f} {start_cpu:8.1f} {start_cpu / start_wall:6.2f}")
    walls, cpus = {}, {}
    for workers in (1, 2):
        name = f"{captures} variants, {workers} workers"
        if scheduler:
            with cluster(workers) as theirs:
                before = theirs()
                wall, cpu = timed(folder, many, f"d{workers}", "--scheduler", ADDRESS)
                work = theirs() - before
            walls[workers], cpus[workers] = wall, cpu + work
            # What is done once is what the command itself does; each worker imports torch.
            start_cpu = cpu
            print(f"{name:28} {wall:8.1f} {cpu + work:8.1f} {(cpu + work) / wall:6.2f}")
            continue
        walls[workers], cpus[workers] = timed(folder, many, f"j{workers}", "--jobs", str(workers))
        cores = cpus[workers] / walls[workers]
        print(f"{name:28} {walls[workers]:8.1f} {cpus[workers]:8.1f} {cores:6.2f}")
    alone = cpus[1] / (start_cpu + (cpus[2] - start_cpu) / 2)
    print(f"two workers are {walls[1] / walls[2]:.2f} times as fast by the clock", end=", ")
    print(f"{alone:.2f} times where each has a core to itself", end="")
    print(f"; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--captures", type=int, default=200)
    parser.add_argument("--known", type=int, default=1000)
    parser.add_argument("--scheduler", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.captures:
            compare(folder, options.captures, options.scheduler)
        if options.known:
            manifest = write(folder, options.known)
            capture = [sys.executable, "-m", "memplan_engine", "capture", "nets.py:build(batch=2)"]
            subprocess.run([*capture, "-o", "graph.json"], cwd=folder, check=True, capture_output=True)
            fill(folder, manifest, folder / "known-cache")
            for again in ("first time", "again"):
                wall, cpu = timed(folder, manifest, "known")
                print(f"{options.known} known variants, {again}: {wall:.1f} s, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main()
