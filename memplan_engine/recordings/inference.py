"""What a recorded run of a causal language model says of its two phases: the prompt, then one token more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Level, Observation, flow_changes
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    Category,
    Flow,
    fullest_device,
    state_bytes,
)

PROMPT, NEXT_TOKEN = "prompt", "next token"
"""Names of the inputs of the two phases: prefill, and decode."""
OF_PROMPT, OF_NEXT_TOKEN = f"cache after {PROMPT}", f"cache after {NEXT_TOKEN}"
"""Names of the storages of the cache: the last phase after which it had them."""


@dataclass(frozen=True, slots=True)
class Inference:
    """`batch` sequences of `context` tokens each in one pass, then one token more of each.

    Bytes of one device: `weight_bytes`, and what lies beside weights and cache at the peaks of the phases,
    `prefill_bytes` and `decode_bytes`. Of the cache `token_bytes` come with each token of a sequence;
    `sequence_bytes` a sequence has whatever its length (windows that are full, states).
    """

    batch: int
    context: int
    weight_bytes: int
    prefill_bytes: int
    decode_bytes: int
    token_bytes: int
    sequence_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Weights, and the larger of the phases."""
        return self.weight_bytes + max(self.prefill_bytes, self.decode_bytes)


def inference_of(observation: Observation) -> Inference | None:
    """What `observation` says; None where it is no run of two phases.

    Raises
    ------
    InputError: a cache that does not grow by as many bytes for each sequence.
    """
    flow = observation.flow
    if flow is None or not {PROMPT, NEXT_TOKEN} <= set(flow.storages.names):
        return None
    storages = flow.storages
    begins = [_first_reader(flow, storages.names.index(name)) for name in (PROMPT, NEXT_TOKEN)]
    prefill, decode = begins
    batch, context = storages.shapes[storages.names.index(PROMPT)]
    names, there = np.array(storages.names), _lies_there(flow)
    last = there & (names == OF_NEXT_TOKEN)
    first = there & (names == OF_PROMPT) | last & (storages.maker < decode)
    before, after = int(storages.nbytes[first].sum()), int(storages.nbytes[last].sum())
    grown = after - before
    fixed = before - grown * context
    if grown <= 0 or fixed < 0 or grown % batch or fixed % batch:
        found = f"a cache of {before:,} bytes after the prompt and {after:,} after one token more"
        raise InputError(observation.name, "KV cache", found, "as many bytes more for each sequence")
    beside = _beside(flow)
    return Inference(
        batch,
        context,
        state_bytes(flow),
        int(beside[prefill:decode].max(initial=0)),
        int(beside[decode:].max(initial=0)),
        grown // batch,
        fixed // batch,
    )


def without_cache(observation: Observation) -> Observation:
    """`observation` as if its cache took no memory: where a server has one pool for it, made before."""
    flow = observation.flow
    assert flow is not None
    storages = flow.storages
    kept = np.array([each is Category.KV_CACHE for each in storages.categories], dtype=bool)
    rest = replace(flow, storages=replace(storages, nbytes=np.where(kept, 0, storages.nbytes)))
    changes = {Level.DISPATCH: flow_changes(rest, observation.ops)}
    return replace(observation, flow=rest, changes=changes)


def _first_reader(flow: Flow, number: int) -> int:
    return next(op for op, read in enumerate(flow.reads) if number in read)


def _lies_there(flow: Flow) -> NDArray[np.bool_]:
    there: NDArray[np.bool_] = flow.storages.device == fullest_device(flow)
    return there


def _beside(flow: Flow) -> NDArray[np.int64]:
    """Bytes that live during each op beside what was there before and the cache."""
    storages, n = flow.storages, len(flow.stages)
    kept = np.array([each is Category.KV_CACHE for each in storages.categories], dtype=bool)
    made = _lies_there(flow) & (storages.maker != BEFORE) & ~kept
    change = np.zeros(n + 1, dtype=np.int64)
    np.add.at(change, storages.maker[made], storages.nbytes[made])
    gone = made & (storages.released != HELD)
    np.add.at(change, storages.released[gone] + 1, -storages.nbytes[gone])
    return np.cumsum(change)[:n]
