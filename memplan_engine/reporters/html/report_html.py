"""A plan as one HTML file that needs nothing else: chart, profile, tables and where it comes from.

The page may load nothing and run no script but its own, which its Content-Security-Policy names by hash.
Texts of files reach it escaped, or as data that its script shows as text.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import Template

from memplan_engine.analysis.claims import over_bound, verdict
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.plotting.bundling import CHART_MODULES, bundle
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.html import report_sections as sections
from memplan_engine.reporters.html.report_data import chart_json
from memplan_engine.reporters.html.report_sections import ReportNotes
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.system import write_atomically
from memplan_engine.units import format_bytes
from memplan_engine.verify.validate import validate_plan

FOLDER = Path(__file__).parent / "page"
SCRIPTS = (
    *CHART_MODULES,
    *(FOLDER / name for name in ("data.js", "draw.js", "pointer.js", "main.js")),
)


def write_report(
    plan: Plan, path: Path | str, others: Sequence[Plan] = (), notes: ReportNotes | None = None
) -> None:
    """Write the report of `plan` to `path`, atomically; raises as `to_html` does, and InputError for a place
    that cannot be written."""
    write_atomically(path, to_html(plan, others, notes).encode())


def to_html(plan: Plan, others: Sequence[Plan] = (), notes: ReportNotes | None = None) -> str:
    """The report of `plan`, with `others` of the same problem in a table of strategies beside it.

    The same plans and notes give the same text. All are measured against the best bound that one of them has.

    Raises
    ------
    InputError: plans of different problems.
    """
    notes = notes or ReportNotes()
    plan, *rest = _with_best_bound([plan, *others])
    problem = plan.problem
    report = validate_plan(plan, replay=False)
    parts = [
        sections.peak_section(find_peak(problem)),
        sections.comparison_section(plan, rest, notes),
        sections.making_section(plan, notes, _version()),
    ]
    counts = f"{len(problem):,} buffers, {problem.steps:,} steps"
    arena = format_bytes(plan.arena_bytes)
    sentence = certificate(plan) if len(problem) else "There is nothing to place."
    return _template().substitute(
        policy=_policy(),
        title=escape(f"{problem.name}: {arena}"),
        styles=_styles(),
        heading=escape(problem.name),
        facts=escape(f"{counts}, planned by {plan.strategy}"),
        figures=sections.figures(plan),
        verdict=verdict(plan) if report.valid else "",
        certificate=escape(sentence[:1].upper() + sentence[1:] + "." * (not sentence.endswith("."))),
        warnings=sections.warnings(plan, report, notes),
        spoken=escape(f"{counts} over time and memory; arena {arena}, {over_bound(plan)}"),
        sections="\n".join(filter(None, parts)),
        data=chart_json(plan),
        script=_script(),
    )


def _with_best_bound(plans: Sequence[Plan]) -> list[Plan]:
    fingerprints = {plan.problem.fingerprint for plan in plans}
    if len(fingerprints) > 1:
        raise InputError(plans[0].problem.name, "", "plans of different problems", "plans of one problem")
    best = max((plan.bound for plan in plans), key=lambda bound: bound.nbytes)
    return [plan if plan.bound.nbytes == best.nbytes else replace(plan, bound=best) for plan in plans]


def _policy() -> str:
    """Nothing may be loaded; one script and one style sheet may be there, and nothing else may run."""
    script, styles = _hash(_script()), _hash(_styles())
    allowed = f"script-src '{script}'; style-src '{styles}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _template() -> Template:
    return Template((FOLDER / "page.html").read_text("utf-8"))


@cache
def _styles() -> str:
    return (FOLDER / "page.css").read_text("utf-8")


@cache
def _script() -> str:
    """The files of the page as one script; their names stay their own."""
    return f'(() => {{\n"use strict";\n{bundle(SCRIPTS)}}})();\n'


@cache
def _version() -> str:
    try:
        return version("memplan")
    except PackageNotFoundError:
        return ""
