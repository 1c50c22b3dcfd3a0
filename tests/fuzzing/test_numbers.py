"""Every number of a small file of each format, those in formulas too, at and beyond what 64 bits hold: an
answer, or an error in one line, within 5 million calls and 2 GiB."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzzing.binary_grammars import PROTOBUF
from tests.fuzzing.grammars import Pairs, put, value_at
from tests.fuzzing.harness import GRAMMARS, commands, finding, little_memory, seeds

ENDS = 2**63 - 1, 2**63, -1, -(2**63), 2**64, 10**400, math.inf, math.nan
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
FILES = sorted(
    path for path in set(seeds()) if path.suffix != ".csv" and path.name not in ("run.json", "line.json.gz")
)
"""Lists and runs are in `tests/formats/test_huge_numbers.py`."""


class First(Random):
    """Chooses what comes first, and leaves out what is rare."""

    def random(self) -> float:
        return 1.0

    def choice(self, several: Any) -> Any:
        return several[0]


def with_numbers_replaced(path: Path) -> Iterator[tuple[str, bytes]]:
    """The file with each of its numbers at each end, and what was put in whose place. Of objects and rows in
    one list the first and the last stand for all, but in a protocol buffer."""
    grammar = GRAMMARS[path.suffix]
    tree = grammar.take_apart(path.read_bytes())
    fields: dict[Any, list[tuple[list[Any], int]]] = defaultdict(list)
    for field, holder, place in _fields(tree, every=grammar is PROTOBUF):
        fields[field].append((holder, place))
    # Of the ends each field has half, the next one the others; in an archive, which takes a tenth of a second
    # to read, a quarter.
    parts = 4 if path.suffix == ".pt2" else 2
    for turn, several in enumerate(fields.values()):
        for holder, place in several[:1] + several[1:][-1:]:
            old = value_at(holder, place)
            for end in ENDS[turn % parts :: parts]:
                for new in _replaced(old, end):
                    put(holder, place, new)
                    yield f"{new!r} for {old!r}", grammar.put_together(tree, First())
            put(holder, place, old)


def _fields(tree: Any, every: bool, field: tuple[Any, ...] = ()) -> Iterator[tuple[Any, list[Any], int]]:
    """Each value that is no list, as (which field, list, index)."""
    for place in range(len(tree)):
        value = value_at(tree, place)
        inner = isinstance(value, list)
        key = tree[place][0] if isinstance(tree, Pairs) else "*" if inner and not every else place
        if inner:
            yield from _fields(value, every, (*field, key))
        else:
            yield (*field, key), tree, place


def _replaced(old: Any, end: float) -> list[Any]:
    if isinstance(old, str):
        return [f"{old[: at.start()]}{end}{old[at.end() :]}" for at in _NUMBER.finditer(old)]
    return [end] if isinstance(old, int | float) and not isinstance(old, bool) else []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_number_of_a_file(path: Path, tmp_path: Path) -> None:
    changed = tmp_path / path.name
    verbs = [["plan", str(changed), "--strategy", "greedy_by_size"], *commands(changed, tmp_path)]
    # Imports and compiles.
    assert finding(path, commands(path, tmp_path)[0]) == ""
    found, turn = [], count()
    with little_memory():
        for what, data in with_numbers_replaced(path):
            changed.write_bytes(data)
            # All verbs in turn: what one refuses in reading none of them plans.
            if wrong := finding(changed, verbs[next(turn) % len(verbs)], counted=True):
                found.append(f"{what}: {wrong}")
    assert next(turn)
    assert found == []
