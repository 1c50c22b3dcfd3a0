"""Checkpoints of a distributed run on fake tensors: nothing is written, what is loaded is there already.

torch.distributed.checkpoint takes a third of a second to import, and few scripts have it: what stands in for
it waits for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

from memplan_engine.runtime.ranks.fake_meshes import everywhere
from memplan_engine.torch_capture.torch_fake import patched

CHECKPOINTS = "torch.distributed.checkpoint"


@contextmanager
def leaving_checkpoints() -> Iterator[None]:
    """With torch.distributed.checkpoint that leaves files as they are: now, or once it is imported."""
    with ExitStack() as undo:

        def stand_in() -> None:
            package = sys.modules[CHECKPOINTS]
            stand_ins = {"save": _save, "async_save": _async_save, "load": _save}
            for name, other in stand_ins.items():
                undo.enter_context(patched(*everywhere(name, getattr(package, name), other)))

        if CHECKPOINTS in sys.modules:
            stand_in()
            yield
            return
        finder = _Imported(CHECKPOINTS, stand_in)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            finder.end()


class _Imported(MetaPathFinder):
    """Has `then()` called when the module `name` has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As without this finder, which is of no use after."""
        if name != self.name:
            return None
        self.end()
        spec = find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            self.then()

        loader.exec_module = execute_and_tell
        return spec

    def end(self) -> None:
        """Look for nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _save(state_dict: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing: `load` fills tensors that are there."""


def _async_save(state_dict: Any, *args: Any, **kwargs: Any) -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done
