"""The picture of a lesson: what is placed before its question, and when the buffer in question lives."""

from __future__ import annotations

from memplan_engine import Replay
from memplan_engine.plotting.colouring import CATEGORIES
from memplan_engine.plotting.svg_figure import escape

WIDTH, HEIGHT, MARGIN, FONT = 560, 200, 8, 15
INK = ("#31333f", "#fafafa")
LETTER = 0.62
"""How wide a letter is for its height, over a few words of DejaVu Sans, the widest usual sans-serif."""
TINT = 0.35
"""How strong the colours are under a name, which has to be read on all of them."""


def svg(replay: Replay, before: int, dark: bool) -> str:
    """The first `before` decisions of `replay`, and the lifetime of the next one's buffer, if any."""
    problem, ink = replay.problem, INK[dark]
    tall = (HEIGHT - 2 * MARGIN) / max(1, replay.plan.arena_bytes)
    wide = (WIDTH - 2 * MARGIN) / max(1, problem.steps)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif">',
        f'<path d="M{MARGIN} {HEIGHT - MARGIN}H{WIDTH - MARGIN}" stroke="{ink}" stroke-opacity="0.5"/>',
    ]

    def box(buffer: int, low: float, high: float, style: str, text: str, asks: bool = False) -> None:
        x = MARGIN + int(problem.start[buffer]) * wide
        width = int(problem.end[buffer] - problem.start[buffer]) * wide
        top, height = HEIGHT - MARGIN - high * tall, (high - low) * tall
        size = f'width="{width - 2:.1f}" height="{height - 2:.1f}"'
        lines.append(f'<rect x="{x + 1:.1f}" y="{top + 1:.1f}" {size} {style}/>')
        letters = min(FONT, 0.9 * height, (width - 14) / (LETTER * len(text)))
        # A question stands at the top, above what is placed.
        middle = top + letters if asks else top + height / 2
        place = f'x="{x + 9:.1f}" y="{middle + letters / 3:.1f}" font-size="{letters:.1f}"'
        lines.append(f'<text {place} fill="{ink}">{escape(text)}</text>')

    for step in range(before):
        buffer = int(replay.buffer[step])
        low, size = int(replay.offset[step]), int(problem.size[buffer])
        color = CATEGORIES[buffer % len(CATEGORIES)][dark]
        style = f'fill="{color}" fill-opacity="{TINT}" stroke="{color}"'
        box(buffer, low, low + size, style, problem.names[buffer])
    if before < len(replay):
        buffer = int(replay.buffer[before])
        style = f'fill="none" stroke="{ink}" stroke-dasharray="6 4"'
        told = f"{problem.names[buffer]}, {int(problem.size[buffer])} B: where?"
        box(buffer, 0, replay.plan.arena_bytes, style, told, asks=True)
    return "".join([*lines, "</svg>"])


def sentence(replay: Replay, before: int) -> str:
    """The same in words."""
    placed = [replay.problem.names[int(buffer)] for buffer in replay.buffer[:before]]
    if before == len(replay):
        return f"Placed: {', '.join(placed)}"
    return f"Placed: {', '.join(placed)}. Next: {replay.problem.names[int(replay.buffer[before])]}"
