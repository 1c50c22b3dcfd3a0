"""What a history says, in words: of a change, of its cause, of what is to be looked at."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from memplan_engine.history.alarms import NO_GROWTH, Watched
from memplan_engine.history.blame import Blame
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.history_values import SHORT_HASH, Acknowledgement, HistoryPoint, HistoryRun
from memplan_engine.reporters.diff_culprits import culprit_words, story
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.units import format_bytes, format_signed

MOST_LEFT = 4
GONE = "amended, rebased, or replaced by a forced push"
"""What may have become of a commit that its branch has left."""
DAY, MINUTE = "%Y-%m-%d", "%Y-%m-%d %H:%M"


def date_of(run: HistoryRun, form: str = DAY) -> str:
    """When its commit was made, UTC; where that is not known, when it was recorded."""
    return time_words(run.committed_at or run.recorded_at, form)


def time_words(seconds: int, form: str = DAY) -> str:
    """The day, UTC, of `seconds` since 1970; "" for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return ""


def change_words(change: HistoryChange) -> str:
    """ "demand +4 MiB, packing loss −1 MiB": what of a change there is."""
    packing = change.arena - change.demand
    parts = [f"demand {format_signed(change.demand)}"] * bool(change.demand)
    parts += [f"packing loss {format_signed(packing)}"] * bool(packing)
    before, after = change.before.figures, change.after.figures
    for name, earlier, later in (
        ("weights", before.weights, after.weights),
        ("temporaries", before.temporaries, after.temporaries),
        ("eager peak", before.eager, after.eager),
        ("reserved", before.reserved, after.reserved),
    ):
        if earlier is not None and later is not None and earlier != later:
            parts.append(f"{name} {format_signed(later - earlier)}")
    return ", ".join(parts) or "the bound alone"


def arena_words(change: HistoryChange) -> str:
    """ "arena +4 MiB, 16 MiB → 20 MiB"."""
    before, after = change.before.figures.arena, change.after.figures.arena
    if before == after:
        return f"arena unchanged at {format_bytes(after)}"
    return f"arena {format_signed(after - before)}, {format_bytes(before)} → {format_bytes(after)}"


def cause_sentences(blame: Blame) -> tuple[str, ...]:
    """Why a change is one, a sentence each; one that says why that cannot be told. Where demand and arena
    are the same, what else changed."""
    if not (blame.change.demand or blame.change.arena):
        return (sentence_case(change_words(blame.change)),)
    if blame.diff is None or blame.explanation is None:
        return (sentence_case(f"cause not known: {blame.unknown}"),)
    return tuple(map(sentence_case, story(blame.diff, blame.explanation)))


def short_cause(blame: Blame) -> str:
    """What most of a change comes from, "relu (net.py:67) is larger"; else the cause's first sentence."""
    if blame.diff and blame.explanation and blame.explanation.culprits and blame.change.demand:
        words = culprit_words(blame.explanation.culprits[0], blame.diff, blame.explanation.moment)
        return words.partition("; ")[0]
    return cause_sentences(blame)[0]


def gap_sentence(change: HistoryChange) -> str:
    """That commits between both sides were not recorded, "" where there are none."""
    before, after = change.before.run, change.after.run
    if not (before.commit and after.parent) or before.commit in (after.parent, after.commit):
        return ""
    pair = f"{before.commit[:SHORT_HASH]} {after.commit[:SHORT_HASH]}"
    return f"Commits between the two were not recorded: memplan history bisect {pair} -- FACTORY"


def said_words(said: Acknowledgement) -> str:
    """ "the loss reads it (ann, 2026-11-20)": why a change is meant, who says so, and when."""
    told = filter(None, [said.author, time_words(said.acknowledged_at)])
    return f"{said.reason} ({', '.join(told)})"


def why_meant(change: HistoryChange, meant: Iterable[Acknowledgement]) -> str:
    """Who of `meant` says why `change` is one that is meant, "" for nobody."""
    key = change.after.series, change.after.run.commit
    return next((said_words(said) for said in meant if (said.series, said.commit) == key), "")


def meant_sentence(change: HistoryChange, meant: Iterable[Acknowledgement]) -> str:
    """The same as a sentence."""
    told = why_meant(change, meant)
    return told and f"Acknowledged: {told}"


def growth_sentence(watched: Watched) -> str:
    """What is to be looked at in a series, in a sentence."""
    growth, latest = watched.growth, watched.latest
    arena = f"{latest.series.label} needs {format_bytes(latest.figures.arena)}"
    since = f"since {level_words(growth.before)}"
    if not watched.alarming:
        if watched.level.number == latest.number:
            meant = any(said.commit == latest.run.commit for said in watched.meant)
            told = (
                f", as acknowledged with {level_words(latest)}"
                if meant
                else ": nothing to compare it with yet"
            )
            return arena + told
        if not growth.arena:
            return f"{arena}, unchanged {since}"
        within = f", within the limit of {watched.limit}" if growth.arena > 0 else ""
        return f"{arena}, {format_signed(growth.arena)} {since}{within}"
    told = f"{arena}, {format_signed(growth.arena)} {since} ({change_words(growth)})"
    count = len(watched.open_steps)
    if count:
        return f"{told}: {count:,} change{'s' * (count != 1)} to look at"
    return f"{told}: many small changes, each within the limit of {watched.limit}"


def left_words(watched: Watched) -> str:
    """Which commits are left out since the branch has left them, "" for none."""
    if not watched.left:
        return ""
    named = ", ".join(commit[:SHORT_HASH] for commit in watched.left[:MOST_LEFT])
    count = len(watched.left)
    more = f" and {count - MOST_LEFT:,} more" if count > MOST_LEFT else ""
    verb = "is" if count == 1 else "are"
    return f"{named}{more} {verb} left out: {GONE}"


def limit_words(watched: Watched) -> str:
    """ "12 MiB over the limit of 5 %": whether the latest point keeps to what is allowed since its level."""
    growth, limit = watched.growth, watched.limit
    name = "level" if limit == NO_GROWTH else f"limit of {limit}"
    if not watched.alarming:
        return f"within the {name}"
    before = growth.before.figures
    over = max(growth.demand - limit.allowed_of(before.demand), growth.arena - limit.allowed_of(before.arena))
    return f"{format_bytes(over)} over the {name}"


def level_words(point: HistoryPoint) -> str:
    """ "1f0c2a3b4c5d of 2024-05-02"."""
    return f"{point.run.label} of {date_of(point.run)}"
