"""A plan → what can be done about its peak, each suggestion planned and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, combinations
from typing import Any

from memplan_engine.advice.proposers import PROPOSERS, Propose
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.values import Advice, Candidate, Rejected, Suggestion
from memplan_engine.advice.words import capitalised
from memplan_engine.analysis.buffer_names import buffer_names, short_name
from memplan_engine.analysis.claims import doubt, peak_name
from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.errors import MemplanError
from memplan_engine.formats.importer import Loaded
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import QUICK_SECONDS, make_plan
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.problem import Problem
from memplan_engine.profile import held_bytes, live_at, load_of
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.units import format_bytes
from memplan_engine.verdict import Verdict, doubted
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Edit

DEFAULT_SECONDS = 5.0
"""How long to look for suggestions where nobody says."""
SHARE = 1 / 8
"""What one trial may take of the time that is left, where that is more than QUICK_SECONDS."""
MOST_COMBINED = 4
"""How many of the candidates that save most are combined with one another."""
LEAST_GAIN = 0.001
"""What a suggestion saves at least, a combination beyond its best part, as a share of the arena."""
LITTLE = 0.01
"""The share of the arena below which a saving that keeps every bit stands behind larger ones that do not: a
reader who sees it first looks no further."""
MOST_SECONDS_EACH = 10.0
FIRST_SHARE = 1 / 4
"""What the plan as it is may take, where there is none yet."""

Watch = Callable[[Advice], None]


def advise(
    loaded: Loaded,
    how: Preparation | None = None,
    edits: tuple[Edit, ...] = (),
    *,
    strategy: str = "auto",
    capacity: int | None = None,
    plan: Plan | None = None,
    limits: SolveLimits | None = None,
    watch: Watch | None = None,
    proposers: Iterable[Propose] = PROPOSERS,
) -> Advice:
    """What can be done about the peak of `loaded`, prepared as `how` asks and changed by `edits`.

    Every suggestion was planned by `strategy` with its change and passed the planner's checker, and reuse its
    own; one that saves nothing is none. Savings do not add up: combinations are planned, too, and listed
    where they save more than each of their parts.

    Parameters
    ----------
    capacity: bytes; suggestions then say whether the arena fits into them.
    plan: that of `loaded`, where there is one already; else it is made first.
    limits: of everything together; 5 s by default. When they end, what was found so far is the answer. With
        nodes and without seconds it is the same on any machine.
    watch: is given the advice so far whenever a suggestion is found.

    Raises
    ------
    InputError: what `prepare` and `apply` raise for `how` and `edits`. PlanError: as `make_plan`.
    """
    how = how or Preparation()
    limits = limits or SolveLimits(DEFAULT_SECONDS)
    if plan is None:
        # Before the clock runs: kernels may have to be compiled.
        problem = apply(prepare(loaded, how), edits)
        plan = make_plan(problem, strategy, limits=limits.part(_seconds_each(limits, FIRST_SHARE)))
    situation = Situation(loaded, how, edits, plan)
    with limits.running():
        trials = _Trials(situation, strategy, capacity, limits, watch)
        trials.run(tuple(proposers))
        return trials.advice(complete=not limits.stopped)


@dataclass(slots=True)
class _Trials:
    """Candidates on their way to suggestions; `tried` are the changes of options that have had their turn."""

    situation: Situation
    strategy: str
    capacity: int | None
    limits: SolveLimits
    watch: Watch | None
    found: list[Suggestion] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    tried: dict[frozenset[tuple[str, Any]], Candidate] = field(default_factory=dict)

    def run(self, proposers: tuple[Propose, ...]) -> None:
        """Try everything that is proposed, alone and combined, until the time is up."""
        for candidate in _proposed(proposers, self.situation, self.limits):
            self.attempt(candidate)
        for candidate in self.combined():
            self.attempt(candidate)
        # Of those that keep the bits, if any does.
        best = max(
            (each for each in self.found if each.options),
            key=lambda each: (each.same_bits, each.saved_bytes),
            default=None,
        )
        if best is None:
            return
        # What changes buffers has to be proposed anew for the buffers that there are then.
        changed = self.situation.after(best.plan, best.options, best.edits)
        known = len(self.found)
        for candidate in _proposed(proposers, changed, self.limits):
            if candidate.edits and not candidate.options:
                self.attempt(_joined(_as_candidate(best), candidate))
        # One is enough: they are all the best change of options, and something besides.
        self.found[known:] = sorted(self.found[known:], key=lambda each: each.saved_bytes)[-1:]

    def combined(self) -> Iterator[Candidate]:
        """The candidates that change different options, by twos, then all together; those that save most."""
        single = [each for each in self.tried.values() if len(each.options) == 1]
        most = sorted(single, key=lambda each: -self.saving_of(each))[:MOST_COMBINED]
        single = [each for each in single if each in most]
        for count in range(2, len(single) + 1):
            for parts in combinations(single, count):
                whole = reduce(_joined, parts)
                if len(whole.options) == count and frozenset(whole.options.items()) not in self.tried:
                    yield whole

    def saving_of(self, candidate: Candidate) -> int:
        """The bytes that `candidate` turned out to save by itself."""
        return max((each.saved_bytes for each in self.found if each.options == candidate.options), default=0)

    def attempt(self, candidate: Candidate) -> None:
        """Plan `candidate`; keep it if it saves, else say why not."""
        if self.limits.stopped:
            return
        if not candidate.edits:
            self.tried[frozenset(candidate.options.items())] = candidate
        before = self.situation.plan
        try:
            problem = self.situation.changed(candidate.options, candidate.edits)
            plan = make_plan(problem, self.strategy, limits=self.limits.part(_seconds_each(self.limits)))
        except MemplanError as error:
            self.rejected.append(Rejected(candidate.kinds, candidate.title, str(error)))
            return
        parts = (each.saved_bytes for each in self.found if set(each.kinds) < set(candidate.kinds))
        others = max((each.saved_bytes for each in self.found if _is_part(each, candidate)), default=0)
        least = max(others, *parts, 0) + int(LEAST_GAIN * before.arena_bytes)
        if before.arena_bytes - plan.arena_bytes <= least:
            reason = _why_not(before, plan, bool(candidate.kinds[1:]))
            self.rejected.append(Rejected(candidate.kinds, candidate.title, reason))
            return
        self.found.append(self.suggestion(candidate, plan))
        if self.watch:
            self.watch(self.advice(complete=False))

    def _fits(self, plan: Plan) -> bool | None:
        if self.capacity is None:
            return None
        placed = Verdict.FITS if plan.arena_bytes <= self.capacity else Verdict.DOES_NOT_FIT
        verdict, _ = doubted(placed, doubt(plan.problem))
        return None if verdict is Verdict.UNDECIDED else verdict is Verdict.FITS

    def suggestion(self, candidate: Candidate, plan: Plan) -> Suggestion:
        """`candidate`, which has become `plan`."""
        situation, before = self.situation, self.situation.plan
        return Suggestion(
            candidate.kinds,
            candidate.title,
            plan,
            before.arena_bytes - plan.arena_bytes,
            _peak(before.problem) - _peak(plan.problem),
            self._fits(plan),
            candidate.options,
            candidate.edits,
            replace(situation.how, **candidate.options),
            (*situation.edits, *candidate.edits),
            candidate.same_bits,
            candidate.note,
            candidate.code,
            candidate.parts,
        )

    def advice(self, *, complete: bool) -> Advice:
        """What was found so far: what keeps every bit first, unless it saves little, then the largest saving,
        then the fewest changes."""
        little = int(LITTLE * self.situation.plan.arena_bytes)
        ranked = sorted(
            self.found,
            key=lambda each: (
                not each.same_bits or each.saved_bytes < little,
                -each.saved_bytes,
                len(each.kinds),
            ),
        )
        why = "" if ranked else _why_none(self.situation, self.rejected, complete)
        return Advice(self.situation.plan, self.capacity, tuple(ranked), tuple(self.rejected), complete, why)


def _proposed(
    proposers: tuple[Propose, ...], situation: Situation, limits: SolveLimits
) -> Iterator[Candidate]:
    for propose in proposers:
        if limits.stopped:
            return
        try:
            # One after another: the time may be up between two.
            for candidate in propose(situation):
                yield candidate
                if limits.stopped:
                    break
        except MemplanError:
            continue


def _joined(one: Candidate, other: Candidate) -> Candidate:
    parts = (*_parts(one), *_parts(other))
    return Candidate(
        (*one.kinds, *other.kinds),
        capitalised(f"{', '.join(parts[:-1])}, and {parts[-1]}"),
        {**one.options, **other.options},
        (*one.edits, *other.edits),
        one.same_bits and other.same_bits,
        "; ".join(dict.fromkeys(note for note in (one.note, other.note) if note)),
        tuple(chain(one.code, other.code)),
        parts,
    )


def _parts(candidate: Candidate) -> tuple[str, ...]:
    return candidate.parts or (candidate.title[:1].lower() + candidate.title[1:],)


def _is_part(suggestion: Suggestion, candidate: Candidate) -> bool:
    """Whether `candidate` is that suggestion and more."""
    return suggestion.options.items() <= candidate.options.items() and set(suggestion.edits) <= set(
        candidate.edits
    )


def _as_candidate(suggestion: Suggestion) -> Candidate:
    return Candidate(
        suggestion.kinds,
        suggestion.title,
        suggestion.options,
        suggestion.edits,
        suggestion.same_bits,
        suggestion.note,
        suggestion.code,
        suggestion.parts,
    )


def _seconds_each(limits: SolveLimits, share: float = SHARE) -> float:
    return max(QUICK_SECONDS, min(share * limits.remaining, MOST_SECONDS_EACH))


def _peak(problem: Problem) -> int:
    """Bytes, with the temporaries of ops."""
    load = load_of(problem)
    return held_bytes(problem, load.sections, load.live).peak_bytes


def _why_not(before: Plan, after: Plan, combined: bool) -> str:
    """Why `after`, planned with a change, is no suggestion."""
    if combined:
        return "saves no more than a part of it"
    if (saved := before.arena_bytes - after.arena_bytes) > 0:
        too_little = saved <= int(LEAST_GAIN * before.arena_bytes)
        than = "too little to count" if too_little else "no more than another suggestion does"
        return f"saves {format_bytes(saved)}, {than}"
    if load_of(after.problem).peak < load_of(before.problem).peak:
        lower = format_bytes(load_of(after.problem).peak)
        return f"lowers the peak to {lower}, but no smaller arena was found"
    return f"the peak stays: {_holders(after.problem)}"


def _holders(problem: Problem) -> str:
    """ "pad_4 4.68 MiB and hardtanh_2 4.59 MiB at step 15"."""
    step = load_of(problem).peak_step
    live = live_at(problem, step).tolist()
    names = buffer_names(problem)
    largest = [f"{short_name(names[row])} {format_bytes(int(problem.size[row]))}" for row in live[:3]]
    others = f" and {len(live) - 3} more" if len(live) > 3 else ""
    return f"{', '.join(largest)}{others} at step {step:,}"


def _why_none(situation: Situation, rejected: list[Rejected], complete: bool) -> str:
    problem = situation.problem
    most = peak_name(problem)
    if not len(problem):
        return "There is nothing to place."
    if not complete:
        return "It was stopped before anything that saves was found."
    if isinstance(situation.loaded, Plan):
        return f"A finished plan is not replanned. The {most}: {_holders(problem)}."
    if not isinstance(situation.loaded, Graph):
        what = "A recording" if any(each.maker for each in find_provenance(problem)) else "A list of buffers"
        return f"{what} has no ops that could be rewritten. The {most}: {_holders(problem)}."
    live = live_at(problem, load_of(problem).peak_step)
    if len(live) == 1:
        return f"The {most} is one tensor: {_holders(problem)}."
    if rejected:
        return f"Nothing that was tried lowers the arena: {rejected[0].reason}."
    return f"No op can be rewritten; the {most}: {_holders(problem)}."
