"""The one place that knows torch's serialized form of exported programs (internals of the pinned torch), and
what such a file may hold before torch's own reader is let near it.

That reader evaluates symbolic sizes as Python expressions, looks operators up by attribute path from `torch`,
and puts node names into source that it executes. Files come from anybody, so names must be names, expressions
arithmetic, and operators registered operators.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.system import parse_python
from memplan_engine.torch_capture.torch_fake import fake_mode, fake_storage, fake_view
from memplan_engine.torch_capture.torch_graph import Program
from memplan_engine.torch_capture.torch_run import as_input_error

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

_one_at_a_time = threading.Lock()
"""torch's reader keeps itself in a global variable."""
IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?")
SYMBOL = re.compile(r"[a-z]+\d+")
NUMBER = re.compile(r"-?[0-9.]{1,40}(e[-+]?[0-9]{1,3})?")
HIGHER_ORDER = frozenset(
    {
        "associative_scan", "auto_functionalized", "auto_functionalized_v2", "cond", "flex_attention",
        "map_impl", "scan", "while_loop", "wrap_with_autocast", "wrap_with_set_grad_enabled",
    }
)  # fmt: skip
TOUCHES_FILES = frozenset({"aten::from_file", "aten::save"})
FUNCTIONS = frozenset(
    {
        "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float", "FloatPow",
        "FloatTrueDiv", "FloorDiv", "FloorToInt", "GreaterThan", "Identity", "IntTrueDiv", "Integer",
        "LessThan", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Ne", "Not", "Or", "Pow", "PowByNatural",
        "PythonMod", "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan", "StrictLessThan",
        "Symbol", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where", "ceiling", "floor",
    }
)  # fmt: skip
POWERS = ("Pow", "PowByNatural", "FloatPow")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd)
MAX_EXPRESSION = 2000
MAX_EXPONENT = 8


def read_program(model: Any, payloads: Mapping[str, tuple[Any, Mapping[str, int]]], source: str) -> Program:
    """A Program from the JSON of a saved exported program, with fake parameters.

    `payloads` maps a kind of payload (weights, constants) to its JSON configuration, by which tensors share
    a record and hence a storage, and to the bytes of each record.

    Raises
    ------
    InputError: another schema version, or anything that does not decode as a program.
    """
    _check_version(model, source)
    vet_program(model, source)
    with as_input_error(source, "graph", "a program that torch can decode"):
        mode = fake_mode()
        state: dict[str, Any] = {}
        for config, sizes in payloads.values():
            state.update(_payload_tensors(config, sizes, mode))
        with _one_at_a_time:
            return _deserialize(model, state)


def _check_version(model: Any, source: str) -> None:
    from torch._export.serde.schema import SCHEMA_VERSION

    version = model.get("schema_version") if isinstance(model, dict) else None
    major = version.get("major") if isinstance(version, dict) else None
    if major != SCHEMA_VERSION[0]:
        saved_by = model.get("torch_version") if isinstance(model, dict) else None
        raise InputError(
            source,
            "schema_version",
            f"{major} (saved by torch {saved_by})",
            f"{SCHEMA_VERSION[0]}, which this torch reads: export the model again with it",
        )


def _deserialize(model: dict[str, Any], state: dict[str, Any]) -> Program:
    from torch._export.serde import schema, serialize
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    module = model["graph_module"]
    # Call signatures and example inputs are left out: they name classes to import and hold pickles.
    parts = {"graph": module["graph"], "signature": module["signature"], "module_call_graph": []}
    ranges = {
        str(symbol): ValueRanges(
            serialize._int_to_sympy_int(_bound(span.get("min_val")), -int_oo),
            serialize._int_to_sympy_int(_bound(span.get("max_val")), int_oo),
        )
        for symbol, span in (model.get("range_constraints") or {}).items()
    }
    read = serialize.GraphModuleDeserializer().deserialize(
        _decoded(schema.GraphModule, parts), {}, {}, None, ranges
    )
    for named in read.signature.input_specs:
        if not isinstance(named.arg.name, str):
            raise TypeError(f"an input whose name is {named.arg.name!r}")
    return Program(read.graph_module, read.signature, state, ranges)


def _decoded(kind: type, data: Any) -> Any:
    """`data`, JSON, as the dataclass `kind` of torch's schema."""
    from torch._export.serde import serialize

    return serialize._dict_to_dataclass(kind, data)  # type: ignore[no-untyped-call]


def _bound(value: Any) -> int | None:
    return None if value is None else int(value)


def _payload_tensors(config: Any, sizes: Mapping[str, int], mode: FakeTensorMode) -> dict[str, torch.Tensor]:
    """A fake tensor for each entry of a payload configuration; entries of one record share a storage of the
    record's size. A record without bytes says nothing about sharing (programs exported on the meta device
    put all their weights into one): its entries get storages of their own, of the size that they need."""
    stored = stored_tensors(config)
    nbytes = dict(sizes)
    owners: dict[str, str] = {}
    for name, entry in stored.items():
        owners[name] = entry.record if sizes.get(entry.record) else f"{entry.record} {name}"
        nbytes[owners[name]] = max(entry.nbytes, nbytes.get(owners[name], 0))
    storages = {owner: fake_storage(nbytes[owner]) for owner in owners.values()}
    tensors = {}
    for name, entry in stored.items():
        layout = (entry.dtype, entry.shape, entry.stride, entry.offset, entry.device)
        tensors[name] = fake_view(mode, storages[owners[name]], *layout)
    return tensors


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a payload: the record with its bytes, and how it lies there. `stride` and `offset` are in
    elements; `nbytes` is how many bytes of the record it needs."""

    record: str
    dtype: torch.dtype
    shape: list[int]
    stride: list[int]
    offset: int
    device: torch.device

    @property
    def nbytes(self) -> int:
        """From the first byte of the record to the last one of the tensor."""
        reach = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (self.offset + reach) * self.dtype.itemsize if all(self.shape) else 0


def stored_tensors(config: Any) -> dict[str, StoredTensor]:
    """The tensors of a payload configuration, JSON, by name."""
    from torch._export.serde import schema, serialize

    entries = _decoded(schema.PayloadConfig, config).config
    return {
        name: StoredTensor(
            entry.path_name,
            serialize.deserialize_scalar_type(meta.dtype),
            [int(size) for size in serialize.deserialize_size(meta.sizes)],
            [int(step) for step in serialize.deserialize_stride(meta.strides)],
            int(serialize.deserialize_storage_offset(meta.storage_offset)),
            serialize.deserialize_device(meta.device),
        )
        for name, entry in entries.items()
        if (meta := entry.tensor_meta) is not None
    }


def vet_program(model: Any, source: str) -> None:
    """Walk a program's JSON, and raise InputError at the first thing that has no business in it."""
    for item in _dictionaries(model):
        for key in ("name", "as_name"):
            if isinstance(item.get(key), str) and not IDENTIFIER.fullmatch(item[key]):
                raise InputError(source, key, repr(item[key]), "an identifier")
        for key, kinds in (("as_int", int), ("as_float", (int, float, str)), ("as_bool", int)):
            if key in item and not isinstance(item[key], kinds):
                raise InputError(source, key, repr(item[key]), "a number")
        if "expr_str" in item:
            _vet_expression(item["expr_str"], source)
        if "as_operator" in item:
            _vet_operator(item["as_operator"], "as_operator", source)
        if "target" in item and "inputs" in item:
            _vet_operator(item["target"], f"node {item.get('name')!r}", source)
            item["metadata"] = _plain_metadata(item.get("metadata"))


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _plain_metadata(metadata: Any) -> dict[str, str]:
    """The two entries that are used: the rest would be looked up or decoded for nothing."""
    kept = metadata if isinstance(metadata, dict) else {}
    keys = ("stack_trace", "nn_module_stack")
    return {key: kept[key] for key in keys if isinstance(kept.get(key), str)}


def _vet_expression(text: Any, source: str) -> None:
    """Both printed forms of sympy are fine: `2*s0`, and `Mul(Integer(2), Symbol('s0', integer=True))`."""
    try:
        sound = isinstance(text, str) and len(text) <= MAX_EXPRESSION
        sound = sound and _is_arithmetic(parse_python(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        sound = False
    if not sound:
        raise InputError(source, "expr_str", repr(text)[:80], "an arithmetic expression of symbols")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return bool(SYMBOL.fullmatch(node.id)) or node.id in ("true", "false")
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float)) and abs(node.value) < 2**64
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, OPERATORS) and _is_arithmetic(node.operand)
    if isinstance(node, ast.BinOp):
        sound = isinstance(node.op, OPERATORS) or (isinstance(node.op, ast.Pow) and _is_small(node.right))
        return sound and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    if isinstance(node, ast.Compare):
        return all(map(_is_arithmetic, (node.left, *node.comparators)))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        return False
    flags = [keyword.value for keyword in node.keywords]
    if not all(isinstance(flag, ast.Constant) and isinstance(flag.value, (bool, int)) for flag in flags):
        return False
    if node.func.id in POWERS and not (len(node.args) == 2 and _is_small(node.args[1])):
        return False
    if node.func.id in ("Symbol", "Float"):
        pattern = SYMBOL if node.func.id == "Symbol" else NUMBER
        return [isinstance(a, ast.Constant) and bool(pattern.fullmatch(str(a.value))) for a in node.args] == [
            True
        ]
    return all(map(_is_arithmetic, node.args))


def _is_small(node: ast.AST) -> bool:
    """Whether `node` is an exponent that cannot make a number of millions of digits."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        return isinstance(node.func, ast.Name) and node.func.id == "Integer" and _is_small(node.args[0])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_small(node.operand)
    return isinstance(node, ast.Constant) and node.value in range(MAX_EXPONENT + 1)


def _vet_operator(target: Any, place: str, source: str) -> None:
    if isinstance(target, str) and _is_operator(target):
        return
    expected = "one that this torch knows (a custom one once the package that defines it is imported)"
    if isinstance(target, str) and target.startswith("torch._functorch.predispatch."):
        expected = "a program without vmap, as exported.run_decompositions({}) returns it: save that"
    raise InputError(source, place, f"the operator {target!r}", expected)


def _is_operator(target: str) -> bool:
    import torch
    from torch._export.serde.serialize import _SYM_OPS

    if target.startswith("torch.ops.higher_order."):
        return target.removeprefix("torch.ops.higher_order.") in HIGHER_ORDER
    if target in {f"{op.__module__}.{op.__name__}" for op in _SYM_OPS} | {"_operator.getitem"}:
        return True
    parts = target.split(".")
    if len(parts) != 5 or parts[:2] != ["torch", "ops"] or not all(map(str.isidentifier, parts)):
        return False
    try:
        operator = getattr(getattr(getattr(torch.ops, parts[2]), parts[3]), parts[4])
    except (AttributeError, RuntimeError):
        return False
    return isinstance(operator, torch._ops.OpOverload) and operator._schema.name not in TOUCHES_FILES
