"""The one place that knows torch's serialized form of exported programs (internals of the pinned torch)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.torch_capture.torch_fake import fake_mode, fake_storage, fake_view
from memplan_engine.torch_capture.torch_graph import Program
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.torch_vet import vet_program

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

_one_at_a_time = threading.Lock()
"""torch's reader keeps itself in a global variable."""


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
    try:
        mode = fake_mode()
        state: dict[str, Any] = {}
        for config, sizes in payloads.values():
            state.update(_payload_tensors(config, sizes, mode))
        with _one_at_a_time:
            return _deserialize(model, state)
    except MemplanError:
        raise
    except Exception as error:
        raise InputError(source, "graph", brief(error), "a program that torch can decode") from error


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
    from torch._export.serde import schema, serialize

    payload = _decoded(schema.PayloadConfig, config)
    metas = {
        name: (entry.path_name, entry.tensor_meta)
        for name, entry in payload.config.items()
        if entry.tensor_meta is not None
    }
    views: dict[str, tuple[str, tuple[Any, ...]]] = {}
    nbytes: dict[str, int] = {}
    for name, (record, meta) in metas.items():
        dtype = serialize.deserialize_scalar_type(meta.dtype)
        shape = [int(size) for size in serialize.deserialize_size(meta.sizes)]
        stride = [int(step) for step in serialize.deserialize_stride(meta.strides)]
        offset = int(serialize.deserialize_storage_offset(meta.storage_offset))
        reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        need = (offset + reach) * dtype.itemsize if all(shape) else 0
        known = sizes.get(record, 0)
        owner = record if known else f"{record} {name}"
        nbytes[owner] = max(need, nbytes.get(owner, known))
        views[name] = (owner, (dtype, shape, stride, offset, serialize.deserialize_device(meta.device)))
    storages = {owner: fake_storage(size) for owner, size in nbytes.items()}
    return {name: fake_view(mode, storages[owner], *view) for name, (owner, view) in views.items()}
