"""Sentences about a model held against what it may need, for a terminal, a comment and a failing test."""

from __future__ import annotations

from memplan_engine.checks.ceilings import NO_CEILINGS
from memplan_engine.checks.model_check import Excess, ModelCheck
from memplan_engine.checks.peak_holdings import Grown, Holding
from memplan_engine.diffing.culprits import explain
from memplan_engine.reporters.diff_culprits import line_text, story
from memplan_engine.reporters.diff_words import change, verdict
from memplan_engine.reporters.peak_report import headline
from memplan_engine.units import exact, format_bytes, format_exactly, format_signed


def excess_words(excess: Excess) -> str:
    """ "arena 61 MiB (63,963,136 B) is 9 MiB above the most allowed, 52 MiB"."""
    above, most = format_bytes(excess.nbytes - excess.most), format_exactly(excess.most)
    return f"{excess.what} {exact(excess.nbytes)} is {above} above the most allowed, {most}"


def holding_words(holding: Holding) -> str:
    """ "h.*.mlp · gelu (12 buffers, model.py:67)"."""
    parts = [f"{holding.count:,} buffers"] if holding.count > 1 else []
    parts += [line_text(holding.source)] if holding.source else []
    return f"{holding.name} ({', '.join(parts)})" if parts else holding.name


def grown_words(grown: Grown) -> str:
    """ "+8 MiB at the peak: attn · softmax (model.py:88), not there before"."""
    before = f"{format_bytes(grown.before)} before" if grown.before else "not there before"
    return f"{format_signed(grown.delta)} at the peak: {holding_words(grown.holding)}, {before}"


def peak_words(checked: ModelCheck) -> str:
    """What the peak is made of, in a sentence."""
    return headline(checked.peak, checked.plan.problem)


def cause_words(checked: ModelCheck) -> tuple[str, ...]:
    """Why it needs another amount of memory than its base, a sentence each; none without a base."""
    return () if checked.diff is None else story(checked.diff, explain(checked.diff))


def growth_words(checked: ModelCheck) -> str:
    """What became of the arena: "+8 MiB (+15.4 %)", "unchanged", "" without a base."""
    if checked.base is None:
        return "not compared" if checked.remark else ""
    before, now = checked.base.arena_bytes, checked.figures.arena
    return change(before, now) if before != now else "unchanged"


def verdict_word(checked: ModelCheck) -> str:
    """ "fits", "too large", "grew", "new" where it is not at the base, or "" where nothing is asked of it."""
    if checked.exceeded:
        return "too large"
    if checked.grew:
        return "grew"
    if checked.ceilings != NO_CEILINGS or (checked.limit and checked.base):
        return "fits"
    return "new" if checked.limit and checked.remark else ""


def sentences(checked: ModelCheck) -> tuple[str, ...]:
    """All that is to be said of it: what it passes, why it changed, what its peak is made of where it fails,
    why it is not compared."""
    said = [excess_words(each) for each in checked.exceeded]
    if checked.diff is not None and not checked.diff.same:
        if checked.limit is not None:
            said.append(verdict(checked.diff, checked.limit))
        said += cause_words(checked)
    elif checked.exceeded:
        said.append(peak_words(checked))
    return (*said, *([checked.remark] if checked.remark else []))
