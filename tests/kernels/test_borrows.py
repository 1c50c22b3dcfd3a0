"""Kernels that borrow count no references: they neither give arrays nor are given any by what they call."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

from benchmarks.allocator import drawn_recording
from memplan_engine import kernels
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.kernels.jit import Kernel, compiled_only, kernel
from memplan_engine.kernels.types import Ints
from memplan_engine.planner import hard_problem, make_plan
from memplan_engine.rewrites.order.order_search import load_order_kernels
from memplan_engine.strategies.base import SolveLimits

NUMBERS = re.compile(r"None|(int|float|bool)|tuple\[(int|float|bool)(, (int|float|bool))*\]")


def borrowing():
    """All kernels that borrow, of all modules."""
    found = {}
    for module in pkgutil.walk_packages(kernels.__path__, kernels.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Kernel) and value.borrows:
                found[f"{value.function.__module__}.{name}"] = value
    return found


def gives_numbers(each: Kernel) -> bool:
    """Whether a kernel gives nothing, numbers, or a tuple of numbers."""
    return bool(NUMBERS.fullmatch(inspect.signature(each.function).return_annotation))


def lent(each: Kernel) -> list[str]:
    """The kernels that `each` calls and that give arrays: nobody would give these up."""
    called = (each.function.__globals__.get(name) for name in each.function.__code__.co_names)
    return [
        other.function.__name__ for other in called if isinstance(other, Kernel) and not gives_numbers(other)
    ]


def test_they_give_numbers_and_are_given_numbers():
    borrowers = borrowing()
    assert len(borrowers) > 40
    assert {name for name, each in borrowers.items() if not gives_numbers(each)} == set()
    assert {name: lent(each) for name, each in borrowers.items() if lent(each)} == {}


def test_one_that_gives_or_is_given_an_array_is_found():
    assert not gives_numbers(gives_an_array)
    assert lent(is_given_an_array) == ["gives_an_array"]


@kernel(borrows=True)
def gives_an_array(values: Ints) -> Ints:
    return values[1:]


@kernel(borrows=True)
def is_given_an_array(values: Ints) -> int:
    return int(gives_an_array(values)[0])


def test_numba_does_not_compile_one_that_makes_an_array():
    from numba import njit
    from numba.core.errors import NumbaError

    with pytest.raises(NumbaError, match="NRT required"):
        njit(_nrt=False)(lambda values: values.copy()[0])(np.arange(3))


def test_all_arrays_that_a_run_makes_are_given_up_once():
    """Counted by numba's own runtime."""
    from numba.core.runtime import _nrt_python, rtsys

    recording, problem = drawn_recording(3_000), hard_problem()
    works = [
        lambda: simulate_allocator(recording, parse_settings("expandable_segments:True")),
        lambda: simulate_allocator(recording, parse_settings(""), capacity=20 << 30),
        load_order_kernels.__wrapped__,
        lambda: make_plan(problem, "search", limits=SolveLimits(nodes=2_000)),
    ]
    with compiled_only():
        for work in works:
            work()
            _nrt_python.memsys_enable_stats()
            try:
                before = rtsys.get_allocation_stats()
                work()
                after = rtsys.get_allocation_stats()
            finally:
                _nrt_python.memsys_disable_stats()
            assert after.alloc - before.alloc == after.free - before.free > 0
