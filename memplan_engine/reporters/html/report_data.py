"""A plan as the report's chart reads it: typed columns in one compressed run of bytes, the rest as JSON."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.claims import workspace_name
from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.pieces import cut
from memplan_engine.plan import Plan
from memplan_engine.plotting.colouring import COLOURINGS
from memplan_engine.plotting.figure_style import default_colouring
from memplan_engine.plotting.scene import coarse
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Profile, make_profile

ALIGNMENT = 8
MOST_SECTIONS = 100_000
NAMES_FOR_ALL = 200_000
"""Up to this many buffers every name travels; above it only those of the NAMES_BY_AREA largest."""
NAMES_BY_AREA = 20_000
MOST_LETTERS = 120
"""Of a name or a fact: the middle of a longer one is left out."""
_CODES = {"uint8": "u1", "int32": "i4", "uint32": "u4", "float64": "f8"}


@dataclass(slots=True)
class _Blob:
    """Collects columns, each on an 8-byte boundary, in the byte order of all browsers."""

    chunks: list[bytes] = field(default_factory=list)
    length: int = 0

    def add(self, values: NDArray[Any], unit: int = 1) -> list[Any]:
        """Place `values`; the entry is [type, byte offset, length, unit]."""
        raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
        entry = [_CODES[values.dtype.name], self.length, len(values), unit]
        self.chunks.append(raw + bytes(-len(raw) % ALIGNMENT))
        self.length += len(self.chunks[-1])
        return entry

    def packed(self) -> str:
        """All columns, compressed (zlib), as base64."""
        return b64encode(zlib.compress(b"".join(self.chunks), 9)).decode()


def chart_json(plan: Plan) -> str:
    """The data block of the report: JSON in ASCII that holds no letter which could end a script element."""
    blob, problem, pieces = _Blob(), plan.problem, cut(plan.problem)
    profile = make_profile(problem, plan.offsets)
    edges, live, high = coarse(profile, MOST_SECTIONS)
    values = {
        "arena": plan.arena_bytes,
        "bound": plan.bound.nbytes,
        "peakStep": profile.peak_step,
        "deep": max(1, plan.arena_bytes, profile.peak_bytes),
        "steps": problem.steps,
        "buffers": len(problem),
        "start": blob.add(_steps(pieces.start)),
        "end": blob.add(_steps(pieces.end)),
        "offset": blob.add(*_bytes(plan.offsets[pieces.owner] + pieces.low)),
        "size": blob.add(*_bytes(pieces.high - pieces.low)),
        "owner": blob.add(pieces.owner.astype(np.int32)) if problem.gaps else None,
        "profileStart": blob.add(_steps(np.ceil(edges[:-1]).astype(np.int64))),
        "profileLive": blob.add(*_bytes(live)),
        "profileHigh": blob.add(*_bytes(high)),
        "held": _held(plan, profile, blob) if plan.workspace_bytes else None,
        "colourings": _colourings(problem, blob),
        "names": _names(problem, blob),
        "facts": _facts(problem, blob),
    }
    return script_json({**values, "blob": blob.packed()})


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


def _steps(values: Ints) -> NDArray[Any]:
    """Steps as uint32 where they fit, else as float64 (exact up to 2^53)."""
    fits = not len(values) or int(values.max()) < 2**32
    return values.astype(np.uint32 if fits else np.float64)


def _bytes(values: Ints) -> tuple[NDArray[Any], int]:
    """Bytes as multiples of the largest power of two that divides all of them, and that unit."""
    bits = int(np.bitwise_or.reduce(values)) if len(values) else 0
    unit = (bits & -bits) or 1
    return _steps(values // unit), unit


def _held(plan: Plan, profile: Profile, blob: _Blob) -> dict[str, Any]:
    """What is held with the scratch of ops, and what that is called; not exact where it had to be thinned."""
    held = profile.held.thinned(MOST_SECTIONS)
    return {
        "label": f"with {workspace_name(plan.problem)}",
        "exact": held is profile.held,
        "start": blob.add(_steps(held.start)),
        "bytes": blob.add(*_bytes(held.nbytes)),
    }


def _colourings(problem: Problem, blob: _Blob) -> list[dict[str, Any]]:
    """The default colouring first, then the others that tell buffers apart."""
    default = default_colouring(problem)
    found = []
    for name, colouring in sorted(COLOURINGS.items(), key=lambda pair: pair[1] is not default):
        made = colouring(problem)
        if colouring is default or len(made.legend) > 1:
            shown = [(shortened(label), place) for label, place in made.legend]
            found.append(
                {"name": name, "index": blob.add(made.index), "palette": made.palette, "legend": shown}
            )
    return found


def _names(problem: Problem, blob: _Blob) -> dict[str, Any]:
    ids = None
    names: Sequence[str] = problem.names
    if len(names) > NAMES_FOR_ALL:
        area = problem.size.astype(np.float64) * (problem.end - problem.start)
        ids = np.sort(np.argsort(-area, kind="stable")[:NAMES_BY_AREA]).astype(np.int32)
        names = [names[buffer] for buffer in ids.tolist()]
    encoded = [shortened(name).encode("utf-8", "replace") for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64).astype(np.uint32)
    text = np.frombuffer(b"".join(encoded), np.uint8)
    return {"ends": blob.add(ends), "text": blob.add(text), "ids": None if ids is None else blob.add(ids)}


def _facts(problem: Problem, blob: _Blob) -> list[dict[str, Any]]:
    """Shape, kind, module and line of code of each buffer where they are known, as indices into `values`."""
    known = find_provenance(problem)
    columns = (
        [f"{each.dtype} {list(each.shape)}" if each.dtype else "" for each in known],
        ["" if each.kind == "buffer" else each.kind for each in known],
        [each.module for each in known],
        ["" if each.source is None else f"{each.source} {each.source.code}".strip() for each in known],
    )
    facts = []
    for column in columns:
        places = {text: place for place, text in enumerate(dict.fromkeys(column))}
        if any(places):
            index = np.array([places[text] for text in column], np.uint32)
            facts.append({"values": [shortened(text) for text in places], "index": blob.add(index)})
    return facts
