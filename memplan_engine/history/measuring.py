"""What a graph is at one commit: its plan, made so that every machine makes the same, and its figures."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.errors import InputError
from memplan_engine.formats.importer import Loaded
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.graph import Graph
from memplan_engine.history.graph_blobs import digest_of
from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryFigures,
    HistorySeries,
    NewPoint,
    Pairs,
    pairs,
)
from memplan_engine.lifetimes import Unread
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import PLANNING_OPTIONS, Preparation, prepare
from memplan_engine.recordings.allocator_recording import Recording
from memplan_engine.recordings.cost import memory_over_time
from memplan_engine.recordings.observation import Observation, observed_peak
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.validate import validate_plan

NODES = 20_000
"""What a search may visit: enough for most graphs to be proved, a few seconds where they are not."""


def history_limits(nodes: int = NODES, seed: int = 0) -> SolveLimits:
    """Limits with which a problem gets the same plan on any machine: one thread, `nodes`, no clock.

    Raises
    ------
    InputError: fewer than no nodes.
    """
    if nodes < 0:
        raise InputError("limits", "nodes", str(nodes), "0 or more")
    return SolveLimits(seed=seed, threads=1, nodes=nodes)


def reproducible_plan(
    graph: Graph, strategy: str = "auto", how: Preparation | None = None, *, nodes: int = NODES, seed: int = 0
) -> Plan:
    """The plan of `graph` that every machine makes; the parameters and errors of `measure_graph`."""
    problem = prepare(graph, how or Preparation(), graph.name)
    return make_plan(problem, strategy, limits=history_limits(nodes, seed))


def measure_graph(
    graph: Graph,
    *,
    project: str = "",
    model: str = "",
    variant: str = "",
    strategy: str = "auto",
    how: Preparation | None = None,
    nodes: int = NODES,
    seed: int = 0,
    eager: Observation | Recording | None = None,
) -> NewPoint:
    """Plan `graph` and give what a store keeps of it: the same each time and on each machine.

    Parameters
    ----------
    project: what the series is of.
    model: what it is called; as the graph unless given.
    variant: what tells it from others of the model.
    strategy: who plans.
    how: how the graph becomes a problem; part of the series, as `nodes` and `seed` are.
    nodes: what the search may spend.
    seed: how it draws.
    eager: a run without a plan, for its peak; a recording also knows what its allocator reserved.

    Raises
    ------
    InputError, PlanError: what `prepare` and `make_plan` raise.
    """
    how = how or Preparation()
    plan = reproducible_plan(graph, strategy, how, nodes=nodes, seed=seed)
    series = series_of(project, model or graph.name, variant, strategy, how, nodes, seed)
    return _point(series, plan, graph, eager)


def series_of(
    project: str, model: str, variant: str, strategy: str, how: Preparation, nodes: int = NODES, seed: int = 0
) -> HistorySeries:
    """The series to which a graph belongs that is planned so."""
    return HistorySeries(project, model, variant, strategy, series_options(how, nodes, seed))


def measure_loaded(
    loaded: Loaded,
    *,
    project: str = "",
    model: str = "",
    variant: str = "",
    strategy: str | None = None,
    how: Preparation | None = None,
    nodes: int = NODES,
    seed: int = 0,
    eager: Observation | Recording | None = None,
) -> NewPoint:
    """As `measure_graph`, of whatever a file holds. A finished plan is kept as it is unless a `strategy` is
    asked for; of buffers without a graph figures alone are kept.

    Raises
    ------
    InputError, PlanError: what `measure_graph` raises; a plan that is not valid.
    """
    how = how or Preparation()
    if isinstance(loaded, Graph):
        return measure_graph(
            loaded, project=project, model=model, variant=variant, strategy=strategy or "auto", how=how,
            nodes=nodes, seed=seed, eager=eager,
        )  # fmt: skip
    if isinstance(loaded, Plan) and strategy is None:
        report = validate_plan(loaded, replay=False)
        if not report.valid:
            name = loaded.problem.name
            raise InputError(name, "", report.violations[0].message, "a plan that is valid")
        plan, options = loaded, pairs({})
    else:
        problem = prepare(loaded, how, model)
        plan = make_plan(problem, strategy or "auto", limits=history_limits(nodes, seed))
        options = series_options(how, nodes, seed)
    origin = plan.problem.origin
    series = HistorySeries(project, model or plan.problem.name, variant, plan.strategy, options)
    return _point(series, plan, origin.graph if origin else None, eager)


def plan_again(graph: Graph, series: HistorySeries) -> Plan:
    """The plan of `graph` as `series` has its graphs planned.

    Raises
    ------
    InputError: an option of the series that was a file; and what `measure_graph` raises.
    """
    told = dict(series.options)
    limits = history_limits(int(told.get("nodes", NODES)), int(told.get("seed", 0)))
    problem = prepare(graph, preparation_of(series), graph.name)
    known = series.strategy if series.strategy in known_strategies() else "auto"
    return make_plan(problem, known, limits=limits)


def _point(
    series: HistorySeries, plan: Plan, graph: Graph | None, eager: Observation | Recording | None
) -> NewPoint:
    data = b"" if graph is None else dumps(graph)
    prints = Fingerprints(
        graph=digest_of(data) if graph else "",
        structure=structure_of(graph) if graph else "",
        problem=plan.problem.fingerprint,
        plan=_digest_of_plan(plan),
    )
    return NewPoint(series, _figures(plan, eager), prints, data, plan.nodes, plan.cut_short)


def structure_of(graph: Graph) -> str:
    """SHA-256, in hexadecimal, over `graph` without the lines of source that its ops come from: the same for
    two commits between which lines have moved and the model has not changed."""
    bare = replace(graph, ops=tuple(replace(op, source=None) for op in graph.ops))
    return digest_of(dumps(bare))


def _figures(plan: Plan, eager: Observation | Recording | None) -> HistoryFigures:
    figures = figures_of(plan)
    peak, reserved = _measured(eager)
    return HistoryFigures(
        arena=figures.arena,
        demand=figures.demand,
        bound=figures.bound,
        bound_kind=figures.bound_kind,
        weights=figures.constants,
        temporaries=figures.workspace,
        peak_op=figures.peak_op,
        eager=peak,
        reserved=reserved,
    )


def _measured(eager: Observation | Recording | None) -> tuple[int | None, int | None]:
    """The most bytes live and the most reserved, None for what is not known."""
    if eager is None:
        return None, None
    if isinstance(eager, Observation):
        return observed_peak(eager)[0], None
    over_time = memory_over_time(eager)
    reserved = int(over_time.reserved.max(initial=0)) if over_time.knows_reserved else None
    return int(over_time.live.max(initial=0)), reserved


def series_options(how: Preparation, nodes: int, seed: int) -> Pairs:
    """The options of a series: what was asked for beyond the defaults, as text, with the limits."""
    asked: dict[str, object] = {"nodes": nodes, "seed": seed}
    for option in PLANNING_OPTIONS.values():
        if option.asked(how):
            asked[option.name] = _text(getattr(how, option.name))
    return pairs(asked)


def preparation_of(series: HistorySeries) -> Preparation:
    """How the graphs of `series` become problems; raises InputError for an option that was a file."""
    values: dict[str, Any] = {}
    for name, text in series.options:
        option = PLANNING_OPTIONS.get(name)
        if option is None:
            continue
        if name == "symbols":
            sizes = (pair.partition("=") for pair in text.split(","))
            values[name] = tuple((symbol, int(size)) for symbol, _, size in sizes)
        elif isinstance(option.default, bool):
            values[name] = text == str(True)
        elif isinstance(option.default, Unread):
            values[name] = Unread(text)
        elif Path in get_args(option.kind):
            expected = "options that a store keeps whole: of a file it has the digest"
            raise InputError(series.label, option.flag, f"a file with the digest {text}", expected)
        else:
            values[name] = int(text)
    return Preparation(**values)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{name}={size}" for name, size in value)
    # Where a file lies is another matter on each machine.
    return digest_of(value.read_bytes())[:16] if isinstance(value, Path) else str(value)


def _digest_of_plan(plan: Plan) -> str:
    return hashlib.sha256(plan.offsets.tobytes()).hexdigest()
