"""Where each op of a traced training step comes from: its phase, its module, and the user's line."""

from __future__ import annotations

import linecache
import sys
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from memplan_engine.graph import Phase
from memplan_engine.torch_capture.torch_source import FRAME, MAX_CODE, is_users, portable_path
from memplan_engine.torch_capture.training.torch_recipe import take_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from torch.fx import Graph, Node

TAG = "memplan_phase"
"""Under which key of a node's `meta["custom"]` its phase stands."""
LIBRARY = ("torch/nn/", "torch/optim/")
"""Where the line of an op is looked for when no frame is the user's: a model of torch's own layers."""
AUTOGRAD = ("torch/autograd/__init__.py",)
"""Where the gradient that a backward pass begins with is made."""
CALLERS = {take_step.__code__}
"""Functions of ours that call the user's code: who calls these is not looked at."""
ENGINE = "_engine_run_backward"
"""The Python function through which every backward pass goes."""


class RunningModules(AbstractContextManager["RunningModules"]):
    """Which modules run their forward meanwhile. `paths` gives the path of each by its id. With `adopt` one
    that nobody knows and no other has called is the root of those below it, by the name of its class, and
    `adopt` hears of it."""

    def __init__(
        self, paths: dict[int, str], adopt: Callable[[str, torch.nn.Module], None] | None = None
    ) -> None:
        self.paths, self.adopt = paths, adopt
        self.running: list[tuple[str, bool]] = []
        """Their paths, the outermost first, and whether each was entered by autograd."""

    def __enter__(self) -> RunningModules:
        import torch

        self._call = torch.nn.Module.__call__
        modules, call = self, self._call

        def called(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            path = modules.path_of(module)
            if path is None:
                return call(module, *args, **kwargs)
            modules.running.append((path, current_gradient() is not None))
            try:
                return call(module, *args, **kwargs)
            finally:
                modules.running.pop()

        torch.nn.Module.__call__ = called  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        torch.nn.Module.__call__ = self._call  # type: ignore[method-assign]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Have modules be called as torch calls them, which Dynamo takes apart."""
        import torch

        called, torch.nn.Module.__call__ = torch.nn.Module.__call__, self._call  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = called  # type: ignore[method-assign]

    def is_new(self, module: torch.nn.Module) -> bool:
        """Return whether `module` is not known, and no other runs. What autograd calls first is no model: it
        is the graph of a gradient."""
        return not self.running and id(module) not in self.paths and current_gradient() is None

    def path_of(self, module: torch.nn.Module) -> str | None:
        """The path of `module`, None where it is not known."""
        if self.adopt is not None and self.is_new(module):
            name = type(module).__name__
            below = module.named_modules(prefix=name)
            self.paths |= {id(each): path for path, each in below if id(each) not in self.paths}
            self.adopt(name, module)
        return self.paths.get(id(module))


class Origins(AbstractContextManager["Origins"]):
    """Notes on every node of `graph`, as it is made, what it comes from. To be entered with anomaly detection
    on, which remembers for each node of autograd the lines that made it.

    A forward op belongs to the module whose forward runs; an op of the backward pass to that of the op that
    it is a gradient of (both know its number in autograd's sequence), what a checkpoint runs again to the
    module that runs again, what makes `.grad` to the parameter's module (`owners`, by the id of the
    parameter).
    """

    def __init__(
        self,
        graph: Graph,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        owners: Mapping[int, str | None],
    ) -> None:
        self.graph, self.owners = graph, owners
        self.modules = RunningModules({id(module): path for path, module in model.named_modules()})
        self.optimizers = optimizers
        self.updating = False
        self.numbered: dict[int, str] = {}

    def __enter__(self) -> Origins:
        self._make = self.graph.create_node
        self.graph.create_node = self._create_node  # type: ignore[method-assign]
        self.modules.__enter__()
        self._hooks = [
            hook
            for optimizer in self.optimizers
            for hook in (
                optimizer.register_step_pre_hook(lambda *_: self._update(True)),
                optimizer.register_step_post_hook(lambda *_: self._update(False)),
            )
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self.modules.__exit__(kind, error, trace)
        del self.graph.create_node

    def _update(self, now: bool) -> None:
        self.updating = now

    def _create_node(self, op: str, *args: Any, **kwargs: Any) -> Node:
        node = self._make(op, *args, **kwargs)
        if op != "call_function":
            return node
        frame, engine = _users_frame(sys._getframe(1))
        phase = Phase.OPTIMIZER if self.updating else Phase.BACKWARD if engine else Phase.FORWARD
        node.meta["custom"] = {TAG: phase.value}
        module = self._module(phase)
        if module is not None:
            node.meta["nn_module_stack"] = {module: (module, "")}
        lines = _lines(frame) if frame else _lines_of_gradient() if phase is Phase.BACKWARD else None
        if lines:
            node.meta["stack_trace"] = lines
        return node

    def _module(self, phase: Phase) -> str | None:
        if phase is Phase.OPTIMIZER:
            return None
        import torch

        running = self.modules.running
        path, entered_by_autograd = running[-1] if running else (None, False)
        current = current_gradient()
        if phase is Phase.FORWARD or entered_by_autograd or current is None:
            if path is not None:
                number: int = torch._C._autograd._get_sequence_nr() - 1
                self.numbered.setdefault(number, path)
            return path
        parameter = getattr(current, "variable", None)
        if parameter is not None:
            return self.owners.get(id(parameter))
        return self.numbered.get(current._sequence_nr())


def current_gradient() -> Any:
    """The node of autograd's graph that runs; None outside of a backward pass."""
    import torch

    return torch._C._current_autograd_node()


def who_asks() -> str:
    """Which line of the user's code runs, and within which optimizer of torch's: "at train.py:12"."""
    import torch

    frame: FrameType | None = sys._getframe(1)
    optimizer, inside = "", ""
    while frame is not None and frame.f_code not in CALLERS:
        file = portable_path(frame.f_code.co_filename)
        if is_users(frame.f_code.co_filename):
            line = f"at {file}:{frame.f_lineno}"
            return f"{inside}, which takes its step {line}" if optimizer else line
        if not optimizer and file.startswith("torch/optim/"):
            own = frame.f_locals.get("self")
            optimizer = type(own).__name__ if isinstance(own, torch.optim.Optimizer) else ""
            inside = inside or f"at {file}:{frame.f_lineno}"
            inside = f"{inside} in the optimizer {optimizer}" if optimizer else inside
        frame = frame.f_back
    return inside or "in torch"


def who_makes() -> str:
    """As `who_asks`; of what autograd makes, the line that it is a gradient of."""
    frame = FRAME.match((_lines_of_gradient() or "").partition("\n")[0])
    return f"at {portable_path(frame['file'])}:{frame['line']}" if frame else who_asks()


def _users_frame(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The innermost `forward` of the user's code, as torch.export takes it, else the innermost frame of the
    user's, else of torch's layers; and whether autograd's engine runs. In the engine only frames that it has
    called count: who called `backward` is not where a gradient is from. Whoever wanted the step captured is
    not looked at."""
    frames: dict[str, FrameType] = {}
    backward = False
    while frame is not None and frame.f_code is not take_step.__code__:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        backward = name == ENGINE or (
            not frames.keys() & {"forward", "users"} and _is_library(file, AUTOGRAD)
        )
        if backward:
            break
        if is_users(file):
            frames.setdefault("users", frame)
            if name == "forward":
                frames.setdefault("forward", frame)
                if current_gradient() is None:
                    break
        elif _is_library(file, LIBRARY):
            frames.setdefault("library", frame)
        frame = frame.f_back
    best = (frames[kind] for kind in ("forward", "users", "library") if kind in frames)
    return next(best, None), backward


@cache
def _is_library(file: str, folders: tuple[str, ...]) -> bool:
    return portable_path(file).startswith(folders)


def _lines(frame: FrameType) -> str:
    """`frame` as a line of a traceback and its code."""
    file, number = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(file, number).strip()[:MAX_CODE]
    return f'  File "{file}", line {number}, in {frame.f_code.co_name}\n    {code}'


def _lines_of_gradient() -> str | None:
    """Those of the op whose gradient autograd is working out, where anomaly detection knows them."""
    current = current_gradient()
    tracebacks = [] if current is None else current.metadata.get("traceback_", [])
    files = [(match["file"], lines) for lines in tracebacks if (match := FRAME.match(lines.splitlines()[0]))]
    users = [lines for file, lines in files if is_users(file)]
    forward = [lines for lines in users if lines.splitlines()[0].endswith(" in forward")]
    library = [lines for file, lines in files if _is_library(file, LIBRARY)]
    best: list[str | None] = forward or users or library or [None]
    return best[-1]
