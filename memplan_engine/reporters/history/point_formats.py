"""The points of a run as other tools read them: github-action-benchmark, Bencher, JUnit, Apache Otava."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from memplan_engine.history.baselines import Comparison
from memplan_engine.history.commit_order import node_of
from memplan_engine.history.history_values import HistoryPoint, HistoryRun, HistorySeries
from memplan_engine.reporters.history.change_words import arena_words, change_words
from memplan_engine.reporters.history.history_tables import point_summary
from memplan_engine.units import format_bytes

FIGURES = "arena", "demand", "eager", "reserved"
"""What is told of a point, where it is known."""
FORMULAS = "=", "+", "-", "@", "\t", "\r"
"""What a spreadsheet takes for the beginning of a formula."""


def as_points_json(compared: Sequence[Comparison]) -> str:
    """memplan's own: every figure of each point, and of its baseline."""
    rows = [
        {
            **point_summary(each.point),
            "baseline": point_summary(each.baseline) if each.baseline else None,
            "grew": each.grew,
        }
        for each in compared
    ]
    return _json(rows)


def as_gha_benchmark(compared: Sequence[Comparison]) -> str:
    """What github-action-benchmark reads as the tool "customSmallerIsBetter"."""
    rows = []
    for each in compared:
        change = each.change
        told = change_words(change) if change and change.bytes_differ else ""
        for name, value in _figures(each.point):
            row: dict[str, Any] = {
                "name": f"{_label(each.point.series)}: {name}",
                "unit": "B",
                "value": value,
            }
            rows.append(row | ({"extra": told} if told else {}))
    return _json(rows)


def as_bmf(compared: Sequence[Comparison]) -> str:
    """Bencher Metric Format: the figures of each series as measures, bytes."""
    return _json(
        {
            _label(each.point.series): {name: {"value": value} for name, value in _figures(each.point)}
            for each in compared
        }
    )


def as_junit(compared: Sequence[Comparison]) -> str:
    """JUnit XML: a test for each series, which fails where it grew beyond its limit."""
    failed = [each for each in compared if each.grew]
    counts = {"tests": str(len(compared)), "failures": str(len(failed)), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "memplan history", **counts})
    for each in compared:
        name = {
            "classname": _xml(each.point.series.project or "memplan"),
            "name": _xml(_label(each.point.series)),
        }
        case = ElementTree.SubElement(suite, "testcase", name)
        if each.grew and each.change and each.baseline:
            message = f"{arena_words(each.change)} ({change_words(each.change)})"
            failure = ElementTree.SubElement(case, "failure", {"message": message, "type": "growth"})
            failure.text = _xml(f"compared with {each.baseline.run.label}, limit {each.limit}")
        told = ", ".join(f"{label} {format_bytes(value)}" for label, value in _figures(each.point))
        ElementTree.SubElement(case, "system-out").text = told
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def as_otava_csv(points: Sequence[HistoryPoint]) -> str:
    """A CSV file for Apache Otava: a row for each commit on each branch, in the order of `points`, a column
    for each figure of each series; bytes, as they were recorded last. What nobody measured is empty."""
    series = list(dict.fromkeys(point.series for point in points))
    rows: dict[tuple[object, ...], dict[tuple[HistorySeries, str], int]] = {}
    runs: dict[tuple[object, ...], HistoryRun] = {}
    for point in points:
        run = point.run
        key = node_of(run.commit, run.key), run.branch, run.dirty
        runs.setdefault(key, run)
        rows.setdefault(key, {}).update({(point.series, name): size for name, size in _figures(point)})
    known = {key for row in rows.values() for key in row}
    columns = [(each, name) for each in series for name in FIGURES if (each, name) in known]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [name if len(series) == 1 else f"{_label(each)}: {name}" for each, name in columns]
    writer.writerow(["time", "commit", "branch", *map(_cell, heads)])
    for run, row in zip(runs.values(), rows.values(), strict=True):
        told = (_time(run), run.commit, _cell(run.branch))
        writer.writerow([*told, *(row.get(column, "") for column in columns)])
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[Comparison]], str]] = {
    "json": as_points_json,
    "gha-benchmark": as_gha_benchmark,
    "bmf": as_bmf,
    "junit": as_junit,
    "otava-csv": lambda compared: as_otava_csv([each.point for each in compared]),
}
"""The formats of the points of one run, by the names that people ask for them by."""


def _figures(point: HistoryPoint) -> list[tuple[str, int]]:
    values = ((name, getattr(point.figures, name)) for name in FIGURES)
    return [(name, value) for name, value in values if value is not None]


def _label(series: HistorySeries) -> str:
    """The series; its strategy where that is not the usual one."""
    return series.label + (f", {series.strategy}" if series.strategy != "auto" else "")


def _cell(text: str) -> str:
    """`text` so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(FORMULAS) else text


def _time(run: HistoryRun) -> str:
    seconds = run.committed_at or run.recorded_at
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _xml(text: str) -> str:
    """`text` without what XML has no letters for."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
