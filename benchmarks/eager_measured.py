"""How many bytes an eager run holds at most, by a recorder of its own: nothing of memplan is imported here.

    python benchmarks/eager_measured.py MODEL … [--training sgd|adam|adamw]

Of each model of the manifest a line of JSON: the most bytes of storages made in the run that were live after
an operator, and the CPU seconds that `torch.export` takes for it, or why it does not take it. Of training it
is the second step. A storage counts from the operator that first returns it until torch lets go of it, but
one that an operator is given before any has returned it: it was there before (a cache of the model's). The
first line is of the first export of a process, which loads what all of them need.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.eager_export import FIRST, exported, first_model
from benchmarks.eager_variants import build, loss_of

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
GIVES_BACK_NEW = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
"""What gives back a tensor that has just been made of numbers."""


def storages(value: Any) -> list[torch.UntypedStorage]:
    """The storages of the tensors in `value`."""
    leaves = pytree.tree_leaves(value)
    return [each.untyped_storage() for each in leaves if isinstance(each, torch.Tensor)]


class Peak(TorchDispatchMode):
    """Adds up after every operator what is live of the storages that operators have returned."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.before = {each._cdata: StorageWeakRef(each) for each in storages(given)}
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.before = {key: ref for key, ref in self.before.items() if not ref.expired()}
        for each in storages((args, kwargs)) if func not in GIVES_BACK_NEW else ():
            if each._cdata not in self.live:
                self.before[each._cdata] = StorageWeakRef(each)
        for each in storages(result):
            if each._cdata not in self.before:
                self.live[each._cdata] = (StorageWeakRef(each), each.nbytes())
        self.live = {key: pair for key, pair in self.live.items() if not pair[0].expired()}
        self.most = max(self.most, sum(nbytes for _, nbytes in self.live.values()))
        return result


def peak_of(run: Callable[[], Any], given: Any) -> int:
    """The most bytes that `run()` holds beside `given`; Python's collector of garbage stands still."""
    gc.collect()
    gc.disable()
    try:
        with Peak(given) as mode:
            result = run()
        del result
    finally:
        gc.enable()
    return mode.most


def inference(name: str) -> dict[str, Any]:
    """The peak of one call without gradients, and what exporting it costs."""
    model, inputs = build(name)
    with torch.no_grad():
        most = peak_of(
            lambda: model(**inputs), [*model.parameters(), *model.buffers(), *pytree.tree_leaves(inputs)]
        )
    return {"peak_bytes": most, **exported(model, inputs)}


def training(name: str, optimizer: str) -> dict[str, Any]:
    """The peak of the second of two steps."""
    model, inputs = build(name, trains=True)
    optimize = OPTIMIZERS[optimizer](model.parameters())

    def step() -> torch.Tensor:
        loss = loss_of(model(**inputs))
        loss.backward()
        optimize.step()
        return loss

    step()
    optimize.zero_grad(set_to_none=True)
    state = pytree.tree_leaves([dict(each) for each in optimize.state.values()])
    given = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(inputs), *state]
    return {"peak_bytes": peak_of(step, given)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--training", choices=OPTIMIZERS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.training:
        print(json.dumps({"model": FIRST, **exported(*first_model())}), flush=True)
    for name in options.models:
        measured = training(name, options.training) if options.training else inference(name)
        print(json.dumps({"model": name, **measured}), flush=True)


if __name__ == "__main__":
    main()
