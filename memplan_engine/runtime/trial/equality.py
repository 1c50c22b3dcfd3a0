"""Runs that all begin alike, and whether two gave the same: bit for bit, or the largest difference and where
it begins."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.runtime.program import Program, run_nodes
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode, quiet, storage_of
from memplan_engine.torch_capture.torch_operators import written_values
from memplan_engine.torch_capture.torch_storages import OperatorMode, operator_name, tensors_in

NO_RESULT = {
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
}
"""Operators that make no tensor: no op of a graph."""


@contextmanager
def restoring(written: Sequence[torch.Tensor], seed: int) -> Iterator[Callable[[], None]]:
    """Gives what puts `written` back as they are now, and the random state at `seed`; at the end all of it is
    as it was before."""
    copies = [tensor.detach().clone() for tensor in written]

    def restore() -> None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for tensor, value in zip(written, copies, strict=True):
                tensor.copy_(value)

    with torch.random.fork_rng():
        try:
            yield restore
        finally:
            restore()


def written_tensors(program: Program, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Those of the flat `inputs` (`Program.inputs`) that a run of `program` writes in place, as one on fake
    tensors shows, and the graph of what is inside operators that call graphs."""
    mode = fake_mode()
    twins, writes = FakeTwins(mode), _Writes()
    fakes = [twins.twin(value) for value in inputs]
    with torch.no_grad(), quiet(), mode, writes:
        run_nodes(program.module, fakes, lambda name, kind, call: call(), read=twins.twin)
    home = {tensor.name: tensor.storage for tensor in program.graph.tensors}
    inside = {home[name] for op in program.graph.ops for name in op.mutates}
    rows = zip(program.placeholders, inputs, fakes, strict=True)
    return [
        value
        for name, value, fake in rows
        if isinstance(value, torch.Tensor)
        and (name in program.written or home.get(name) in inside or storage_of(fake) in writes.storages)
    ]


class _Writes(OperatorMode):  # type: ignore[no-untyped-call]
    """Notes which storages operators write, through whatever view."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Run `operator` and note what it writes."""
        written = written_values(operator, args, kwargs)
        self.storages |= {storage_of(tensor) for tensor in tensors_in(list(written))}
        return operator(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Equality:
    """`exact`: every output has the same bits as that of `reference` ("eager" or "interpreter").

    Otherwise `largest` is the largest absolute difference (infinite where outputs cannot be compared),
    `output` the path of the output that has it, and `op` the op of the program whose result is the first to
    differ, None where that is not known.
    `unrepeatable` is the result in which the reference differs from itself, taken twice."""

    reference: str
    exact: bool
    largest: float = 0.0
    output: str = ""
    op: str | None = None
    unrepeatable: str = ""

    def __str__(self) -> str:
        if self.exact:
            return f"bitwise equal to {self.reference}"
        first = f", first at op {self.op}" if self.op else ""
        return f"differs from {self.reference} by up to {self.largest:.3g} in {self.output}{first}"


def compare_results(reference: Any, result: Any, name: str = "eager") -> Equality:
    """Whether `result` has the tensors of `reference`, bit for bit, NaN for NaN, and its plain values; both
    are nested in whatever way."""
    expected, actual = (pytree.tree_flatten_with_path(value)[0] for value in (reference, result))
    if len(expected) != len(actual):
        return Equality(name, False, float("inf"), f"{len(actual)} outputs instead of {len(expected)}")
    paths = [f"output{pytree.keystr(path)}" for path, _ in expected]
    reference, result = (
        dict(zip(paths, (leaf for _, leaf in leaves), strict=True)) for leaves in (expected, actual)
    )
    return compare_named(reference, result, name)


def compare_named(reference: Mapping[str, Any], result: Mapping[str, Any], name: str = "eager") -> Equality:
    """Whether `result` has the tensors and plain values of `reference`, by their names, bit for bit."""
    for only, lacking in ((reference, "none"), (result, "one that should not be there")):
        if missing := only.keys() - (reference.keys() & result.keys()):
            return Equality(name, False, float("inf"), f"{min(missing)} ({lacking})")
    worst = Equality(name, True)
    for path, one in reference.items():
        off = difference(one, result[path])
        if off is not None and (worst.exact or off > worst.largest):
            worst = Equality(name, False, off, path)
    return worst


def difference(expected: Any, actual: Any) -> float | None:
    """None for the same bits, else the largest absolute difference; infinite for what cannot be compared, and
    where only one is NaN."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return None if type(expected) is type(actual) and expected == actual else float("inf")
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return float("inf")
    if digest(expected) == digest(actual):
        return None
    kind = torch.complex128 if expected.dtype.is_complex else torch.float64
    deviation = (expected.detach().cpu().to(kind) - actual.detach().cpu().to(kind)).abs()
    # Equal infinities have no difference, and NaN for NaN is none.
    same = (expected == actual) | (expected.isnan() & actual.isnan())
    deviation = deviation.masked_fill(same.cpu(), 0.0).nan_to_num(nan=float("inf"))
    return float(deviation.max()) if deviation.numel() else None


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
    restore: Callable[[], Any],
) -> Equality:
    """`equality` with the op whose result is the first to differ: both are run again, with every operator's
    result noted, and operators of the same kind compared in their order. `restore()` is called before each of
    the two runs and puts back what the one before has changed."""
    restore()
    with OperatorDigests() as expected:
        reference()
    restore()
    op = first_difference([row[:2] for row in expected.rows], digests_of(program, inputs))
    return replace(equality, op=op)


def digests_of(program: Program, inputs: Sequence[Any]) -> list[tuple[str, tuple[int, ...], str]]:
    """Run the program node by node; the kind of each operator, digests of what it gave, and its op."""
    digests = OperatorDigests()
    with digests, torch.no_grad():
        run_nodes(program.module, inputs, digests.around)
    return digests.rows


def first_difference(
    expected: Sequence[tuple[str, tuple[int, ...]]], actual: Sequence[tuple[str, tuple[int, ...], str]]
) -> str | None:
    """The first op of `actual` whose result is not that of the same operator in `expected`, or which has no
    counterpart there; None where all are alike. Operators of one kind are matched in their order; what is in
    memory that is only allocated is nobody's result."""
    expected = [row for row in expected if row[0] not in NO_RESULT]
    theirs, ours = [row[0] for row in expected], [row[0] for row in actual]
    matched = 0
    for block in SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks():
        if block.b > matched or block.size == 0:
            break
        matched = block.b + block.size
        for step in range(block.size):
            reference, result = expected[block.a + step], actual[block.b + step]
            if reference[1] != result[1] and "empty" not in reference[0]:
                return result[2]
    return actual[matched][2] if matched < len(actual) else None


class OperatorDigests(OperatorMode):  # type: ignore[no-untyped-call]
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
        """Run `operator` and note what it gives."""
        value = operator(*args, **kwargs)
        # In a functional graph `add_` is `add`.
        name = operator_name(operator).rstrip("_")
        self.rows.append((name, tuple(digest(tensor) for tensor in tensors_in(value)), self.op))
        return value
