"""The one place that knows torch's serialized form of exported programs (internals of the pinned torch)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import fake_mode, fake_storage, fake_view
from memplan_engine.torch_capture.torch_graph import Program
from memplan_engine.torch_capture.torch_run import as_input_error
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
    for name, one in stored.items():
        owners[name] = one.record if sizes.get(one.record) else f"{one.record} {name}"
        nbytes[owners[name]] = max(one.nbytes, nbytes.get(owners[name], 0))
    storages = {owner: fake_storage(nbytes[owner]) for owner in owners.values()}
    tensors = {}
    for name, one in stored.items():
        layout = (one.dtype, one.shape, one.stride, one.offset, one.device)
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
