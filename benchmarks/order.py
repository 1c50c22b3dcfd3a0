"""The order of ops: what it wins, what is proved, and what Inductor's three rules win on the same graphs.

    python -m benchmarks order [--only NAMES] [--seconds 10] [--in-place] [--markdown] [--moccasin SOURCE]

The manifest can be rebuilt by anybody: the example graphs; networks of architecture searches
(`families/nas_networks`); models of transformers at their published sizes (`families/published_models`), for
inference and as training steps at batch 1 and 8 with gradients held and freed; the small models of
`eager_manifest`; the instances of Moccasin, from SOURCE, a folder or the address of an archive, which is
downloaded then and not kept. Where that cannot be had, a line says so. NAMES are beginnings with commas
between them: `nas`, `batch 8 freed,example gpt2`. One thread.

"seconds" are those on the clock, by which the search is limited; "cpu" and "check" are processor seconds.
"given" and "best" are live bytes at the worst step, inputs and weights not counted; "Inductor" is the best of
the order given and its `lpmf`, `bfs` and `dfs`, re-implemented; "gap" is best over the proved bound. Every
certificate is checked by `check_reorder`, which shares no code with the search; a breach ends the run. The
garbage collector rests meanwhile, as in `timeit`: it would count what the models before have left.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.families.moccasin import ADDRESS  # noqa: E402
from memplan_engine import (  # noqa: E402
    Graph,
    InputError,
    SolveLimits,
    capture,
    capture_step,
    check_reorder,
    load,
    reorder,
)
from memplan_engine.rewrites.order.heuristics import INDUCTOR  # noqa: E402
from memplan_engine.rewrites.order.order_problem import order_problem  # noqa: E402
from memplan_engine.rewrites.order.order_search import load_order_kernels  # noqa: E402
from memplan_engine.units import format_bytes  # noqa: E402

HEADINGS = (
    *("graph", "ops", "given", "best", "change", "Inductor", "gap", "proved by", "arcs", "states"),
    *("seconds", "cpu", "check"),
)


@dataclass(frozen=True)
class Row:
    name: str
    ops: int
    given: int
    best: int
    bound: int
    inductor: int
    proved_by: str
    arcs: int
    states: int
    seconds: float
    cpu: float
    checking: float

    def cells(self) -> list[str]:
        def change(nbytes: int) -> str:
            return f"{100 * (nbytes / self.given - 1):+.1f} %" if self.given else "0 %"

        gap = f"{100 * (self.best / self.bound - 1):.2f} %" if self.bound < self.best else "0"
        return [
            self.name, str(self.ops), format_bytes(self.given), format_bytes(self.best), change(self.best),
            change(self.inductor), gap, self.proved_by, str(self.arcs or "-"), str(self.states),
            f"{self.seconds:.2f}", f"{self.cpu:.2f}", f"{self.checking:.3f}",
        ]  # fmt: skip


def manifest(moccasin: str) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Each graph's name and what makes it."""
    for path in sorted((ROOT / "example_graphs").iterdir()):
        if path.suffix in (".json", ".onnx"):
            yield f"example {path.name.partition('.')[0]}", partial(example, path)
    from benchmarks.eager_manifest import MODELS
    from benchmarks.eager_variants import TRAINED
    from benchmarks.families.nas_networks import CELLS
    from benchmarks.families.published_models import PUBLISHED, STEPS

    for name in (*(f"{cell} {size}" for cell in CELLS for size in ("cifar", "112px")), "randwire 0"):
        yield f"nas {name}", partial(network, name)
    yield "nas randwire 1", partial(network, "randwire 1")
    yield "nas randwire 2", partial(network, "randwire 2")
    for name in PUBLISHED:
        yield f"published {name}", partial(published, name)
    for batch in (1, 8):
        for gradients in ("held", "freed"):
            for name in STEPS:
                yield f"batch {batch} {gradients} {name}", partial(published_step, name, batch, gradients)
    for graph in moccasin_instances(moccasin):
        yield f"moccasin {graph.name}", partial(_given, graph)
    for name in MODELS:
        yield f"inference {name}", partial(inference, name)
    for gradients in ("held", "freed"):
        for name in TRAINED:
            yield f"step {gradients} {name}", partial(step, name, gradients)


def _given(graph: Graph) -> Graph:
    return graph


def moccasin_instances(source: str) -> list[Graph]:
    """The instances, smallest first; none, and a line that says so, where there is no way to them."""
    from benchmarks.families.moccasin import instances

    try:
        return list(instances(source))
    except OSError as error:
        print(f"moccasin: left out, {source} cannot be had: {error}", flush=True)
        return []


def published(name: str) -> Graph:
    from benchmarks.families.published_models import build

    model, inputs = build(name)
    return capture(model, (), inputs)


def published_step(name: str, batch: int, gradients: str) -> Graph:
    from benchmarks.families.published_models import build

    model, inputs = build(name, batch)
    return capture_step(model.train(), (), inputs, optimizer="adamw", gradients=gradients)


def example(path: Path) -> Graph:
    graph = load(path)
    assert isinstance(graph, Graph)
    return graph


def network(name: str) -> Graph:
    from benchmarks.families.nas_networks import networks

    model, image = networks()[name]
    return capture(model, (image,))


def inference(name: str) -> Graph:
    from benchmarks.eager_manifest import MODELS

    model, inputs = MODELS[name]()
    return capture(model.eval(), (), inputs)


def step(name: str, gradients: str) -> Graph:
    from benchmarks.eager_manifest import MODELS

    model, inputs = MODELS[name]()
    return capture_step(model.train(), (), inputs, optimizer="adamw", gradients=gradients)


def measure(name: str, graph: Graph, seconds: float, in_place: bool) -> Row:
    began = time.process_time()
    result = reorder(graph, SolveLimits(seconds), in_place=in_place)
    cpu = time.process_time() - began
    gc.disable()
    began = time.process_time()
    breaches = check_reorder(graph, result.graph, result.certificate)
    checking = time.process_time() - began
    gc.enable()
    if breaches:
        sys.exit(f"{name}: {breaches[0]}")
    problem = order_problem(graph)
    theirs = [problem.peak(rule(problem.arrays)) for rule in INDUCTOR.values()]
    given = order_problem(graph, merge=False).peak(range(len(graph.ops)))
    return Row(
        name,
        len(graph.ops),
        given,
        result.live_after,
        result.bound_bytes,
        min(given, *theirs),
        str(result.proved_by) if result.proved else "not proved",
        result.certificate.arcs if result.certificate else 0,
        result.states,
        result.seconds,
        cpu,
        checking,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--moccasin", metavar="SOURCE", default=ADDRESS)
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_order_kernels()
    rows, begin, end = [], "", "  "
    if options.markdown:
        begin, end = "| ", " |"
    print(begin + " | ".join(HEADINGS) + end)
    for name, make in manifest(options.moccasin):
        if not name.startswith(tuple(options.only.split(","))):
            continue
        try:
            graph = make()
        except InputError as error:
            print(f"{name}: not captured: {error}", flush=True)
            continue
        rows.append(measure(name, graph, options.seconds, options.in_place))
        print(begin + " | ".join(rows[-1].cells()) + end, flush=True)
    proved = [row for row in rows if row.proved_by != "not proved"]
    near = [row for row in rows if row.best <= 1.01 * row.bound]
    longest = max((row.seconds for row in rows), default=0.0)
    checking = max((row.checking for row in rows), default=0.0)
    print(
        f"{len(rows)} graphs: {len(proved)} proved, {len(near)} within 1 % of the bound, "
        f"{sum(row.best < row.given for row in rows)} better than given, "
        f"{sum(row.best < row.inductor for row in rows)} better than Inductor's; slowest {longest:.1f} s, "
        f"slowest check {checking:.3f} s"
    )


if __name__ == "__main__":
    main()
