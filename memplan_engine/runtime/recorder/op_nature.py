"""What follows of an op from its operator alone: looked up once, for there are few operators and many ops."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from memplan_engine.torch_capture.torch_storages import GIVES_BACK_NEW, operator_name

COLLECTIVES = ("c10d::", "_c10d_functional::", "c10d_functional::", "fsdp::split_with_sizes_copy")
RECORD_STREAM, COPIES = "aten::record_stream", ("aten::_to_copy", "aten::copy_")
ASKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""What operators are tagged as that wait for a value."""


class OpNature(NamedTuple):
    """Of an `operator`, which is kept, for an id means nothing once its object is gone: of a `collective` its
    name, and whether it `asks` for a value."""

    operator: Any
    gives_back_new: bool
    collective: str
    records_stream: bool
    copies: bool
    asks: bool


def nature_of(operator: Any) -> OpNature:
    """Of an operator of torch's."""
    name = operator_name(operator)
    return OpNature(
        operator,
        name in GIVES_BACK_NEW,
        name if name.startswith(COLLECTIVES) else "",
        name == RECORD_STREAM,
        name in COPIES,
        bool(ASKS & set(getattr(operator, "tags", ()))),
    )
