"""The ops of a small training step: the forward pass above, the backward pass below it from right to left,
and which results are kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from memplan_engine.plotting.svg_figure import escape

WIDE, HIGH, ACROSS, BETWEEN, MARGIN = 92, 52, 22, 34, 8
INK = ("#31333f", "#fafafa")
KEPT, GONE = ("#3b6fa8", "#8ab4e0"), ("#b34700", "#ff9f5a")
GREY = ("#6b6b6b", "#a8a8a8")
FONT, LETTER = 13, 0.62
"""The height of a letter, and how wide it is for its height."""


@dataclass(frozen=True, slots=True)
class LayerOp:
    """An op, what is written below its name, and the ops whose results it reads; `backward`: of that pass."""

    name: str
    told: tuple[str, ...]
    reads: tuple[str, ...]
    backward: bool = False


def svg(ops: tuple[LayerOp, ...], kept: Collection[str], gone: Collection[str], dark: bool) -> str:
    """A box for each op in its order, an arrow from each to who reads it. Of the ops `kept` what they make is
    kept, of those `gone` it is made again."""
    corners = _corners(ops)
    width = max(x for x, _ in corners.values()) + WIDE + MARGIN
    height = max(y for _, y in corners.values()) + HIGH + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="{FONT}">'
    ]
    lines += [
        _arrow(corners[name], corners[op.name], (GONE if name in gone else GREY)[dark])
        for op in ops
        for name in op.reads
    ]
    for op in ops:
        lines += _box(op, corners[op.name], op.name in kept, op.name in gone, dark)
    return "".join([*lines, "</svg>"])


def sentence(ops: tuple[LayerOp, ...], kept: Collection[str], gone: Collection[str]) -> str:
    """The same in words."""
    parts = [", ".join(f"{op.name} {' '.join(op.told)}".strip() for op in ops)]
    for told, names in (("kept", kept), ("made again", gone)):
        if names:
            parts.append(f"{told}: {', '.join(op.name for op in ops if op.name in names)}")
    return "; ".join(parts)


def _corners(ops: tuple[LayerOp, ...]) -> dict[str, tuple[int, int]]:
    """The top left of each box: forward from left to right, back from right to left."""
    forward = [op.name for op in ops if not op.backward]
    backward = [op.name for op in ops if op.backward][::-1]
    several = max(len(forward), len(backward))
    places = {}
    for row, names in enumerate((forward, backward)):
        first = several - len(names) if row else 0
        for place, name in enumerate(names, first):
            places[name] = (MARGIN + place * (WIDE + ACROSS), MARGIN + row * (HIGH + BETWEEN))
    return places


def _arrow(tail: tuple[int, int], head: tuple[int, int], ink: str) -> str:
    (x, y), (u, v) = tail, head
    half, bow, point = HIGH // 2, 0, "l-4 -7h8z"
    begin, end = (x + WIDE // 2, y + HIGH), (u + WIDE // 2, v)
    if y == v:
        # To the right above, to the left below; past others in a bow.
        begin, end = (x + WIDE * (u > x), y + half), (u + WIDE * (u < x), v + half)
        bow = 0 if abs(u - x) <= WIDE + ACROSS else HIGH
        point = f"l{-7 if u > x else 7} -4v8z"
    middle = (begin[0] + end[0]) // 2, (begin[1] + end[1]) // 2 - bow
    (a, b), (c, d), (e, f) = begin, middle, end
    return (
        f'<path d="M{a} {b}Q{c} {d} {e} {f}" fill="none" stroke="{ink}" stroke-width="1.4"/>'
        f'<path d="M{e} {f}{point}" fill="{ink}"/>'
    )


def _box(op: LayerOp, corner: tuple[int, int], kept: bool, gone: bool, dark: bool) -> list[str]:
    (x, y), ink = corner, INK[dark]
    colour = (GONE if gone else KEPT if kept else GREY)[dark]
    fill = f'fill="{colour}" fill-opacity="0.28"' if kept else 'fill="none"'
    dash = ' stroke-dasharray="5 3"' if gone else ""
    lines = [
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="5" {fill} stroke="{colour}" '
        f'stroke-width="{2 if kept or gone else 1.3}"{dash}/>'
    ]
    for row, text in enumerate((op.name, *op.told)):
        letters = min(FONT, (WIDE - 10) / (LETTER * max(1, len(text))))
        lines.append(
            f'<text x="{x + WIDE / 2}" y="{y + 16 + 15 * row}" text-anchor="middle" '
            f'font-size="{letters:.1f}" {"" if row else "font-weight=" + chr(34) + "bold" + chr(34) + " "}'
            f'fill="{ink}">{escape(text)}</text>'
        )
    return lines
