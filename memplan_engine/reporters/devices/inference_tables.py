"""What is left for the KV cache of a model that is served: as plain values, in rows, in words."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.devices.inference_answers import InferenceAnswer, Range
from memplan_engine.reporters.rich_tables import label_table, plain_text
from memplan_engine.units import count_of, exact, format_bytes


def inference_summary(answer: InferenceAnswer) -> dict[str, Any]:
    """For machines."""
    inference, device = answer.inference, answer.device
    return {
        "rank": answer.run.rank,
        "reason": answer.reason,
        "batch": inference.batch,
        "context": inference.context,
        "weight_bytes": inference.weight_bytes,
        "prefill_bytes": inference.prefill_bytes,
        "decode_bytes": inference.decode_bytes,
        "reserved_bytes": answer.reserved_bytes,
        "beside_bytes": [device.least_overhead, device.most_overhead],
        "usable_bytes": answer.usable_bytes,
        "utilization": answer.utilization,
        "left_bytes": list(answer.left_bytes),
        "token_bytes": inference.token_bytes,
        "sequence_bytes": inference.sequence_bytes,
        "block_tokens": answer.block_tokens,
        "block_bytes": answer.block_bytes,
        "blocks": list(answer.blocks),
        "longest_context": list(answer.longest_context),
        "largest_batch": list(answer.largest_batch),
    }


def inference_rows(answer: InferenceAnswer) -> list[tuple[str, str]]:
    """The sum from the device's bytes to blocks, a line each."""
    inference, device = answer.inference, answer.device
    passes = f"{inference.batch:,} × {inference.context:,} tokens"
    beside = _ranged((device.least_overhead, device.most_overhead), format_bytes)
    rows = [
        ("may be used", f"{exact(answer.usable_bytes)}, {answer.utilization:.0%} of {device.name}"),
        ("− weights", exact(inference.weight_bytes)),
        ("− prefill", f"{exact(inference.prefill_bytes)}, the most at once beside them, {passes}"),
        ("(decode)", f"{exact(inference.decode_bytes)}, {inference.batch:,} × 1 token"),
        ("− held beside", beside),
        ("− not live", f"0 to {format_bytes(answer.reserved_bytes - inference.peak_bytes)}, reserved"),
        ("= KV cache", _ranged(answer.left_bytes, format_bytes)),
        ("a token", f"{exact(inference.token_bytes)} of the cache, as recorded"),
    ]
    if inference.decode_bytes > inference.prefill_bytes:
        rows[2], rows[3] = ("(prefill)", rows[2][1]), ("− decode", rows[3][1])
    if inference.sequence_bytes:
        rows.append(("a sequence", f"{exact(inference.sequence_bytes)} whatever its length"))
    block = f"{answer.block_tokens:,} tokens, {exact(answer.block_bytes)} each"
    if answer.reason is not None:
        rows.append(("undecided", str(answer.reason)))
    return [
        *rows,
        ("KV blocks", f"{_counted(answer.blocks)} of {block}"),
        (
            "longest",
            f"{_counted(answer.longest_context)} tokens for each of {count_of(inference.batch, 'sequence')}",
        ),
        ("largest batch", f"{_counted(answer.largest_batch)} sequences of {inference.context:,} tokens"),
    ]


NOTE = (
    "as long as one pass has no more tokens than the recorded one; graphs that a server captures, and what "
    "it samples with, are not counted"
)


def inference_tables(answer: InferenceAnswer) -> list[RenderableType]:
    """For people."""
    where = f"rank {answer.run.rank}, with room for the fewest" if answer.run.world_size > 1 else ""
    return [
        label_table([("KV cache", where), *inference_rows(answer)]),
        plain_text(f"note: KV blocks: {NOTE}"),
    ]


def inference_headline(answer: InferenceAnswer) -> str:
    """In one sentence."""
    inference = answer.inference
    return (
        f"Room for {_counted(answer.blocks)} KV blocks of {answer.block_tokens:,} tokens: "
        f"{_counted(answer.largest_batch)} sequences of {inference.context:,} tokens, or "
        f"{_counted(answer.longest_context)} tokens for each of {inference.batch:,}"
        f"{f' ({answer.reason})' if answer.reason else ''}"
    )


def _ranged(both: Range, text: Any) -> str:
    low, high = map(text, both)
    return str(low) if low == high else f"{low} to {high}"


def _counted(both: Range) -> str:
    return _ranged(both, "{:,}".format)
