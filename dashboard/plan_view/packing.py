"""Panels as one run of bytes: a JSON header, then the columns. Those that are equal (the lifetimes of one
problem under three strategies) are there once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from memplan_dashboard.plan_view.panel import Difference, Panel
from memplan_dashboard.plan_view.panes import pack_panes
from memplan_dashboard.plan_view.windows import Crop
from numpy.typing import NDArray

from memplan_engine.analysis.layers import Layer
from memplan_engine.plotting.columns import ALIGNMENT, Columns

NAMES_FOR_ALL = 200_000
"""Up to this many buffers every name travels; above it only those of the largest: more than a screen has
room for labels."""
NAMES_BY_AREA = 5_000


def pack(
    panels: Sequence[Panel | Crop],
    shared: dict[str, Any],
    difference: Difference | None = None,
    wanted: Sequence[Crop] = (),
) -> bytes:
    """The panels and the JSON-able values of `shared` as the bytes that the browser reads; of a panel too
    large for it a `Crop`. `wanted` are more crops, for single buffers.

    Layout: length of the header (uint32, little-endian), four zero bytes, the header (UTF-8 JSON, padded to
    8 bytes), the columns.
    """
    columns = Columns()
    header = {
        **shared,
        "panels": [_panel_or_crop(panel, columns) for panel in panels],
        **({"wanted": [_panel_or_crop(crop, columns) for crop in wanted]} if wanted else {}),
        "difference": None if difference is None else _difference(difference, columns),
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join((len(text).to_bytes(4, "little"), bytes(4), text, *columns.chunks))


def _panel_or_crop(given: Panel | Crop, columns: Columns) -> dict[str, Any]:
    if isinstance(given, Panel):
        return _panel(given, columns)
    window, profile = given.view.window, given.profile
    return {
        **_panel(given.panel, columns, all_names=False),
        "view": {
            "window": [window.x0, window.x1, window.y0, window.y1],
            "cells": list(given.view.cells),
            "whole": given.view.is_whole,
            "total": given.total,
            "profileEnd": profile.end,
            "sectionsEach": profile.sections_each,
        },
    }


def _panel(panel: Panel, columns: Columns, all_names: bool = True) -> dict[str, Any]:
    dimmed = panel.dimmed if panel.dimmed is not None and panel.dimmed.any() else None
    return {
        "title": panel.title,
        "subtitle": panel.subtitle,
        "arena": int(panel.arena),
        "bound": int(panel.bound),
        "capacity": None if panel.capacity is None else int(panel.capacity),
        **({} if panel.before is None else {"before": int(panel.before)}),
        "arenaName": panel.arena_name,
        "peakStep": int(panel.peak_step),
        "peakName": panel.peak_name,
        "steps": int(panel.steps),
        "buffers": len(panel.names) if panel.buffers is None else panel.buffers,
        "start": columns.add_steps(panel.start),
        "end": columns.add_steps(panel.end),
        "offset": columns.add_bytes(panel.offset),
        "size": columns.add_bytes(panel.size),
        "color": columns.add(np.asarray(panel.color, np.uint8)),
        "dimmed": None if dimmed is None else columns.add(dimmed.astype(np.uint8)),
        "owner": None if panel.owner is None else columns.add(np.asarray(panel.owner, np.int32)),
        "profileStart": columns.add_steps(panel.profile_start),
        "profileLive": columns.add_bytes(panel.profile_live),
        "profileHigh": columns.add_bytes(panel.profile_high),
        "lines": columns.add_lines(panel.lines),
        "names": _names(panel, columns, all_names),
        "bands": [asdict(band) for band in panel.bands],
        "panes": None if panel.panes is None else pack_panes(panel.panes, columns),
        "layers": [_layers(layers, columns) for layers in panel.layers],
        "stepLabels": None if panel.step_labels is None else columns.add_texts(panel.step_labels),
    }


def _layers(layers: Sequence[Layer], columns: Columns) -> dict[str, Any]:
    return {
        "labels": columns.add_texts([layer.label for layer in layers]),
        "start": columns.add_steps(np.array([layer.start for layer in layers], np.int64)),
        "end": columns.add_steps(np.array([layer.end for layer in layers], np.int64)),
    }


def _difference(given: Difference, columns: Columns) -> dict[str, Any]:
    return {
        "title": given.title,
        "bounds": columns.add_steps(given.bounds),
        "base": columns.add_bytes(given.base),
        "head": columns.add_bytes(given.head),
        "peakStep": int(given.peak_step),
        "up": given.up,
        "down": given.down,
    }


def _names(panel: Panel, columns: Columns, all_names: bool) -> dict[str, Any]:
    if all_names and len(panel.names) <= NAMES_FOR_ALL:
        return {**columns.add_texts(panel.names), "ids": None}
    ids = largest(panel, NAMES_BY_AREA)
    return {**columns.add_texts([panel.names[i] for i in ids.tolist()]), "ids": columns.add(ids)}


def largest(panel: Panel, count: int) -> NDArray[np.int32]:
    """The `count` buffers whose rectangles cover most (bytes x steps), in ascending order."""
    area = panel.size.astype(np.float64) * (panel.end - panel.start)
    buffers: NDArray[Any] = np.arange(len(area))
    if panel.owner is not None and len(area):
        order = np.argsort(panel.owner, kind="stable")
        owner = panel.owner[order]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        buffers, area = owner[first], np.add.reduceat(area[order], first)
    count = min(count, len(area))
    top = np.argpartition(area, len(area) - count)[len(area) - count :]
    return np.sort(buffers[top]).astype(np.int32)
