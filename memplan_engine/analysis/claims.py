"""What the figures of a plan are figures of, in words: what is counted, what is left out, what is optimal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memplan_engine.graph import Role, Symbol, storage_bytes, unknown_sizes
from memplan_engine.problem import Problem
from memplan_engine.scope import OF_COMPILED_RUNS, Basis, Scope, assumed_summary, scope_summary, scope_words
from memplan_engine.units import exact, format_bytes, format_percent
from memplan_engine.verdict import EITHER_WAY, Reason, Verdict, doubt_of, verdict_text

if TYPE_CHECKING:
    from memplan_engine.plan import Plan


CELLS = {"GRU", "LSTM", "RNN"}
"""Operators of ONNX that hold the gates of every step: several times what they give, as torch's do."""


_SCRATCH = {
    Scope.WITH_TEMPORARIES: "temporaries",
    Scope.WITH_KERNELS: "temporaries and, calibrated, kernels",
    Scope.PREDICTED_WITH_KERNELS: "calibrated kernels",
    Scope.UNCOMPILED_WITH_KERNELS: "calibrated kernels",
}


_OF_A_GRAPH = (Scope.GRAPH, Scope.WITH_TEMPORARIES, Scope.WITH_KERNELS)
CALLS = {"If", "Loop", "Scan", "SequenceMap"}
"""Operators of ONNX that run graphs of their own."""


def counted(problem: Problem) -> str:
    """Return what figures of `problem` count, which ops hold more than is known, and `remarks` on them."""
    sentence = scope_words(problem.scope)
    if problem.scope is Scope.GRAPH and (cells := sorted(CELLS & _kinds(problem))):
        sentence += f", those of {', '.join(cells)} may be several times as large"
    calls = unknown_insides(problem)
    sentence = f"{sentence}; the insides of {', '.join(calls)} are not planned" if calls else sentence
    return "; ".join((sentence, *remarks(problem)))


def remarks(problem: Problem) -> tuple[str, ...]:
    """Return what figures of `problem` are of besides what they count, a clause each."""
    return remarks_on(problem.basis, problem.origin.graph.symbols if problem.origin else ())


def remarks_on(basis: Basis, symbols: Sequence[Symbol]) -> tuple[str, ...]:
    """Return the remarks of `basis`, and at which values of `symbols` figures are."""
    return (*at_sizes(symbols), *basis.remarks)


def at_sizes(symbols: Sequence[Symbol]) -> tuple[str, ...]:
    """Return at which values of `symbols` figures are, and how to set those that were not set."""
    known = [each for each in symbols if each.hint is not None]
    given, own = ([each for each in known if each.given is was] for was in (True, False))
    clauses = [f"at {_values(given)}"] if given else []
    if own:
        options = " ".join(f"--symbol {each.name}=…" for each in own)
        clauses.append(f"at {_values(own)} unless set ({options})")
    return tuple(clauses)


def _values(symbols: Sequence[Symbol]) -> str:
    return ", ".join(f"{each} = {each.hint:,}" for each in symbols)


def unknown_insides(problem: Problem) -> tuple[str, ...]:
    """Return the kinds of ops that run graphs of their own whose insides are in no figure of `problem`."""
    if problem.origin is None or problem.scope not in _OF_A_GRAPH:
        return ()
    ops = problem.origin.graph.ops
    laid_out = {call for op in ops for call, _ in op.within}
    # torch's operators that call graphs have names without a dot.
    torch = problem.scope is not Scope.GRAPH
    calls = {
        op.kind
        for op in ops
        if op.name not in laid_out and ("." not in op.kind if torch else op.kind in CALLS)
    }
    return tuple(sorted(calls))


def doubt(problem: Problem) -> Reason | None:
    """Return why a run may hold something else than every figure of `problem`; None for no reason.

    With a doubt whatever fits is undecided, and figures are "at least" (`holds_at_least`). With some
    (`EITHER_WAY`) they are no limit either way, and what does not fit is undecided, too.
    """
    found = doubt_of(problem.scope, problem.basis)
    if found is None and unknown_insides(problem):
        found = Reason.UNKNOWN_INSIDE
    if found is None and problem.origin and unknown_sizes(problem.origin.graph):
        found = Reason.UNKNOWN_SIZES
    return found


def holds_at_least(problem: Problem) -> bool:
    """Return whether a run holds what the figures of `problem` count, and may hold more."""
    return doubt(problem) not in (None, *EITHER_WAY)


def is_optimal(plan: Plan) -> bool:
    """Return whether no plan of its run has a smaller arena than `plan`: False where the figures are of a
    part of that run, or of the Python that is compiled."""
    return plan.optimal and doubt(plan.problem) not in (Reason.PARTIAL, Reason.COMPILED)


def is_proved(plan: Plan) -> bool:
    """Return whether `plan` is optimal and nothing is left to doubt: what is drawn green."""
    return plan.optimal and doubt(plan.problem) is None


def arena_name(plan: Plan) -> str:
    """Return the name of the arena's line in a chart."""
    if plan.problem.scope is Scope.PART:
        return "arena of this part"
    return "arena = lower bound" if plan.optimal else "arena"


def peak_name(problem: Problem) -> str:
    """Return the name of the most live bytes of `problem`: of a part of a run they are no peak."""
    return "recorded maximum" if problem.scope is Scope.PART else "peak"


def _kinds(problem: Problem) -> set[str]:
    return {op.kind for op in problem.origin.graph.ops} if problem.origin else set()


def claim_summary(problem: Problem) -> dict[str, str | list[str]]:
    """What the figures of a plan of `problem` count, and what its arena is optimal for if it meets its bound:
    for machines."""
    return {
        **scope_summary(problem.scope, counted(problem)),
        **assumed_summary(problem.basis),
        "optimal_for": optimal_for(problem),
    }


def workspace_name(problem: Problem) -> str:
    """What the scratch of its ops is: temporaries, what kernels take, or workspaces that a file tells of."""
    return _SCRATCH.get(problem.scope, "workspaces")


def left_out(problem: Problem) -> str:
    """How many storages have no place because their sizes depend on the data, and what gives them one; ""
    when none."""
    unknown = unknown_sizes(problem.origin.graph) if problem.origin else {}
    if not unknown:
        return ""
    symbols = sorted(set(unknown.values()))
    values = " ".join(f"--symbol {name}=…" for name in symbols)
    return (
        f"{_storages(len(unknown))} whose size depends on the data: {', '.join(symbols)} "
        f"{'has' if len(symbols) == 1 else 'have'} no value; set one ({values}), or plan a recorded run "
        "(memplan observe)"
    )


def optimal_for(problem: Problem) -> str:
    """What an arena is optimal for when it meets its bound: "the graph's storages"."""
    if problem.scope is Scope.PART:
        return "what was recorded"
    if problem.scope in OF_COMPILED_RUNS:
        return "the eager run, not the compiled one"
    if problem.origin is None:
        listed = problem.scope is Scope.BUFFERS
        return "the buffers listed" if listed else f"what the run allocated{_if_assumed(problem)}"
    qualifier = " of known size" if unknown_sizes(problem.origin.graph) else ""
    return f"the graph's storages{qualifier}{_outside(problem)}{_if_assumed(problem)}"


def _if_assumed(problem: Problem) -> str:
    return " with assumed values" * bool(problem.basis.doubts)


def _outside(problem: Problem) -> str:
    calls = unknown_insides(problem)
    return f" outside {', '.join(calls)}" if calls else ""


def verdict(plan: Plan) -> str:
    """ "optimal" in so many words that nobody takes it for more than it is of; "" where it is not proved."""
    if not is_optimal(plan):
        return ""
    origin = plan.problem.origin
    sizes = " for known sizes" * bool(origin and unknown_sizes(origin.graph))
    return f"arena optimal{sizes}{_outside(plan.problem)}{_if_assumed(plan.problem)}"


def over_bound(plan: Plan) -> str:
    """The verdict, or how far the arena is over its bound: "arena optimal", "0.5 % over bound"."""
    return verdict(plan) or f"{format_percent(plan.gap)} over bound"


def beside(plan: Plan) -> str:
    """What the arena's size does not say: "temporaries inside ops need up to 3 KiB more, outside it"; ""
    where there is nothing of that kind."""
    problem, parts = plan.problem, []
    if plan.workspace_bytes:
        name, most = workspace_name(problem), format_bytes(plan.workspace_bytes)
        parts.append(f"{name} inside ops need up to {most} more, outside it")
    elif problem.scope is Scope.GRAPH:
        parts.append("temporaries inside ops are unknown and not counted")
    if problem.origin and (unknown := unknown_sizes(problem.origin.graph)):
        verb = "is" if len(unknown) == 1 else "are"
        parts.append(f"{_storages(len(unknown))} of unknown size {verb} not counted")
    if calls := unknown_insides(problem):
        parts.append(f"what is inside {', '.join(calls)} is not counted")
    return "; ".join(parts)


def fits_words(plan: Plan, capacity: int) -> str:
    """Return "the arena fits in 4 MiB (4,194,304 B), 0 B to spare", and what lies outside it."""
    words = verdict_text(Verdict.FITS, what="the arena", capacity=exact(capacity))
    sentence = f"{words}, {exact(capacity - plan.arena_bytes)} to spare"
    parts = []
    if plan.workspace_bytes:
        over = ", more than that" if plan.total_bytes > capacity else ""
        name, most = workspace_name(plan.problem), format_bytes(plan.workspace_bytes)
        parts.append(
            f"{name} inside ops, up to {most} (reserved side by side {exact(plan.total_bytes)}{over})"
        )
    origin = plan.problem.origin
    if origin and (constants := storage_bytes(origin.graph, Role.CONSTANT)):
        parts.append(f"weights, {format_bytes(constants)}")
    return f"{sentence}; outside it: {'; '.join(parts)}" if parts else sentence


def _storages(count: int) -> str:
    return f"{count} storage{'s' * (count != 1)}"
