"""Panels as one run of bytes: a JSON header, then the columns, each on an 8-byte boundary.

The browser maps typed arrays straight onto the columns. Columns that are equal (the lifetimes of one problem
under three strategies) are written once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from memplan_dashboard.plan_view.difference import Difference
from memplan_dashboard.plan_view.panel import Ints, Panel
from memplan_dashboard.plan_view.windows import Crop
from numpy.typing import NDArray

NAMES_FOR_ALL = 200_000
"""Up to this many buffers every name travels; above it only those of the largest: more than a screen has
room for labels."""
NAMES_BY_AREA = 5_000
ALIGNMENT = 8

_CODES = {"uint8": "u1", "int32": "i4", "uint32": "u4", "float64": "f8"}


@dataclass(slots=True)
class _Blob:
    """Collects columns; equal ones share their place."""

    chunks: list[bytes] = field(default_factory=list)
    length: int = 0
    places: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def add(self, values: NDArray[Any], unit: int = 1) -> list[Any]:
        """Place `values`; the header entry is [type, byte offset, length, unit]."""
        code, raw = _CODES[values.dtype.name], values.tobytes()
        at = self.places.get((code, raw))
        if at is None:
            at = self.places[code, raw] = self.length
            self.chunks.append(raw + bytes(-len(raw) % ALIGNMENT))
            self.length += len(self.chunks[-1])
        return [code, at, len(values), unit]


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
    blob = _Blob()
    header = {
        **shared,
        "panels": [_panel_or_crop(panel, blob) for panel in panels],
        **({"wanted": [_panel_or_crop(crop, blob) for crop in wanted]} if wanted else {}),
        "difference": None if difference is None else _difference(difference, blob),
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join((len(text).to_bytes(4, "little"), bytes(4), text, *blob.chunks))


def _panel_or_crop(given: Panel | Crop, blob: _Blob) -> dict[str, Any]:
    if isinstance(given, Panel):
        return _panel(given, blob)
    window, profile = given.view.window, given.profile
    return {
        **_panel(given.panel, blob, all_names=False),
        "view": {
            "window": [window.x0, window.x1, window.y0, window.y1],
            "cells": list(given.view.cells),
            "whole": given.view.is_whole,
            "total": given.total,
            "profileEnd": profile.end,
            "sectionsEach": profile.sections_each,
        },
    }


def _panel(panel: Panel, blob: _Blob, all_names: bool = True) -> dict[str, Any]:
    dimmed = panel.dimmed if panel.dimmed is not None and panel.dimmed.any() else None
    return {
        "title": panel.title,
        "subtitle": panel.subtitle,
        "arena": int(panel.arena),
        "bound": int(panel.bound),
        "capacity": None if panel.capacity is None else int(panel.capacity),
        **({} if panel.before is None else {"before": int(panel.before)}),
        "peakStep": int(panel.peak_step),
        "steps": int(panel.steps),
        "buffers": len(panel.names) if panel.buffers is None else panel.buffers,
        "start": blob.add(steps_column(panel.start)),
        "end": blob.add(steps_column(panel.end)),
        "offset": blob.add(*bytes_column(panel.offset)),
        "size": blob.add(*bytes_column(panel.size)),
        "color": blob.add(np.asarray(panel.color, np.uint8)),
        "dimmed": None if dimmed is None else blob.add(dimmed.astype(np.uint8)),
        "owner": None if panel.owner is None else blob.add(np.asarray(panel.owner, np.int32)),
        "profileStart": blob.add(steps_column(panel.profile_start)),
        "profileLive": blob.add(*bytes_column(panel.profile_live)),
        "profileHigh": blob.add(*bytes_column(panel.profile_high)),
        "lines": [
            {
                "kind": line.kind,
                "label": line.label,
                "exact": line.exact,
                "start": blob.add(steps_column(line.start)),
                "bytes": blob.add(*bytes_column(line.nbytes)),
            }
            for line in panel.lines
        ],
        "names": _names(panel, blob, all_names),
        "bands": [
            {"label": band.label, "start": band.start, "end": band.end, "color": band.color}
            for band in panel.bands
        ],
        "stepLabels": None if panel.step_labels is None else _texts(panel.step_labels, blob),
    }


def _difference(given: Difference, blob: _Blob) -> dict[str, Any]:
    return {
        "title": given.title,
        "bounds": blob.add(steps_column(given.bounds)),
        "base": blob.add(*bytes_column(given.base)),
        "head": blob.add(*bytes_column(given.head)),
        "peakStep": int(given.peak_step),
        "up": given.up,
        "down": given.down,
    }


def steps_column(values: Ints) -> NDArray[Any]:
    """Steps as uint32 where they fit, else as float64 (exact up to 2^53)."""
    return _fitted(np.asarray(values, np.int64))


def bytes_column(values: Ints) -> tuple[NDArray[Any], int]:
    """Bytes as multiples of a unit: (column, unit), the unit being the largest power of two that divides all.

    uint32 where the multiples fit, else float64 (exact while the multiples stay under 2^53); never float32.
    """
    column = np.asarray(values, np.int64)
    bits = int(np.bitwise_or.reduce(column)) if len(column) else 0
    unit = (bits & -bits) or 1
    return _fitted(column // unit), unit


def _fitted(column: Ints) -> NDArray[Any]:
    fits = not len(column) or (int(column.min()) >= 0 and int(column.max()) < 2**32)
    return column.astype(np.uint32 if fits else np.float64)


def _names(panel: Panel, blob: _Blob, all_names: bool) -> dict[str, Any]:
    if all_names and len(panel.names) <= NAMES_FOR_ALL:
        return {**_texts(panel.names, blob), "ids": None}
    ids = largest(panel, NAMES_BY_AREA)
    return {**_texts([panel.names[i] for i in ids.tolist()], blob), "ids": blob.add(ids)}


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


def _texts(texts: Sequence[str], blob: _Blob) -> dict[str, Any]:
    """Texts as one UTF-8 run and the places where they end (uint32)."""
    whole = "".join(texts)
    raw, lengths = whole.encode("utf-8", "replace"), list(map(len, texts))
    if len(raw) != len(whole):
        lengths = [len(text.encode("utf-8", "replace")) for text in texts]
    ends = np.cumsum(lengths, dtype=np.int64).astype(np.uint32)
    return {"ends": blob.add(ends), "text": blob.add(np.frombuffer(raw, np.uint8))}
