"""Whether two runs gave the same: bit for bit, or the largest difference and where it begins."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.storages import OperatorMode, operator_name, tensors_in


@dataclass(frozen=True, slots=True)
class Equality:
    """`exact`: every output has the same bits as that of `reference` ("eager" or "interpreter").

    Otherwise `largest` is the largest absolute difference (infinite where outputs cannot be compared),
    `output` the path of the output that has it, and `op` the op of the program whose result is the first to
    differ, None where that is not known."""

    reference: str
    exact: bool
    largest: float = 0.0
    output: str = ""
    op: str | None = None

    def __str__(self) -> str:
        if self.exact:
            return f"bit for bit equal to {self.reference}"
        first = f", first at op {self.op}" if self.op else ""
        return f"differs from {self.reference} by up to {self.largest:.3g} in {self.output}{first}"


def compare_results(reference: Any, result: Any, name: str = "eager") -> Equality:
    """Whether `result` has the tensors of `reference`, bit for bit, NaN for NaN, and its plain values; both
    are nested in whatever way."""
    expected, found = (pytree.tree_flatten_with_path(value)[0] for value in (reference, result))
    if len(expected) != len(found):
        return Equality(name, False, float("inf"), f"{len(found)} outputs instead of {len(expected)}")
    worst = Equality(name, True)
    for (path, one), (_, other) in zip(expected, found, strict=True):
        off = difference(one, other)
        if off is not None and (worst.exact or off > worst.largest):
            worst = Equality(name, False, off, f"output{pytree.keystr(path)}")
    return worst


def difference(one: Any, other: Any) -> float | None:
    """None for the same bits, else the largest absolute difference; infinite for what cannot be compared, and
    where only one is NaN."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return None if type(one) is type(other) and one == other else float("inf")
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if digest(one) == digest(other):
        return None
    kind = torch.complex128 if one.dtype.is_complex else torch.float64
    off = (one.detach().cpu().to(kind) - other.detach().cpu().to(kind)).abs()
    # Equal infinities have no difference, and NaN for NaN is none.
    same = (one == other) | (one.isnan() & other.isnan())
    off = off.masked_fill(same.cpu(), 0.0).nan_to_num(nan=float("inf"))
    return float(off.max()) if off.numel() else None


def digest(tensor: torch.Tensor) -> int:
    """A number that hardly two tensors of one shape and type share unless all their bits are equal."""
    plain = tensor.detach().cpu().contiguous()
    if plain.is_complex() or plain.is_conj():
        plain = torch.view_as_real(plain.resolve_conj())
    data: Any = plain.reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(data) | zlib.adler32(data) << 32


def locate(
    equality: Equality,
    program: Program,
    inputs: Sequence[Any],
    reference: Callable[[], Any],
    settled: Callable[[], Any],
) -> Equality:
    """`equality` with the op whose result is the first to differ: both are run again, with every operator's
    result noted, and operators of the same kind compared in their order. `settled()` is called before each of
    the two runs and puts back what the one before has changed."""
    settled()
    with _Digests() as expected:
        reference()
    settled()
    with _Digests() as found, torch.no_grad():
        run_nodes(program.module, inputs, found.around)
    theirs, ours = ([row[0] for row in each.rows] for each in (expected, found))
    for block in SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            one, other = expected.rows[block.a + step], found.rows[block.b + step]
            if one[1] != other[1]:
                return replace(equality, op=other[2])
    return equality


class _Digests(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes what every operator gives back: its kind, digests, and the op that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, tuple[int, ...], str]] = []
        self.op = ""

    def around(self, name: str, kind: str, call: Callable[[], Any]) -> Any:
        """Run `call()` as the op `name`."""
        self.op = name
        return call()

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        value = operator(*args, **kwargs)
        # In a functional graph `add_` is `add`.
        name = operator_name(operator).rstrip("_")
        self.rows.append((name, tuple(digest(tensor) for tensor in tensors_in(value)), self.op))
        return value
