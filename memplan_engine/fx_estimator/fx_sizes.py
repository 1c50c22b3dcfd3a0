"""Bytes of an fx node's value, and which values a pass may release."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memplan_engine.torch_capture.torch_run import brief

if TYPE_CHECKING:
    from torch.fx import Node

log = logging.getLogger(__name__)

PRIMALS = "primals"
"""How AOTAutograd's names of the forward's inputs (parameters, buffers and arguments) begin."""


def size_of_node(node: Node) -> int:
    """Bytes of the tensors in `node.meta["val"]`, each at its own shape, as torch's partitioner counts them.

    Symbolic sizes take their hints, and a symbolic number counts 1. A value without a known size counts 0,
    with a logged warning, as in the published estimator.
    """
    from torch._functorch.partitioners import _size_of

    try:
        return int(_size_of(node))
    except Exception as error:
        log.warning("node %s has no known size and counts 0 bytes (%s)", node.name, brief(error))
        return 0


def is_not_primal(node: Node) -> bool:
    """Whether `node` is none of the forward's inputs: those belong to the caller and are never released."""
    return not node.name.startswith(PRIMALS)
