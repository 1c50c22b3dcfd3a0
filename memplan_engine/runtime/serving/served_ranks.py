"""A causal language model, served: the prompt and one token more, on each rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.recordings.inference import inference_of
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.runtime.ranks.rank_launch import EXPECTED as OF_SCRIPTS
from memplan_engine.runtime.ranks.rank_runs import DISTINCT, observe_ranks
from memplan_engine.runtime.scripts.script_run import SECONDS

EXPECTED = (
    "a causal language model that takes input_ids, past_key_values and use_cache, and gives past_key_values "
    "that grow with each token, as those of transformers do"
)
MOST_TOKENS = 1 << 32
"""Of all prompts together: beyond that bytes of activations may be no numbers of the machine."""
SCRIPT = Path(__file__).parent / "serve_script.py"


def observe_served(
    factory: str,
    *,
    batch: int,
    context: int,
    world_size: int = 1,
    ranks: str = DISTINCT,
    arch: str | None = None,
    seconds: float = SECONDS,
    tell: Callable[[str], None] = lambda said: None,
) -> tuple[RankRun, ...]:
    """What the model of `factory` ("package.module:function" or "file.py:function", as for `capture`)
    allocates on a card of NVIDIA's for `batch` prompts of `context` tokens each, then one token more:
    `inference_of` reads it. Which words they are, and the inputs of the factory, are of no matter; weights
    take no memory. A factory that shards its model for `world_size` ranks is run as each that differs.

    Raises
    ------
    InputError: a batch or a context that cannot be, a factory of another model, a cache that does not grow
        by as much for each sequence; as `observe_ranks`.
    """
    for name, count in (("--batch", batch), ("--context", context)):
        if count < 1:
            raise InputError(name, "", f"{count:,}", "1 or more")
    if batch * context > MOST_TOKENS:
        found = f"{context:,} tokens for each of {batch:,}"
        raise InputError("--context", "", found, f"at most {MOST_TOKENS:,} tokens in all prompts")
    try:
        runs = observe_ranks(
            SCRIPT,
            (factory, str(batch), str(context)),
            world_size=world_size,
            ranks=ranks,
            device="cuda",
            arch=arch,
            seconds=seconds,
            tell=tell,
        )
    except InputError as error:
        # Who is asked for is the factory, not the script that runs it.
        name = error.source.replace(SCRIPT.name, factory)
        raise InputError(
            name, error.place, error.found, error.expected.replace(OF_SCRIPTS, EXPECTED)
        ) from None
    named = tuple(replace(run, observation=replace(run.observation, name=factory)) for run in runs)
    for run in named:
        inference_of(run.observation)
    return named
