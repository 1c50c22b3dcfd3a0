"""What `torch.export` takes for the models of the manifest: the measure of what predictions cost.

Nothing of memplan is imported here.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

FIRST = "first of a process"
"""What is exported and predicted before all models: loading torch's own parts is the cost of no model."""


def first_model() -> tuple[nn.Module, dict[str, Any]]:
    """What is exported and predicted before all models."""
    return nn.Linear(4, 4), {"input": torch.rand(2, 4)}


def exported(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The CPU seconds that exporting a call takes, or `not_exported` and why: a model that branches on what
    it computes cannot be. The model returns no key/value caches from now on, whose types torch.export does
    not know."""
    for part in model.modules():
        config = getattr(part, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False  # type: ignore[union-attr]
    began = time.process_time()
    try:
        with torch.no_grad():
            torch.export.export(model, (), dict(inputs), strict=False)
    except GuardOnDataDependentSymNode as error:
        return {"not_exported": str(error).strip().splitlines()[0]}
    return {"export_seconds": time.process_time() - began}
