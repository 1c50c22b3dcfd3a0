"""A causal language model as a server runs it: a prompt for each sequence of a batch, then one token more.

A script like those of users, for `observe_ranks`: its arguments are the factory, the batch and the context.
What `inference_of` reads from the observation is noted here: the inputs of the two phases by their names, and
the storages of the cache.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from memplan_engine.errors import InputError
from memplan_engine.recordings.inference import NEXT_TOKEN, OF_NEXT_TOKEN, OF_PROMPT, PROMPT
from memplan_engine.recordings.observed_flow import Category
from memplan_engine.runtime.ranks.rank_facts import note_parameters
from memplan_engine.runtime.recorder.flow_log import StorageTable
from memplan_engine.runtime.recorder.op_recorder import recorder_on
from memplan_engine.runtime.serving.served_ranks import EXPECTED
from memplan_engine.torch_capture.torch_factory import build_factory

DEVICE = "cuda"


def main(factory: str, batch: int, context: int) -> None:
    """Run both phases."""
    built = build_factory(factory, weights=False)
    model = built.model.eval().to_empty(device=DEVICE)
    note_parameters(model.parameters())
    with torch.no_grad():
        cache = phase(factory, model, tokens(PROMPT, batch, context), {}, OF_PROMPT)
        phase(factory, model, tokens(NEXT_TOKEN, batch, 1), {"past_key_values": cache}, OF_NEXT_TOKEN)


def tokens(name: str, batch: int, count: int) -> Tensor:
    """An input called `name`: which words they are is of no matter."""
    words = torch.zeros((batch, count), dtype=torch.int64, device=DEVICE)
    _note(words, name, Category.INPUT)
    return words


def phase(factory: str, model: nn.Module, words: Tensor, options: dict[str, Any], name: str) -> Any:
    """Run `model` once as `generate` of transformers does, which asks for scores of the last token alone;
    the cache after it, whose storages are then called `name`."""
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options = {**options, "logits_to_keep": 1}
    try:
        given = model(input_ids=words, use_cache=True, **options)
    except TypeError as error:
        raise InputError(factory, "model", str(error), EXPECTED) from None
    cache = given.get("past_key_values") if isinstance(given, dict) else None
    found = list(kept_tensors(cache))
    if not found:
        raise InputError(factory, "past_key_values", "no tensors", EXPECTED)
    for each in found:
        if each.nbytes != each.untyped_storage().nbytes():
            raise InputError(factory, "past_key_values", "a part of a larger tensor", "tensors of their own")
        _note(each, name, Category.KV_CACHE)
    return cache


def _note(tensor: Tensor, name: str, category: Category) -> None:
    table = _table()
    number = table.number_of(tensor)
    table.names[number], table.categories[number] = name, category


def _table() -> StorageTable:
    recorder = recorder_on()
    assert recorder is not None
    return recorder.flow.table


def kept_tensors(value: Any) -> Iterator[Tensor]:
    """The tensors that a cache of any make keeps."""
    if isinstance(value, Tensor):
        if value.numel():
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from kept_tensors(each)
    elif isinstance(value, dict):
        yield from kept_tensors(list(value.values()))
    elif not isinstance(value, (type, nn.Module)) and hasattr(value, "__dict__"):
        yield from kept_tensors(list(vars(value).values()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
