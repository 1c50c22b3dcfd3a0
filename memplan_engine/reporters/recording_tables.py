"""Recordings: as plain values for machines, as Rich renderables and words for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.analysis.claims import counted
from memplan_engine.callers import Stacks
from memplan_engine.recordings.allocator_recording import (
    Action,
    Recording,
    Snapshot,
    held,
    partial_words,
    pool_text,
    pools,
    streams,
)
from memplan_engine.recordings.cost import Cost, Group, Moment, OutOfMemory, thinned
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.reporters.rich_tables import folded, label_table, make_table, numbers, paths, plain_text
from memplan_engine.scope import Scope, assumed_summary, scope_summary
from memplan_engine.units import exact, format_bytes, format_percent, format_seconds

MOST_GROUPS = 10
MOST_FAILURES = 5
MOST_POINTS = 2_000


def cost_summary(snapshot: Snapshot, cost: Cost) -> dict[str, Any]:
    """Return what was recorded and what it cost: exact bytes; step k is after the k-th event.

    For a partial recording figures are lower limits, and what was never needed is None.
    """
    return {
        "file": snapshot.name,
        **scope_summary(cost.problem.scope, counted(cost.problem)),
        **assumed_summary(cost.problem.basis),
        "devices": [_device(recording) for recording in snapshot.recordings],
        "device": cost.recording.device,
        "partial": list(cost.recording.partial),
        "buffers": len(cost.problem),
        "steps": cost.problem.steps,
        "seconds": cost.seconds,
        "older_than_recording": cost.older,
        "alive_at_end": cost.younger,
        "unmatched_events": cost.unmatched,
        "reserved_is_recorded": cost.knows_reserved,
        "peak_live": _moment(cost.peak),
        "peak_reserved": _moment(cost.height),
        "fragmentation_bytes": cost.fragmentation,
        "lower_bound_bytes": cost.bound.nbytes,
        "planned_arena_bytes": cost.plan.arena_bytes,
        "planned_by": cost.plan.strategy,
        "saved_bytes": cost.saved,
        "over_time": _over_time(cost),
        "out_of_memory": [_failure(failure, cost.recording.stacks) for failure in cost.failures],
    }


def _over_time(cost: Cost) -> dict[str, list[int]] | None:
    """From each step to the next the most bytes, MOST_POINTS steps at most."""
    if cost.over_time is None:
        return None
    names = ("step", "live_bytes", "reserved_bytes")
    return {
        name: column.tolist()
        for name, column in zip(names, thinned(cost.over_time, MOST_POINTS), strict=True)
    }


def _device(recording: Recording) -> dict[str, Any]:
    return {
        "device": recording.device,
        "events": len(recording.events),
        "peak_reserved_bytes": held(recording)[0],
        "allocated_bytes": held(recording)[1],
        "streams": streams(recording),
        "pools": [list(pool) for pool in recording.pools],
        "segments": len(recording.segments),
    }


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "step": moment.step,
        "live_bytes": moment.live,
        "reserved_bytes": moment.reserved,
        "callers": [_group(group) for group in moment.groups],
    }


def _group(group: Group) -> dict[str, Any]:
    caller = group.caller
    return {
        "caller": caller.label,
        "kind": caller.kind,
        "kinds": list(group.kinds),
        "source": str(caller.source or ""),
        "buffers": group.count,
        "bytes": group.nbytes,
    }


def _failure(failure: OutOfMemory, stacks: Stacks) -> dict[str, Any]:
    return {
        "asked_by": stacks.caller(failure.stack).label,
        "stack": [str(frame) for frame in stacks.frames_of(failure.stack)],
        "asked_bytes": failure.asked,
        "device_free_bytes": failure.device_free,
        "unused_bytes": failure.moment.unused,
        "fits_unused": failure.fits_unused,
        **_moment(failure.moment),
    }


def cost_tables(snapshot: Snapshot, cost: Cost, every_row: bool = False) -> list[RenderableType]:
    """Each failure, the figures, and what the peak is made of by line of code; MOST_GROUPS lines of each
    unless `every_row`, which has the call stacks of the failures, too."""
    parts: list[RenderableType] = []
    for failure in cost.failures if every_row else cost.failures[:MOST_FAILURES]:
        parts += _out_of_memory(cost, failure, every_row)
    more = len(cost.failures) - MOST_FAILURES
    if more > 0 and not every_row:
        parts.append(plain_text(f"and {more:,} more failures (--all)\n"))
    moment = "when most of what was recorded was live" if cost.recording.partial else "live at the peak"
    title = f"{moment}, {format_bytes(cost.peak.live)} at step {cost.peak.step:,}"
    figures = (_figures(snapshot, cost), plain_text(_proved(cost)))
    same = next((each.moment for each in cost.failures[:1] if each.moment.groups == cost.peak.groups), None)
    if same is not None:
        return [*parts, *figures, plain_text(f"{title}: the same as at step {same.step:,}, above")]
    return [*parts, *figures, _groups(title, cost.peak, every_row)]


def _figures(snapshot: Snapshot, cost: Cost) -> Table:
    peak, recording = cost.peak, cost.recording
    saved = ""
    if cost.knows_reserved and cost.saved is not None:
        words = "less" if cost.saved >= 0 else "more"
        saved = f", {format_bytes(abs(cost.saved))} {words} than peak reserved"
    partial = recording.partial
    rows = [
        ("recorded", _recorded(cost)),
        *partial_rows(recording),
        ("buffers", _counts(cost)),
        ("live, at least" if partial else "peak live bytes", f"{exact(peak.live)} at step {peak.step:,}"),
        *_reserved(cost),
        ("lower bound", f"at least {exact(cost.bound.nbytes)}"),
        (
            "arena of this part" if partial else "planned arena",
            f"{exact(cost.plan.arena_bytes)} ({cost.plan.strategy}){saved}",
        ),
        *([("out of memory", f"{len(cost.failures):,} ×")] if cost.failures else []),
        *([("unmatched", f"{cost.unmatched:,} events (lost frees)")] if cost.unmatched else []),
        *_other_devices(snapshot, recording),
        *([("counted", counted(cost.problem))] if recording.source is not Scope.EAGER else []),
    ]
    return label_table(rows)


def _proved(cost: Cost) -> str:
    """Return the certificate of the plan, or what is not known of a part of a run."""
    if cost.recording.partial:
        return "a part of a run: what the run needed at most is not known"
    return certificate(cost.plan)


def _reserved(cost: Cost) -> list[tuple[str, str]]:
    height = cost.height
    label = "reserved, at least" if cost.recording.partial else "peak reserved"
    if not cost.knows_reserved:
        return [(label, "not recorded")]
    if cost.fragmentation is None:
        live = format_bytes(height.live)
        return [(label, f"{exact(height.reserved)} at step {height.step:,}, when {live} were live")]
    share = format_percent(cost.fragmentation / height.reserved)
    peak = f"{exact(height.reserved)} at step {height.step:,}, when {format_bytes(height.live)} were live"
    return [
        ("peak reserved", peak),
        ("fragmentation", f"{exact(cost.fragmentation)}, {share} of the reserved bytes never needed"),
    ]


def _recorded(cost: Cost) -> str:
    events = cost.recording.events
    seconds = f" in {format_seconds(cost.seconds)}" if cost.seconds else ""
    shared = int((events["action"] == Action.OTHER).sum())
    left_out = f", {shared:,} of them left out" if shared else ""
    return f"{cost.recording.name}: {len(events):,} events{seconds}{left_out}, device {cost.recording.device}"


def _counts(cost: Cost) -> str:
    counts = f"{len(cost.problem):,}, {cost.older:,} of them older than the recording"
    return f"{counts}, {cost.younger:,} live at its end"


def _other_devices(snapshot: Snapshot, chosen: Recording) -> list[tuple[str, str]]:
    """The devices beside the chosen one, and the streams of it, where there are several."""
    rows = [
        (
            f"device {recording.device}",
            f"{len(recording.events):,} events, {format_bytes(held(recording)[0])} reserved"
            + ", partial" * bool(recording.partial),
        )
        for recording in snapshot.recordings
        if recording.device != chosen.device
    ]
    ids = streams(chosen)
    if len(ids) > 1:
        memory = chosen.events[chosen.rows(Action.ALLOC)]
        texts = [
            f"{stream} ({format_bytes(int(memory['size'][memory['stream'] == stream].sum()))})"
            for stream in ids
        ]
        rows.append(("streams", f"{', '.join(texts)} allocated"))
    if len(several := pools(chosen)) > 1:
        rows.append(("pools", ", ".join(map(pool_text, several))))
    return rows


def _out_of_memory(cost: Cost, failure: OutOfMemory, every_row: bool) -> list[RenderableType]:
    stacks = cost.recording.stacks
    asked, held, verdict = failure_words(failure, stacks)
    calls = [f"    {frame}" for frame in stacks.frames_of(failure.stack)] if every_row else []
    return [
        plain_text(asked, "bold"),
        *(plain_text(f"  {line}") for line in (held, verdict)),
        *map(plain_text, ["  call stack of the request, innermost call first", *calls] if calls else []),
        _groups("live then", failure.moment, every_row),
        plain_text(""),
    ]


def _groups(title: str, moment: Moment, every_row: bool) -> Table:
    columns = ("allocated by", *numbers("buffers", "size", "share"), *folded("kind"), *paths("source"))
    shown: Sequence[Group] = moment.groups if every_row else moment.groups[:MOST_GROUPS]
    rows = (
        (
            group.caller.label,
            f"{group.count:,}",
            format_bytes(group.nbytes),
            share_text(group.nbytes, moment),
            kinds_text(group),
            str(group.caller.source or ""),
        )
        for group in shown
    )
    hidden = moment.groups[len(shown) :]
    rest: tuple[str, ...] = ()
    if hidden:
        nbytes, count = sum(group.nbytes for group in hidden), sum(group.count for group in hidden)
        rest = (
            f"and {len(hidden)} more lines",
            f"{count:,}",
            format_bytes(nbytes),
            share_text(nbytes, moment),
        )
    return make_table(columns, rows, title, rest)


def failure_words(failure: OutOfMemory, stacks: Stacks) -> tuple[str, str, str]:
    """A request that failed: who asked for how much, what was there, and whether that was enough."""
    moment = failure.moment
    verdict = (
        "enough bytes were unused, but not contiguous: fragmentation"
        if failure.fits_unused
        else "not enough bytes were unused: too much was live"
    )
    place = f" by {stacks.caller(failure.stack).label}" if failure.stack >= 0 else ""
    return (
        f"out of memory at step {moment.step:,}: {exact(failure.asked)} requested{place}",
        f"{held_words(moment)}, {format_bytes(failure.device_free)} free on the device",
        verdict,
    )


def partial_rows(recording: Recording) -> list[tuple[str, str]]:
    """Return why a recording is partial, and the totals of its file, which count memory that it does not
    name; nothing for a whole one."""
    if not recording.partial:
        return []
    rows = [("partial", partial_words(recording.partial))]
    if recording.allocated is not None:
        before, most = int(recording.allocated[0]), int(recording.allocated.max())
        told = f"{format_bytes(before)} allocated before its first event, {format_bytes(most)} at most since"
        rows.append(("totals of the file", told))
    return rows


def held_words(moment: Moment) -> str:
    """Return what was live, reserved and neither."""
    return (
        f"{format_bytes(moment.live)} live, {format_bytes(moment.reserved)} reserved, "
        f"{format_bytes(moment.unused)} of it unused"
    )


def most_words(moment: Moment) -> str:
    """Return who holds most of it; "" where nothing is live."""
    if not moment.groups:
        return ""
    group = moment.groups[0]
    return (
        f"most of it is held by {group.caller.label}: {format_bytes(group.nbytes)}, "
        f"{share_text(group.nbytes, moment)} in {group.count:,} buffer{'s' * (group.count != 1)}"
    )


def kinds_text(group: Group) -> str:
    """The operation with the most bytes, and how many others there are."""
    more = len(group.kinds) - 1
    return group.caller.kind + (f" and {more} more" if more > 0 else "")


def share_text(nbytes: int, moment: Moment) -> str:
    """Return the share of `nbytes` in all that is live."""
    return format_percent(nbytes / moment.live) if moment.live else "none"
