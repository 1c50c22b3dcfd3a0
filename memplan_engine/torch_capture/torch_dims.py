"""Which input dimensions are dynamic, as text: "input_ids:0=batch[1:64],input_ids:1=seq[2:1024]".

Each part names a tensor among the model's inputs, a dimension of it, and the symbol for it, with its range or
without: `[2:]`, `[:64]` and none at all leave ends open. The same symbol in several places says that these
sizes are equal; its range stands once or the same each time. `auto` in the place of a symbol leaves it to
torch whether the dimension is dynamic. Tensors in lists, tuples and dicts are `name.0` or `name.key`.

`Symbols` tells which numbers the symbols of a captured program have in a call, and whether they may.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.formats.formula_text import is_symbol_name
from memplan_engine.torch_capture.torch_fake import part_of_path

if TYPE_CHECKING:
    import torch

FORM = 'INPUT:DIMENSION=NAME[LOW:HIGH], as "input_ids:1=seq[2:1024]"'
PART = re.compile(
    r"(?P<path>[A-Za-z_][\w.]*):(?P<axis>\d{1,3})=(?P<name>[A-Za-z_]\w*)"
    r"(?:\[(?P<low>\d{0,18}):(?P<high>\d{0,18})\])?",
    re.ASCII,
)
AUTO = "auto"
Range = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class DynamicDim:
    """Dimension `axis` of the input tensor at `path` is the symbol `name`, from `low` to `high` (None: not
    said)."""

    path: str
    axis: int
    name: str
    low: int | None = None
    high: int | None = None


def parse_dynamic(text: str | Sequence[str], source: str) -> tuple[DynamicDim, ...]:
    """The dimensions in `text`, one or several texts of parts with commas between.

    Raises
    ------
    InputError: a part of another form, a range that holds fewer than two sizes, two ranges for one symbol, a
        dimension named twice.
    """
    texts = [text] if isinstance(text, str) else list(text)
    dims: dict[tuple[str, int], DynamicDim] = {}
    ranges: dict[str, Range] = {}
    for part in (part.strip() for entry in texts for part in entry.split(",")):
        dim = _part(part, source)
        if (dim.path, dim.axis) in dims:
            raise InputError(source, "dynamic", f"{dim.path}:{dim.axis} twice", "each dimension once")
        dims[dim.path, dim.axis] = dim
        bounds = (dim.low, dim.high)
        if bounds != (None, None) and ranges.setdefault(dim.name, bounds) != bounds:
            raise InputError(source, "dynamic", f"two ranges for {dim.name}", "one range for each symbol")
    return tuple(dims.values())


def torch_dynamic_shapes(
    dims: Sequence[DynamicDim],
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: str,
) -> dict[str, Any]:
    """What `torch.export` takes as `dynamic_shapes` for `model(*args, **kwargs)`.

    Raises
    ------
    InputError: a tensor that is not among the inputs, a dimension that it does not have, or one whose size
        in these inputs is no example of it: below 2, which torch would take for fixed, or out of range.
    """
    import torch
    from torch.export import Dim
    from torch.utils import _pytree as pytree

    try:
        inputs = dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise InputError(source, "inputs", str(error), "those that the model's forward takes") from None
    ranges = {dim.name: (dim.low, dim.high) for dim in dims if (dim.low, dim.high) != (None, None)}
    symbols: dict[str, Any] = {AUTO: Dim.AUTO}
    for name in {dim.name: None for dim in dims if dim.name != AUTO}:
        low, high = ranges.get(name, (None, None))
        symbols[name] = Dim(name, min=low, max=high)
    axes: dict[str, dict[int, Any]] = {}
    for dim in dims:
        axes.setdefault(dim.path, {})[dim.axis] = symbols[dim.name]
    tensors: dict[str, torch.Tensor] = {}

    def shapes(path: Any, leaf: Any) -> dict[int, Any] | None:
        name = ".".join(map(part_of_path, path))
        if not isinstance(leaf, torch.Tensor):
            return None
        tensors[name] = leaf
        return axes.get(name)

    specification = pytree.tree_map_with_path(shapes, inputs)
    _check(dims, ranges, tensors, source)
    return specification  # type: ignore[no-any-return]


def _part(text: str, source: str) -> DynamicDim:
    match = PART.fullmatch(text)
    if match is None or not is_symbol_name(match["name"]):
        raise InputError(source, "dynamic", repr(text[:80]), FORM)
    low, high = (int(match[end]) if match[end] else None for end in ("low", "high"))
    if match["name"] == AUTO and match["low"] is not None:
        raise InputError(source, "dynamic", repr(text[:80]), f"{AUTO} without a range")
    if high is not None and high <= (low or 0):
        raise InputError(source, "dynamic", f"the range of {text[:80]!r}", "LOW below HIGH")
    return DynamicDim(match["path"], int(match["axis"]), match["name"], low, high)


def _check(
    dims: Sequence[DynamicDim], ranges: Mapping[str, Range], tensors: Mapping[str, torch.Tensor], source: str
) -> None:
    for dim in dims:
        if dim.path not in tensors:
            names = ", ".join(tensors) or "none, as the model is given no tensors"
            raise InputError(source, "dynamic", f"the input {dim.path!r}", f"one of {names}")
        if dim.axis >= tensors[dim.path].ndim:
            found = f"dimension {dim.axis} of {dim.path}"
            raise InputError(source, "dynamic", found, f"0 to {tensors[dim.path].ndim - 1}")
        size, (low, high) = tensors[dim.path].shape[dim.axis], ranges.get(dim.name, (None, None))
        least = max(low or 0, 2)
        if dim.name != AUTO and (size < least or (high is not None and size > high)):
            place = f"dynamic, {dim.path}:{dim.axis}"
            limit = "" if high is None else f" and at most {high}"
            expected = f"an example of at least {least}{limit} (torch takes 0 and 1 for fixed sizes)"
            raise InputError(source, place, f"size {size} in the inputs", expected)


@dataclass(frozen=True, slots=True)
class Symbols:
    """`ranges` has the least and the greatest value of each symbol (of sympy), both included."""

    ranges: Mapping[Any, tuple[Any, Any]]

    def solve(
        self, names: Sequence[str], captured: Sequence[Any], inputs: Sequence[Any], source: str
    ) -> dict[Any, int]:
        """The number that each symbol has when the tensors `captured` are `inputs`.

        Raises
        ------
        InputError, naming the input: another number of dimensions, a size out of range or unequal to one that
            it must equal.
        """
        import torch

        numbers: dict[Any, int] = {}
        derived: list[tuple[str, Any, int]] = []
        for name, tensor, value in zip(names, captured, inputs, strict=True):
            place = f"input {name!r}"
            if not isinstance(tensor, torch.Tensor):
                continue
            if not isinstance(value, torch.Tensor):
                raise InputError(source, place, f"a {type(value).__name__}", f"a tensor of {tensor.dtype}")
            if value.dim() != tensor.dim():
                raise InputError(source, place, f"{value.dim()} dimensions", f"{tensor.dim()}, as captured")
            for axis, (size, captured_size) in enumerate(zip(value.shape, tensor.shape, strict=True)):
                formula = _formula(captured_size)
                where = f"{place}, dimension {axis}"
                if formula is None:
                    continue
                if not formula.is_Symbol:
                    derived.append((where, formula, size))
                elif numbers.setdefault(formula, size) != size:
                    expected = f"{numbers[formula]}, as in the inputs before"
                    raise InputError(source, where, f"size {size}", expected)
                else:
                    self._check(formula, size, where, source)
        for where, formula, size in derived:
            self._derive(formula, size, numbers, where, source)
        return numbers

    def numbers(self, sizes: Iterable[Any], values: Mapping[Any, int]) -> tuple[int, ...]:
        """`sizes` (of a shape, or strides) as plain numbers."""
        return tuple(
            size if (formula := _formula(size)) is None else int(formula.xreplace(values)) for size in sizes
        )

    def _check(self, symbol: Any, size: int, where: str, source: str) -> None:
        low, high = self.ranges.get(symbol, (0, None))
        if (high is not None and size > high) or size < low:
            limit = "" if high is None or not high.is_finite else f" to {high}"
            raise InputError(source, where, f"size {size}", f"{low}{limit}")

    def _derive(self, formula: Any, size: int, numbers: dict[Any, int], where: str, source: str) -> None:
        """Find the symbol in `formula` (as 2*n), or see that it has the right value."""
        import sympy

        unknown = formula.free_symbols - numbers.keys()
        if len(unknown) == 1:
            (symbol,) = unknown
            solutions = sympy.solve(formula.xreplace(numbers) - size, symbol)
            if len(solutions) == 1 and solutions[0].is_Integer:
                numbers[symbol] = int(solutions[0])
                self._check(symbol, numbers[symbol], where, source)
        if formula.xreplace(numbers) != size:
            raise InputError(source, where, f"size {size}", f"{formula}, as captured")


def _formula(size: Any) -> Any:
    """The expression of a symbolic size; None for a plain number."""
    if isinstance(size, int):
        return None
    formula = size.node.expr
    return None if formula.is_Integer else formula
