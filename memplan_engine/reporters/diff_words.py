"""What a diff says, in sentences and pairs of words and bytes, for whatever shows them."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.analysis.buffer_names import names_of_ops, op_names
from memplan_engine.analysis.claims import counted, workspace_name
from memplan_engine.analysis.provenance import ops_at
from memplan_engine.diffing.moment import Footing
from memplan_engine.diffing.regression import Change, Diff, Limit
from memplan_engine.diffing.rewritten import RewrittenOp, Rewrote, rewritten_ops
from memplan_engine.diffing.rows import DiffRow
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.units import count_of, format_bytes, format_percent, format_signed

MOST_OPS = 3
WITHOUT_OPS = {
    Footing.SAME_OP: "where the same buffer starts",
    Footing.SAME_STRETCH: "the fullest step between the same starts",
    Footing.NOTHING: "no buffer is matched: the peaks themselves",
}
"""What a footing is called where ops are not known."""

OTHER_PEAK = "the {}'s peak is at another step"


def sentence_case(words: str) -> str:
    """A sentence as it stands by itself: "Peak unchanged at 5 MiB."."""
    return f"{words[:1].upper()}{words[1:]}."


def change(before: int, after: int) -> str:
    """The difference, with its share of what was: "+1 KiB (+50.0 %)"."""
    delta = after - before
    if not delta or not before:
        return format_signed(delta)
    return f"{format_signed(delta)} ({'+' * (delta > 0)}{format_percent(delta / before)})"


def headline(diff: Diff) -> str:
    """One line: what became of the arena, and of all with what ops hold beside it."""
    arena = _changed("arena", diff.base.arena_bytes, diff.head.arena_bytes)
    if not diff.has_workspaces:
        return arena
    return f"{arena}; {_changed('with workspace', diff.base.total_bytes, diff.head.total_bytes)}"


def _changed(label: str, before: int, after: int) -> str:
    if before == after:
        return f"{label} unchanged: {format_bytes(before)}"
    return f"{label} {change(before, after)}: {format_bytes(before)} → {format_bytes(after)}"


def figures(diff: Diff) -> tuple[tuple[str, int, int], ...]:
    """The rows of the headline's table: what, bytes in base, bytes in head. Arena = demand + packing loss;
    where ops hold anything beside the arena, total = arena + workspace."""
    arena = diff.base.arena_bytes, diff.head.arena_bytes
    demand = diff.base_load.peak, diff.head_load.peak
    return (
        ("arena", *arena),
        ("demand", *demand),
        ("packing loss", arena[0] - demand[0], arena[1] - demand[1]),
        *_workspaces(diff),
    )


def _workspaces(diff: Diff) -> tuple[tuple[str, int, int], ...]:
    if not diff.has_workspaces:
        return ()
    return (
        ("workspace", diff.base.workspace_bytes, diff.head.workspace_bytes),
        ("total", diff.base.total_bytes, diff.head.total_bytes),
    )


def counted_sentences(diff: Diff) -> tuple[str, ...]:
    """What the figures count: once where both sides count the same, else for each."""
    base, head = counted(diff.base.problem), counted(diff.head.problem)
    return (f"counted: {base}",) if base == head else (f"counted in base: {base}", f"counted in head: {head}")


def reasons(diff: Diff) -> tuple[tuple[str, int], ...]:
    """What Δdemand is made of, bytes each; together they are Δdemand. What adds nothing is left out."""
    other = "head" if diff.demand_delta < 0 else "base"
    parts = [(str(cause), nbytes) for cause, nbytes in diff.causes.items()]
    parts.append((OTHER_PEAK.format(other), diff.elsewhere))
    return tuple((what, nbytes) for what, nbytes in parts if nbytes)


def peak_sentence(diff: Diff) -> str:
    """Whether the peak that demand is moved, and from where to where; where the peak is with the scratch of
    ops, if they have any."""
    base = place(diff.base.problem, diff.base_load.peak_step)
    head = place(diff.head.problem, diff.head_load.peak_step)
    peak = "graph peak" if diff.has_workspaces else "peak"
    if diff.head_moment.footing is Footing.NOTHING:
        sentence = f"the {peak}s are unrelated"
    else:
        sentence = f"the {peak} moved" if diff.peak_moved else f"the {peak} has not moved"
    return f"{sentence}: {base} in base, {head} in head{_peaks_with_scratch(diff)}"


def _peaks_with_scratch(diff: Diff) -> str:
    if not diff.has_workspaces:
        return ""
    base, head = (
        f"{format_bytes(held.peak_bytes)} at {place(plan.problem, held.peak_step)}"
        for plan, held in ((diff.base, diff.base_held), (diff.head, diff.head_held))
    )
    return f"; with {workspace_name(diff.head.problem)} {base} in base, {head} in head"


def moment_sentence(diff: Diff) -> str:
    """Which two steps are compared to explain Δdemand, and why these."""
    moment = diff.moment
    base = f"{place(diff.base.problem, moment.base_step)} of base ({format_bytes(moment.base_bytes)})"
    head = f"{place(diff.head.problem, moment.head_step)} of head ({format_bytes(moment.head_bytes)})"
    if diff.demand_delta < 0:
        return f"at the base's peak: {base} beside {head}, {_footing(diff)}"
    return f"at the head's peak: {head} beside {base}, {_footing(diff)}"


def _footing(diff: Diff) -> str:
    """Why these two steps: by ops, or, where a side has none, by the buffers that start."""
    sides = (diff.base.problem, diff.head.problem)
    knows_ops = all(problem.origin is not None for problem in sides)
    return str(diff.moment.footing) if knows_ops else WITHOUT_OPS[diff.moment.footing]


def place(problem: Problem, step: int) -> str:
    """ "step 12", with the ops that run there: "step 12 (h.0.mlp.act · gelu)"."""
    ops = [op_names(problem)[op.name] for op in ops_at(problem, step)]
    listed = ", ".join([*ops[:MOST_OPS], *(["…"] if len(ops) > MOST_OPS else [])])
    return f"step {step:,} ({listed})" if listed else f"step {step:,}"


def names(row: DiffRow) -> tuple[str, str]:
    """What people call a buffer, and its name in the graph; of each both where it has two."""
    return _both(row.base_label, row.head_label), _both(row.base, row.head)


def _both(base: str, head: str) -> str:
    return f"{base} → {head}" if base and head and base != head else head or base


def lifetimes(row: DiffRow) -> str:
    """The steps in which a buffer is live, first and last: "3–7", "3–7 → 4–40"."""
    spans = [life for life in (row.base_lifetime, row.head_lifetime) if life is not None]
    return " → ".join(dict.fromkeys(f"{start}–{end - 1}" for start, end in spans))


def matched_sentence(diff: Diff) -> str:
    """How many buffers have a counterpart."""
    pairs, counts = len(diff.matching.pairs[0]), (len(diff.base.problem), len(diff.head.problem))
    shares = f"{format_percent(diff.share)}, {format_percent(diff.bytes_share)} of the bytes"
    return f"{pairs:,} buffers matched, of {counts[0]:,} in base and {counts[1]:,} in head ({shares})"


def counts_sentence(diff: Diff) -> str:
    """How many buffers changed how: "2 only in head, 1 longer-lived"."""
    counts = [f"{count:,} {kind}" for kind, count in diff.counts.items() if count and kind is not Change.SAME]
    return ", ".join(counts) or "no buffer changed"


def warning(diff: Diff) -> str:
    """What has to be said of plans of two different things, "" for plans of the same."""
    if diff.related:
        return ""
    return (
        f"these look like two different models: only {format_percent(diff.share)} of the buffers have a "
        "counterpart, so per-buffer results are not meaningful"
    )


def notes(diff: Diff) -> tuple[str, ...]:
    """What makes the two plans, or their packing losses, hard to compare, a sentence each."""
    sentences = []
    if not diff.same_scope:
        sentences.append("base and head do not count the same: compare their arenas, not their totals")
    if diff.base.strategy != diff.head.strategy:
        sentences.append(f"base was placed by {diff.base.strategy}, head by {diff.head.strategy}")
    for side, plan in (("base", diff.base), ("head", diff.head)):
        if plan.cut_short:
            sentences.append(f"the search for {side} was cut short: its packing loss may not be the least")
    return tuple(sentences)


def verdict(diff: Diff, limit: Limit | None) -> str:
    """Whether the head passes the limit; "" without one."""
    if limit is None:
        return ""
    allowed = f"{limit} ({format_bytes(limit.allowed(diff))})" if limit.percent is not None else str(limit)
    if limit.exceeded(diff):
        return f"regression: {format_signed(limit.growth(diff))} is above the limit of {allowed}"
    return f"no regression: {format_signed(limit.growth(diff))} is within the limit of {allowed}"


def rewritten_of(diff: Diff) -> tuple[RewrittenOp, ...]:
    """The ops that a rewrite changed between both sides."""
    return rewritten_ops(diff.base, diff.head)


def rewrite_sentence(diff: Diff, rows: Sequence[RewrittenOp]) -> str:
    """ "the same 466 ops, rewritten: 16 moved, 98 written in place"; "" where nothing is."""
    if not rows or diff.head.problem.origin is None:
        return ""
    counts = ((what, sum(row.what is what for row in rows)) for what in Rewrote)
    told = ", ".join(f"{count:,} {what}" for what, count in counts if count)
    return f"the same {count_of(len(diff.head.problem.origin.graph.ops), 'op')}, rewritten: {told}"


def rewrite_rows(head: Plan, rows: Sequence[RewrittenOp]) -> list[dict[str, str | int]]:
    """A row an op: what became of it, its name, its step before and after, what it makes, where it stands."""
    origin = head.problem.origin
    labels = names_of_ops(origin.graph) if origin else {}
    return [
        {
            "what": str(row.what),
            "op": labels.get(row.op.name, row.op.name),
            "in graph": row.op.name,
            "kind": row.op.kind,
            "step before": row.before,
            "step after": row.after,
            "bytes": row.nbytes,
            "source": str(row.op.source or ""),
        }
        for row in rows
    ]
