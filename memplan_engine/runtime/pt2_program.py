"""A saved exported program (`.pt2`) with its weights, ready to run; nothing in the file is unpickled.

`torch.export.load` unpickles weights, constants and example inputs, which can run code. Here the graph goes
through the same vetted reader as for planning, weights are taken as the raw bytes that they are, and example
inputs are not read: they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.runtime.program import Program, program_from_exported
from memplan_engine.runtime.signature import Expected
from memplan_engine.torch_capture.pt2_reader import read_weights
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.torch_serde import read_program, stored_tensors


def load_pt2(path: Path | str) -> Program:
    """The Program in a file of `torch.export.save`, with its weights. It takes the flat inputs by place and
    returns the flat list of outputs: their nested forms name classes to import, and are left out.

    Raises
    ------
    InputError: as the importer of .pt2 files does; weights that are pickled or missing, dynamic shapes,
        constants that are no tensors.
    """
    path = Path(path)
    model, payloads = read_weights(path)
    sizes = {
        kind: (config, {name: len(data) for name, data in records.items()})
        for kind, (config, records) in payloads.items()
    }
    read = read_program(model, sizes, path.name)
    with as_input_error(path.name, "weights", "tensors that lie within their bytes"):
        state: dict[str, Any] = {}
        for config, records in payloads.values():
            state |= _tensors(config, records)
    names = [spec for spec in read.signature.input_specs if spec.kind.name == "USER_INPUT"]
    returned = [spec for spec in read.signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    call = SimpleNamespace(
        in_spec=pytree.tree_flatten(((0,) * len(names), {}))[1],
        out_spec=pytree.tree_flatten([0] * len(returned))[1],
    )
    parts: Any = SimpleNamespace(
        graph=read.module.graph,
        graph_module=read.module,
        graph_signature=read.signature,
        state_dict=state,
        constants={},
        range_constraints=read.ranges,
        call_spec=call,
    )
    return program_from_exported(parts, name=path.stem)


def example_inputs(program: Program, seed: int = 0) -> tuple[Any, ...]:
    """Values for the inputs of `program`: plain values as captured, floating-point tensors from `seed`
    (normally distributed), all others zero, which is a place in every table."""
    random = torch.Generator().manual_seed(seed)
    return tuple(_example(one, random) for one in program.expected)


def _example(one: Expected, random: torch.Generator) -> Any:
    if one.dtype is None:
        return one.value
    tensor = torch.empty_strided(one.shape, one.strides, dtype=one.dtype, device=one.device).zero_()
    if one.dtype.is_floating_point:
        tensor.copy_(torch.randn(one.shape, generator=random))
    return tensor


def _tensors(config: Mapping[str, Any], records: Mapping[str, bytes]) -> dict[str, torch.Tensor]:
    """The tensors of a payload by name; those of one record share it."""
    storages = {name: _storage(data) for name, data in records.items()}
    tensors = {}
    for name, one in stored_tensors(config).items():
        if one.nbytes > storages[one.record].nbytes():
            raise ValueError(f"{name} needs more bytes than its record has")
        if min(*one.shape, *one.stride, one.offset, 0) < 0:
            raise ValueError(f"{name} has a size or stride below 0")
        typed = torch.empty(0, dtype=one.dtype)
        tensors[name] = typed.set_(storages[one.record], one.offset, one.shape, one.stride)
    return tensors


def _storage(data: bytes) -> torch.UntypedStorage:
    if not data:
        return torch.empty(0, dtype=torch.uint8).untyped_storage()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage()
