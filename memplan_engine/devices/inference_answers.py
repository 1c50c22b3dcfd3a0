"""A causal language model that is served on devices: what weights and passes leave for the KV cache.

A server has one pool of blocks for the keys and values of all sequences (PagedAttention: Kwon et al.,
"Efficient Memory Management for Large Language Model Serving", SOSP 2023), and gives it what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.allocator.answers import Answers, three_answers
from memplan_engine.allocator.device import Device
from memplan_engine.allocator.settings import DEFAULTS, AllocatorSettings
from memplan_engine.errors import InputError
from memplan_engine.recordings.inference import Inference, inference_of, without_cache
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.verdict import Reason

BLOCK_TOKENS = 16
"""Tokens of a block: vLLM's block_size where nobody names one."""
Range = tuple[int, int]
"""The least and the most: with the most that may be held beside and what the allocator reserves, and with the
least and what tensors hold."""


@dataclass(frozen=True, slots=True, eq=False)
class InferenceAnswer:
    """What is left to the cache on the device of `run`, of whose bytes the part `utilization` may be used.
    `answers` are of the run without its cache."""

    run: RankRun
    inference: Inference
    answers: Answers
    utilization: float
    block_tokens: int

    @property
    def device(self) -> Device:
        """What it runs on."""
        found = self.answers.chosen.device
        assert found is not None
        return found

    @property
    def reason(self) -> Reason | None:
        """Return why a run may leave more or less than the recording says; None for no reason."""
        return self.answers.chosen.recording.doubt

    @property
    def reserved_bytes(self) -> int:
        """What the allocator holds for all but the cache."""
        return self.answers.chosen.run.peak_reserved

    @property
    def usable_bytes(self) -> int:
        """Of the device's bytes those that may be used."""
        return int(self.device.total_bytes * self.utilization) - self.device.headroom

    @property
    def left_bytes(self) -> Range:
        """What is left to the cache; 0 at least."""
        least = self.usable_bytes - self.device.most_overhead - self.reserved_bytes
        most = self.usable_bytes - self.device.least_overhead - self.inference.peak_bytes
        return max(least, 0), max(most, 0)

    @property
    def block_bytes(self) -> int:
        """Of one block, through all layers."""
        return self.block_tokens * self.inference.token_bytes

    @property
    def blocks(self) -> Range:
        """How many blocks there are when `batch` sequences have what does not grow."""
        low, high = (self._blocks(left, self.inference.batch) for left in self.left_bytes)
        return low, high

    @property
    def longest_context(self) -> Range:
        """Tokens that each of `batch` sequences can have."""
        low, high = (each // self.inference.batch * self.block_tokens for each in self.blocks)
        return low, high

    @property
    def largest_batch(self) -> Range:
        """Sequences of `context` tokens that there is room for at once."""
        need = -(-self.inference.context // self.block_tokens) * self.block_bytes
        low, high = (left // (need + self.inference.sequence_bytes) for left in self.left_bytes)
        return low, high

    def _blocks(self, left: int, batch: int) -> int:
        return max(left - batch * self.inference.sequence_bytes, 0) // self.block_bytes


def inference_answer(
    runs: Sequence[RankRun],
    gpu: Accelerator,
    settings: AllocatorSettings = DEFAULTS,
    *,
    headroom: int = 0,
    utilization: float = 1.0,
    block_tokens: int = BLOCK_TOKENS,
) -> InferenceAnswer | None:
    """Of the rank that has room for the fewest blocks, which all ranks then have; None of runs that are none
    of a model that is served (`inference_of`).

    Raises
    ------
    InputError: a utilization or a block that cannot be; as `inference_of` and `simulate_allocator`.
    """
    if not 0 < utilization <= 1:
        raise InputError("--utilization", "", f"{utilization:g}", "more than 0, at most 1")
    if block_tokens < 1:
        raise InputError("--block", "", f"{block_tokens:,}", "1 token or more")
    found = []
    for run in runs:
        inference = inference_of(run.observation)
        if inference is None:
            return None
        answers = three_answers(
            without_cache(run.observation),
            settings,
            gpu=gpu,
            headroom=headroom,
            communicators=run.groups - len(run.group_sizes),
            groups=run.group_sizes,
            candidates=(),
        )
        found.append(InferenceAnswer(run, inference, answers, utilization, block_tokens))
    return min(found, key=lambda each: each.blocks, default=None)
