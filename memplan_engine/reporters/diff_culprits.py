"""Who is to blame for a change of the peak, in sentences: the first is the verdict, the sum of all is Δ."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from memplan_engine.diffing.culprits import Culprit, Explanation, Fate, Held, Holder
from memplan_engine.diffing.moment import Cause, Moment
from memplan_engine.diffing.regression import Diff
from memplan_engine.graph import Source
from memplan_engine.reporters.diff_words import place
from memplan_engine.units import format_bytes, format_signed

MOST_TOLD = 3
"""Culprits that are told in words; the others are summed up."""


def story(diff: Diff, found: Explanation) -> tuple[str, ...]:
    """What became of the peak and why, a sentence each: the first is the verdict. What is said to be added
    and taken away sums to the change of the peak."""
    if diff.same:
        return (f"nothing changed: the peak is {format_bytes(diff.head_load.peak)} on both sides",)
    verdict = _peaks(diff)
    if not found.knows_why:
        return (f"{verdict}; the two have too little in common to say why", *_packing(diff))
    told, hidden = found.culprits[:MOST_TOLD], found.culprits[MOST_TOLD:]
    parts = [
        f"{format_signed(each.nbytes)} because {culprit_words(each, diff, found.moment)}" for each in told
    ]
    if hidden:
        rest = format_signed(sum(each.nbytes for each in hidden))
        parts.append(f"{rest} by {len(hidden):,} other change{'s' * (len(hidden) != 1)}")
    if found.elsewhere:
        parts.append(f"{format_signed(found.elsewhere)} because {_elsewhere(diff)}")
    if parts and found.delta:
        verdict, parts = f"{verdict}: {parts[0]}", parts[1:]
    return (verdict, *parts, *_packing(diff), *_second(diff, found))


def _peaks(diff: Diff) -> str:
    """ "peak 16 MiB → 20 MiB"."""
    base, head = diff.base_load.peak, diff.head_load.peak
    what = "graph peak" if diff.has_workspaces else "peak"
    if base == head:
        return f"{what} unchanged at {format_bytes(base)}"
    return f"{what} {format_signed(head - base)}, {format_bytes(base)} → {format_bytes(head)}"


def _elsewhere(diff: Diff) -> str:
    """Why the two steps that are compared differ by more than the two peaks, or by less."""
    moment = diff.moment
    side, plan, step, load = "base", diff.base, moment.base_step, diff.base_load
    if diff.demand_delta < 0:
        side, plan, step, load = "head", diff.head, moment.head_step, diff.head_load
    here, peak = place(plan.problem, step), place(plan.problem, load.peak_step)
    held = f"at the matching {here} {side} holds {format_bytes(load.at(step))}"
    return f"{held}; its own peak, {format_bytes(load.peak)}, is at {peak}"


def _packing(diff: Diff) -> tuple[str, ...]:
    if not diff.packing_delta:
        return ()
    before = diff.base.arena_bytes - diff.base_load.peak
    after = diff.head.arena_bytes - diff.head_load.peak
    return (
        f"packing loss {format_signed(diff.packing_delta)}, {format_bytes(before)} → {format_bytes(after)}: "
        "that comes of the placement, not of the model",
    )


def _second(diff: Diff, found: Explanation) -> tuple[str, ...]:
    second = found.second
    if second is None:
        return ()
    moment, peak = second.moment, diff.head_load.peak
    below = f"{format_bytes(peak - moment.head_bytes)} below the peak"
    where = "as high as the peak" if moment.head_bytes == peak else below
    culprit = second.culprits[0]
    return (
        f"another peak grew: {place(diff.head.problem, moment.head_step)} {format_signed(second.delta)} to "
        f"{format_bytes(moment.head_bytes)}, {where}; {format_signed(culprit.nbytes)} because "
        f"{culprit_words(culprit, diff, moment)}",
    )


def culprit_words(culprit: Culprit, diff: Diff, moment: Moment) -> str:
    """What happened to its tensors at `moment`: "relu (net.py:67) is now returned …"."""
    held, several = culprit.largest, len(culprit.buffers) > 1
    what, verb = _tensors(culprit), "are" if several else "is"
    match culprit.cause, culprit.fate:
        case Cause.NEW, _:
            return f"{what} {verb} new"
        case Cause.GONE, _:
            return f"{what} {verb} gone"
        case (Cause.LARGER | Cause.SMALLER) as cause, _:
            size = "larger" if cause is Cause.LARGER else "smaller"
            return f"{what} {verb} {size}{f', {held.label} most' * several}: {_sizes(held)}"
        case cause, Fate.RETURNED if cause is Cause.LONGER:
            return f"{what} {verb} now returned{_through(held)} and so held to the end{_before(held)}"
        case _, Fate.RETURNED:
            return f"{what} {verb} no longer returned{_reads_last(held)}"
        case cause, Fate.KEPT if cause is Cause.LONGER:
            reader = holder_words(held.head_holder)
            return f"{what} {verb} now held past the last read, by {reader}: a reference keeps it"
        case _, Fate.KEPT:
            return f"{what} {verb} no longer held past the last read, by {holder_words(held.head_holder)}"
        case _, Fate.LAST_READER:
            return f"{holder_words(held.head_holder)} now reads {what} last{_before(held)}"
        case cause, Fate.FREED:
            return f"{what} {verb} freed {'later' if cause is Cause.LONGER else 'earlier'}{_freed(held)}"
        case cause, Fate.MADE:
            return f"{what} {verb} made {'earlier' if cause is Cause.LONGER else 'later'}"
    base, head = place(diff.base.problem, moment.base_step), place(diff.head.problem, moment.head_step)
    here, there = (f"{base} of base", f"{head} of head")[:: 1 if culprit.nbytes < 0 else -1]
    return f"{what} {verb} in use at {here}, not at {there}"


def _tensors(culprit: Culprit) -> str:
    """The tensors, with the line that makes them: two by name, more by number."""
    held, count = culprit.largest, len(culprit.buffers)
    source = held.provenance.source
    line = f" ({line_text(source)})" if source else ""
    if count == 1:
        return f"{held.label}{line}"
    if len({each.provenance.source for each in culprit.buffers}) > 1:
        return f"{count:,} tensors, the largest {held.label}{line},"
    if count == 2:
        return f"{' and '.join(each.label for each in culprit.buffers)}{line}"
    return f"{count:,} tensors of {line_text(source)}" if source else f"{count:,} tensors"


def _sizes(held: Held) -> str:
    """The shape or dtype before and after where that differs, else the bytes."""
    if held.base_from and held.head_from and held.base_from.dtype and held.head_from.dtype:
        before, after = (f"{told.dtype} {list(told.shape)}" for told in (held.base_from, held.head_from))
        if before != after:
            return f"{before} → {after}"
    return f"{format_bytes(held.base_bytes)} → {format_bytes(held.head_bytes)}"


def _through(held: Held) -> str:
    """By way of which view a tensor is returned."""
    holder = held.head_holder
    another = holder is not None and holder.op is not None and holder.op != held.provenance.maker
    return f" through {holder_words(holder)}" if another else ""


def _before(held: Held) -> str:
    """Who read it last before."""
    holder = held.base_holder
    if holder is None or holder.op is None:
        return ""
    return f"; before, {holder_words(holder)} read {held.label} last"


def _reads_last(held: Held) -> str:
    holder = held.head_holder
    return f"; {holder_words(holder)} now reads {held.label} last" if holder and holder.op else ""


def _freed(held: Held) -> str:
    before, after = held.base_holder, held.head_holder
    if before is None or after is None:
        return ""
    if after.op is None:
        return f": last in use at step {after.step:,}, before at step {before.step:,}"
    return f": its last reader, {holder_words(after)}, runs {'later' if held.delta > 0 else 'earlier'}"


def holder_words(holder: Holder | None) -> str:
    """ "h.0.attn · cat (neox.py:21)": the op that holds a buffer, with its line."""
    if holder is None or holder.op is None:
        return "nobody"
    source = holder.op.source
    return f"{holder.op_label} ({line_text(source)})" if source else holder.op_label


def line_text(source: Source) -> str:
    """ "neox.py:21": the file without its folders."""
    return f"{PurePosixPath(source.file.replace(chr(92), '/')).name}:{source.line}"


def holder_text(holder: Holder | None) -> str:
    """Until when, and by whom: "returned", "cat (neox.py:21)", "step 7"; "" for what is not there."""
    if holder is None:
        return ""
    if holder.returned:
        return "returned"
    return holder_words(holder) if holder.op else f"step {holder.step:,}"


def change_of_holder(base: Holder | None, head: Holder | None) -> str:
    """What held a tensor and what holds it now, "relu (net.py:3) → returned"; one of them where it is new or
    gone, or where nothing changed."""
    texts = dict.fromkeys(text for holder in (base, head) if (text := holder_text(holder)))
    return " → ".join(texts)


def explanation_summary(diff: Diff, found: Explanation) -> dict[str, Any]:
    """The same for machines; `culprits` and `elsewhere_bytes` sum to `delta_bytes`, exactly."""
    return {
        "sentences": list(story(diff, found)),
        **_moment(diff, found),
        "second_peak": _moment(diff, found.second) if found.second else None,
    }


def _moment(diff: Diff, found: Explanation) -> dict[str, Any]:
    moment = found.moment
    return {
        "delta_bytes": found.delta,
        "base_step": moment.base_step,
        "head_step": moment.head_step,
        "base_bytes": moment.base_bytes,
        "head_bytes": moment.head_bytes,
        "knows_why": found.knows_why,
        "culprits": [_culprit(diff, moment, culprit) for culprit in found.culprits],
        "elsewhere_bytes": found.elsewhere,
    }


def _culprit(diff: Diff, moment: Moment, culprit: Culprit) -> dict[str, Any]:
    return {
        "delta_bytes": culprit.nbytes,
        "cause": culprit.cause.name.lower(),
        "fate": culprit.fate.name.lower() if culprit.fate else None,
        "line": str(culprit.source or ""),
        "words": culprit_words(culprit, diff, moment),
        "buffers": [
            {
                "base": held.base or None,
                "head": held.head or None,
                "delta_bytes": held.delta,
                "base_last": _holder(held.base_holder),
                "head_last": _holder(held.head_holder),
            }
            for held in culprit.buffers
        ],
    }


def _holder(holder: Holder | None) -> dict[str, Any] | None:
    if holder is None:
        return None
    op = holder.op
    return {
        "step": holder.step,
        "op": op.name if op else None,
        "source": str(op.source) if op and op.source else "",
        "returned": holder.returned,
    }
