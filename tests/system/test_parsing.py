"""Trees of Python code made while garbage is collected."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memplan_engine.system import parse_python

CODE = "\n".join(f"x{line} = [a + {line}, f(b, *c)]" for line in range(300))


@pytest.fixture
def parsing_collector() -> Iterator[list[str]]:
    """The phases of the collections so far: one runs every few allocations, and each makes a tree."""
    seen, thresholds = [], gc.get_threshold()

    def finalize(phase: str, info: dict[str, Any]) -> None:
        seen.append(phase)
        ast.parse("1 + 1")

    gc.callbacks.append(finalize)
    gc.set_threshold(2)
    yield seen
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(finalize)


def parse_deep_down(parse: Callable[[str], Any], frames: int = 20) -> Any:
    """Parse with more frames on the stack than `finalize` has."""
    return parse_deep_down(parse, frames - 1) if frames else parse(CODE)


def test_a_collection_that_parses_leaves_other_trees_intact(parsing_collector: list[str]) -> None:
    tree = parse_deep_down(parse_python)
    assert parsing_collector
    assert gc.isenabled()
    assert len(tree.body) == 300


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        parse_python("1", mode="eval")
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("text", ["1 +", "\0", "(" * 300])
def test_invalid_code_is_refused_and_collecting_goes_on(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        parse_python(text)
    assert gc.isenabled()
