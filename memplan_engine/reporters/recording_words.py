"""What a recording says of a moment, in words: for the command line and for the page."""

from __future__ import annotations

from memplan_engine.callers import Stacks
from memplan_engine.recordings.allocator_recording import Recording, partial_words
from memplan_engine.recordings.cost import Group, Moment, OutOfMemory
from memplan_engine.units import exact, format_bytes, format_percent


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
    """What was live, reserved and neither."""
    return (
        f"{format_bytes(moment.live)} live, {format_bytes(moment.reserved)} reserved, "
        f"{format_bytes(moment.unused)} of it unused"
    )


def most_words(moment: Moment) -> str:
    """Who holds most of it; "" where nothing is live."""
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
    """What `nbytes` are of all that is live."""
    return format_percent(nbytes / moment.live) if moment.live else "none"
