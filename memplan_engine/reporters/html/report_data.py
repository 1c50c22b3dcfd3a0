"""A plan as the report's chart reads it: typed columns in one compressed run of bytes, the rest as JSON."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from memplan_engine.analysis.claims import arena_name, peak_name
from memplan_engine.analysis.provenance import OP_PROPERTIES, find_provenance
from memplan_engine.plan import Plan
from memplan_engine.plotting.bands import bands_of
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.plotting.columns import Columns
from memplan_engine.plotting.figure_style import default_colouring
from memplan_engine.plotting.scene import coarse
from memplan_engine.plotting.strip_lines import strip_lines, top_of_strip
from memplan_engine.problem import Problem, cut
from memplan_engine.profile import make_profile

MOST_SECTIONS = 100_000
NAMES_FOR_ALL = 200_000
"""Up to this many buffers every name travels; above it only those of the NAMES_BY_AREA largest."""
NAMES_BY_AREA = 20_000
MOST_LETTERS = 120
"""Of a name or a fact: the middle of a longer one is left out."""


def chart_json(plan: Plan) -> str:
    """The data block of the report: JSON in ASCII that holds no letter which could end a script element."""
    columns, problem, pieces = Columns(), plan.problem, cut(plan.problem)
    profile = make_profile(problem, plan.offsets)
    edges, live, high = coarse(profile, MOST_SECTIONS)
    lines = strip_lines(plan, profile, MOST_SECTIONS)
    values = {
        "arena": plan.arena_bytes,
        "bound": plan.bound.nbytes,
        "capacity": None,
        "arenaName": arena_name(plan),
        "peakStep": profile.peak_step,
        "peakName": peak_name(problem),
        "deep": top_of_strip(plan, profile, lines),
        "steps": problem.steps,
        "buffers": len(problem),
        "start": columns.add_steps(pieces.start),
        "end": columns.add_steps(pieces.end),
        "offset": columns.add_bytes(plan.offsets[pieces.owner] + pieces.low),
        "size": columns.add_bytes(pieces.high - pieces.low),
        "owner": columns.add(pieces.owner.astype(np.int32)) if problem.gaps else None,
        "profileStart": columns.add_steps(np.ceil(edges[:-1]).astype(np.int64)),
        "profileLive": columns.add_bytes(live),
        "profileHigh": columns.add_bytes(high),
        "lines": columns.add_lines(lines),
        "bands": [asdict(replace(band, label=shortened(band.label))) for band in bands_of(problem)],
        "colourings": _colourings(problem, columns),
        "names": _names(problem, columns),
        "facts": _facts(problem, columns),
    }
    packed = b64encode(zlib.compress(b"".join(columns.chunks), 9)).decode()
    return script_json({**values, "blob": packed})


def script_json(values: Any) -> str:
    """`values` as JSON for a script element: "<", ">" and "&" as escapes, so that no text can end the element
    or begin a comment, and nothing beyond ASCII."""
    text = json.dumps(values, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def shortened(text: str, most: int = MOST_LETTERS) -> str:
    """`text` without its middle where it has more than `most` letters: names differ at their ends."""
    kept = most // 2
    return text if len(text) <= most else f"{text[:kept]}…{text[-kept + 1 :]}"


def _colourings(problem: Problem, columns: Columns) -> list[dict[str, Any]]:
    """The default colouring first, then the others that tell buffers apart."""
    default = default_colouring(problem)
    entries = []
    for name, colouring in sorted(COLOURINGS.items(), key=lambda pair: pair[1] is not default):
        colours = colouring(problem)
        if colouring is default or len(colours.legend) > 1:
            legend = [(shortened(label), colour) for label, colour in colours.legend]
            index = columns.add(colours.index)
            entries.append({"name": name, "index": index, "palette": colours.palette, "legend": legend})
    return entries


def _names(problem: Problem, columns: Columns) -> dict[str, Any]:
    ids = None
    names: Sequence[str] = problem.names
    if len(names) > NAMES_FOR_ALL:
        area = problem.size.astype(np.float64) * (problem.end - problem.start)
        ids = np.sort(np.argsort(-area, kind="stable")[:NAMES_BY_AREA]).astype(np.int32)
        names = [names[buffer] for buffer in ids.tolist()]
    texts = columns.add_texts([shortened(name) for name in names])
    return {**texts, "ids": None if ids is None else columns.add(ids)}


def _facts(problem: Problem, columns: Columns) -> list[dict[str, Any]]:
    """Shape, kind, module and line of code of each buffer where they are known, as indices into `values`."""
    origins = find_provenance(problem)
    facts_of = (
        [f"{origin.dtype} {list(origin.shape)}" if origin.dtype else "" for origin in origins],
        ["" if origin.kind == "buffer" else origin.kind for origin in origins],
        *([told.words(told.of(origin.maker)) for origin in origins] for told in OP_PROPERTIES),
        [
            "" if origin.source is None else f"{origin.source} {origin.source.code}".strip()
            for origin in origins
        ],
    )
    facts = []
    for column in facts_of:
        codes = {text: code for code, text in enumerate(dict.fromkeys(column))}
        if any(codes):
            index = np.array([codes[text] for text in column], np.uint32)
            facts.append({"values": [shortened(text) for text in codes], "index": columns.add(index)})
    return facts
