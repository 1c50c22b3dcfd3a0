"""Two tiers, as in other just-in-time compilers: a kernel is interpreted until compiling it is worth while.

Importing numba takes longer than planning a small problem in plain Python, and compiling a kernel ten times
as long again. So a kernel that is called with small arrays runs as the Python function that it is, until all
of them together have spent in Python about what the machine code would cost; from then on, and with larger
arrays from the first call on, numba's machine code runs. Both give the same results.

A kernel calls other kernels by their global names. Of each tier there is a copy of every function, in whose
globals stand the copies of the same tier: nothing is decided anew inside a kernel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, update_wrapper
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import numpy as np

from memplan_engine.kernels import cache_folders, is_compiled, listeners
from memplan_engine.kernels.code_cache import CodeCache

SMALL = 600
"""Elements of the longest array that a kernel is interpreted for, unless it says otherwise. The slowest, that
of orders × fits, then takes 0.2 s where all buffers are live together."""
LOADING_SECONDS = 0.2
"""So long are kernels interpreted that lie compiled on disk: to import numba and load a few takes as long."""
COMPILING_SECONDS = 1.0
"""So long are the others: each takes one to ten seconds to compile."""

P = ParamSpec("P")
R = TypeVar("R")
_lock = threading.RLock()


class _Tiers:
    """What the kernels of a process share: seconds spent in Python; how many callers want machine code."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.compiled_only = 0


_tiers = _Tiers()


class Kernel(Generic[P, R]):
    """A function on arrays and numbers that is interpreted or compiled, whichever is sooner done."""

    def __init__(
        self, function: Callable[P, R], inline: bool = False, small: int = SMALL, borrows: bool = False
    ) -> None:
        self.function = cast(FunctionType, function)
        self.inline = inline
        self.borrows = borrows
        self.small = small
        self.is_loaded = False
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives, by the tier that is sooner done."""
        if self.is_loaded or not self._is_quick_in_python((*args, *kwargs.values())):
            result: R = self.compiled(*args, **kwargs)
            self.is_loaded = True
            return result
        begun = time.perf_counter()
        try:
            # Machine code wraps around in silence, and what relies on that must do so here.
            with np.errstate(over="ignore"):
                return cast(R, _as_python(self.interpreted(*args, **kwargs)))
        finally:
            _tiers.spent += time.perf_counter() - begun

    def _is_quick_in_python(self, args: tuple[Any, ...]) -> bool:
        if _tiers.compiled_only or _tiers.spent >= COMPILING_SECONDS:
            return False
        if not all(_is_small(arg, self.small) for arg in args):
            return False
        return _tiers.spent < LOADING_SECONDS or not self._lies_compiled

    @cached_property
    def _lies_compiled(self) -> bool:
        return is_compiled(f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}")

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The Python function, which calls those of other kernels."""
        return _with_globals(self.function, lambda kernel: kernel.interpreted)

    @cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher, which compiles or loads what a call needs; made only once, in any thread."""
        with _lock:
            # Stored before the lock is free again: cached_property itself lets several threads in.
            if "compiled" not in self.__dict__:
                self.__dict__["compiled"] = _dispatcher(self)
            return self.__dict__["compiled"]


@overload
def kernel(function: Callable[P, R], /) -> Kernel[P, R]: ...


@overload
def kernel(
    *, inline: bool = ..., small: int = ..., borrows: bool = ...
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...


def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inline: bool = False,
    small: int = SMALL,
    borrows: bool = False,
) -> Any:
    """Make a function a kernel. `inline`: compiled into its callers, where a call would cost too much.
    `small`: elements of the longest array that it is interpreted for. `borrows`: it neither makes nor gives
    arrays, but reads and writes those of its caller, whose references are not counted (an atomic addition
    for each array that is named: of small kernels on a tuple of arrays most of the time)."""
    if function is None:
        return lambda decorated: Kernel(decorated, inline, small, borrows)
    return Kernel(function, inline, small, borrows)


def interprets(elements: int = 0) -> bool:
    """Whether kernels that are given arrays of at most `elements` will be interpreted for some time."""
    return elements <= SMALL and _tiers.spent < COMPILING_SECONDS / 2 and not _tiers.compiled_only


@contextmanager
def compiled_only() -> Iterator[None]:
    """Until the end no kernel is interpreted: what is called is compiled, or loaded, and stays so."""
    with _lock:
        _tiers.compiled_only += 1
    try:
        yield
    finally:
        with _lock:
            _tiers.compiled_only -= 1


def _is_small(argument: object, most: int) -> bool:
    """Whether an argument keeps a kernel quick in Python. A tuple is the state of a search, which goes on for
    any time, or a trace, whose notes may stand in another order among equals."""
    if isinstance(argument, np.ndarray):
        return argument.size <= most
    return not isinstance(argument, tuple)


def _as_python(result: Any) -> Any:
    """Numbers as machine code gives them back: Python's own."""
    if isinstance(result, np.generic):
        return result.item()
    if type(result) is tuple:
        return tuple(_as_python(item) for item in result)
    return result


def _with_globals(function: FunctionType, of_tier: Callable[[Kernel[..., Any]], Any]) -> FunctionType:
    """A copy of `function` in whose globals each kernel that it calls is what `of_tier` makes of it."""
    namespace = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(namespace.get(name), Kernel):
            namespace[name] = of_tier(namespace[name])
    copy = FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _dispatcher(kernel: Kernel[..., Any]) -> Any:
    """Numba's dispatcher of `kernel`, whose machine code is kept."""
    from numba import njit

    _listen()
    function = _with_globals(kernel.function, lambda callee: callee.compiled)
    options: dict[str, Any] = {"inline": "always" if kernel.inline else "never", "_nrt": not kernel.borrows}
    dispatcher: Any = njit(nogil=True, **options)(function)
    # Numba's own cache unpickles whatever lies in its files, and shares its index between processes
    # unguarded.
    module = function.__module__
    name = f"{module.rpartition('.')[2]}.{function.__name__}"
    dispatcher._cache = CodeCache(name, cache_folders(module))
    return dispatcher


@cache
def _listen() -> None:
    """Have numba call those who want to know of its first compilation."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            """Tell once."""
            while listeners:
                listeners.pop()()

        def on_end(self, event: Any) -> None:
            """Nothing to say."""

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
