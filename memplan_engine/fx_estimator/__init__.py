"""The memory of fx graphs, estimated as PyTorch's FX memory estimator does: by a published rule for what
shares memory, or by storages."""

from memplan_engine.fx_estimator.aliasing import (
    Aliasing,
    FxStorage,
    Interactions,
    Pair,
    Storages,
    is_not_primal,
    size_of_node,
)
from memplan_engine.fx_estimator.fx_estimates import (
    Estimate,
    build_memory_profile,
    estimate_training,
    get_fwd_bwd_interactions,
    get_peak_memory,
)
from memplan_engine.fx_estimator.published import PublishedAliasing
from memplan_engine.fx_estimator.storage import StorageAliasing

__all__ = [
    "Aliasing",
    "Estimate",
    "FxStorage",
    "Interactions",
    "Pair",
    "PublishedAliasing",
    "StorageAliasing",
    "Storages",
    "build_memory_profile",
    "estimate_training",
    "get_fwd_bwd_interactions",
    "get_peak_memory",
    "is_not_primal",
    "size_of_node",
]
