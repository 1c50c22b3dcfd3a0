"""A page with nothing but the rectangle chart, for the browser tests and the benchmark.

Run it with streamlit; `?scene=` is one of SCENES, `?n=` the rectangles of "many".
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from memplan_dashboard.plan_view import Found, Panel, plan_view

from memplan_engine.analysis.layers import Layer
from memplan_engine.plotting.strip_lines import StripLine

MIB = 1 << 20
PALETTE = [
    ("#4477aa", "#5b8fc4"),
    ("#228833", "#3fa653"),
    ("#ee6677", "#ee7785"),
    ("#66ccee", "#7fd4f0"),
    ("#ccbb44", "#d6c65a"),
    ("#aa3377", "#c65a98"),
    ("#bbbbbb", "#8f8f8f"),
]
KINDS = ["conv", "norm", "relu", "skip", "concat", "attention", "other"]
LEGEND = [(kind, i) for i, kind in enumerate(KINDS)]


def unet(levels: int = 6) -> tuple[list[str], np.ndarray]:
    """Names, and rows (start, end, size, kind): an encoder, a decoder, and skips that live in between."""
    names: list[str] = []
    rows: list[tuple[int, int, int, int]] = []
    rng = np.random.default_rng(3)

    def emit(name: str, size: float, kind: int, life: int = 2) -> None:
        step = len(names)
        names.append(name)
        life += int(rng.geometric(0.45)) - 1
        rows.append((step, step + life, int(size * rng.uniform(0.6, 1.4) * MIB) // 64 * 64, kind))

    skips: list[int] = []
    for level in range(levels):
        size = 4.7 / 2**level
        for i in range(2):
            emit(f"enc{level}.conv{i}", size, 0)
            emit(f"enc{level}.norm{i}", size, 1)
            emit(f"enc{level}.relu{i}", size, 2 + i)
        skips.append(len(names) - 1)
        emit(f"enc{level}.down", size / 2, 0, 3)
    for i in range(6):
        emit(f"mid{i}.attn.scores", 1.4 - 0.1 * i, 5)
        emit(f"mid{i}.attn.out", 0.3, 6)
        emit(f"mid{i}.mlp", 0.6, 0, 3)
    for level in reversed(range(levels)):
        size = 4.7 / 2**level
        emit(f"dec{level}.up", size, 0)
        emit(f"dec{level}.concat", size * 2, 4)
        rows[skips[level]] = (*rows[skips[level]][:1], len(names), *rows[skips[level]][2:])
        for i in range(2):
            emit(f"dec{level}.conv{i}", size, 0)
            emit(f"dec{level}.norm{i}", size, 1)
            emit(f"dec{level}.relu{i}", size, 2)
    table = np.array(rows, np.int64)
    table[:, 1] = np.minimum(table[:, 1], len(names))
    return names, table


def first_fit(table: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Offsets, each buffer in turn at the lowest that is free for its lifetime."""
    offset = np.zeros(len(table), np.int64)
    placed: list[int] = []
    for i in order:
        start, end, size = table[i, :3]
        rivals = sorted((offset[j], table[j, 2]) for j in placed if table[j, 0] < end and table[j, 1] > start)
        at = 0
        for low, length in rivals:
            if low - at >= size:
                break
            at = max(at, low + length)
        offset[i] = at
        placed.append(int(i))
    return offset


def panel_of(title: str, names: list[str], table: np.ndarray, offset: np.ndarray, **more: object) -> Panel:
    start, end, size, kind = table.T
    steps = int(end.max())
    live = np.zeros(steps + 1, np.int64)
    np.add.at(live, start, size)
    np.add.at(live, end, -size)
    live = np.cumsum(live)[:steps]
    top = offset + size
    high = np.array([top[(start <= t) & (end > t)].max(initial=0) for t in range(steps)], np.int64)
    arena, bound = int(top.max()), int(live.max())
    options = {"step_labels": names if len(names) == steps else None} | more
    return Panel(
        title=title,
        subtitle=f"{arena / MIB:.2f} MiB · +{100 * (arena / bound - 1):.1f} % over bound",
        start=start,
        end=end,
        offset=offset,
        size=size,
        color=kind.astype(np.uint8),
        names=names,
        arena=arena,
        bound=bound,
        peak_step=int(live.argmax()),
        steps=steps,
        profile_start=np.arange(steps),
        profile_live=live,
        profile_high=high,
        **options,
    )


def one(**more: object) -> list[Panel]:
    names, table = unet()
    offset = first_fit(table, np.argsort(-table[:, 2], kind="stable"))
    return [panel_of("greedy_by_size", names, table, offset, **more)]


def three() -> list[Panel]:
    names, table = unet()
    start, end, size, _ = table.T
    orders = {
        "linear_scan": np.argsort(start, kind="stable"),
        "greedy_by_size": np.argsort(-size, kind="stable"),
        "greedy_by_lifetime": np.argsort(start - end, kind="stable"),
    }
    return [panel_of(title, names, table, first_fit(table, order)) for title, order in orders.items()]


def search() -> list[Panel]:
    names, _ = unet()
    return one(dimmed=np.array([not name.startswith("dec1") for name in names]), capacity=40 * MIB)


def plain(**more: object) -> list[Panel]:
    """Three rectangles whose places are easily worked out: steps 0-10, arena 10 MiB."""
    table = np.array([(0, 5, 4 * MIB, 0), (5, 10, 4 * MIB, 1), (0, 10, 6 * MIB, 2)], np.int64)
    names = ["<script>window.hacked = 1</script>", "second", "above"]
    offset = np.array([0, 0, 4 * MIB])
    return [panel_of("plain", names, table, offset, step_labels=[f"op{i}" for i in range(10)], **more)]


def pieces() -> list[Panel]:
    """Buffer 1 in two pieces (a gap in steps 3-7), buffer 0 below it throughout."""
    table = np.array([(0, 10, 4 * MIB, 0), (0, 3, 2 * MIB, 1), (7, 10, 2 * MIB, 1)], np.int64)
    offset = np.array([0, 4 * MIB, 4 * MIB])
    return [panel_of("pieces", ["base", "gapped"], table, offset, owner=np.array([0, 1, 1], np.int32))]


def empty() -> list[Panel]:
    none = np.array([], np.int64)
    columns = dict.fromkeys(("start", "end", "offset", "size", "color"), none)
    profile = dict.fromkeys(("profile_start", "profile_live", "profile_high"), none)
    figures = dict.fromkeys(("arena", "bound", "peak_step", "steps"), 0)
    return [Panel(title="empty", subtitle="0 B", names=[], **columns, **profile, **figures)]


def many(n: int) -> list[Panel]:
    """`n` rectangles that share nothing: columns of steps, each filled from the bottom."""
    rng = np.random.default_rng(7)
    columns = max(1, n // 200)
    length = 8
    column = np.arange(n) % columns
    size = rng.integers(1, 400, n) * 4096
    order = np.argsort(column, kind="stable")
    below = np.cumsum(size[order]) - size[order]
    first = np.searchsorted(column[order], column[order])
    offset = np.empty(n, np.int64)
    offset[order] = below - below[first]
    high = np.bincount(column, weights=size).astype(np.int64)
    start = column * length
    return [
        Panel(
            title="many",
            subtitle=f"{n:,} rectangles",
            start=start,
            end=start + length - rng.integers(0, 4, n),
            offset=offset,
            size=size,
            color=rng.integers(0, 7, n).astype(np.uint8),
            names=[f"t{i}" for i in range(n)],
            arena=int(high.max()),
            bound=int(high.max() * 0.97),
            peak_step=int(high.argmax()) * length,
            steps=columns * length,
            profile_start=np.arange(columns) * length,
            profile_live=(high * 0.9).astype(np.int64),
            profile_high=high,
        )
    ]


def crowd(columns: int = 20, rows: int = 1000) -> list[Panel]:
    """Rectangles much flatter than a pixel from afar, a third of them dimmed, and the same upside down."""
    number = np.arange(columns * rows)
    start, offset = 4 * (number % columns), 4096 * (number // columns)
    size = 1024 * (1 + number * 7 % 4)
    live = np.full(4 * columns, 2560 * rows)
    panel = Panel(
        title="crowd",
        subtitle=f"{len(number):,} rectangles",
        start=start,
        end=start + 2 + number % 3,
        offset=offset,
        size=size,
        color=(number * 5 % 7).astype(np.uint8),
        names=[f"t{i}" for i in number],
        arena=4096 * rows,
        bound=2560 * rows,
        peak_step=40,
        steps=4 * columns,
        profile_start=np.arange(4 * columns),
        profile_live=live,
        profile_high=live + 1024 * (np.arange(4 * columns) % 7),
        dimmed=number % 3 == 0,
    )
    below = replace(panel, title="upside down", offset=panel.arena - offset - size, dimmed=None)
    return [panel, below]


HELD = StripLine("with temporaries", np.array([0, 5, 6]), np.array([10, 30, 10]) * MIB)
"""Three times what the arena is, for one step."""
MORE = StripLine("made up", np.array([0]), np.array([20]) * MIB, ("#123456", "#fedcba"), (9, 1))
LAYERS = (
    (Layer("h", 0, 9), Layer("head", 9, 10)),
    (Layer("h.0", 0, 5), Layer("h.1", 5, 9), Layer("head", 9, 10)),
    tuple(Layer(f"h.{i // 5}.{i}", i, i + 1) for i in range(10)),
)
"""Of ten steps; the innermost cut has room when half of them are seen."""
SCENES = {
    "one": lambda: one(capacity=40 * MIB),
    "three": three,
    "search": search,
    "plain": plain,
    "held": lambda: plain(lines=(HELD, MORE)),
    "find": plain,
    "pair": lambda: [*plain(), *plain()],
    "pieces": pieces,
    "empty": empty,
    "layers": lambda: plain(layers=LAYERS),
    "optimal": lambda: plain(capacity=20 * MIB),
    "four": lambda: [*three(), *one()],
    "crowd": crowd,
}


def main() -> None:
    import streamlit as st
    from memplan_dashboard.plan_view import windows

    st.set_page_config(layout="wide")
    scene = st.query_params.get("scene", "one")
    panels = many(int(st.query_params.get("n", "200000"))) if scene == "many" else SCENES[scene]()
    # As in the engine, where a test would need as many rectangles.
    windows.MOST_VECTORS = int(st.query_params.get("most", "200000"))  # type: ignore[attr-defined]
    left, middle, right = st.columns(3)
    count = st.session_state.get("count", 0) + left.button("Rerun")
    st.session_state["count"] = count
    given = 2 if middle.button("Select 2") else st.session_state.get("chosen")
    recolored = right.toggle("Other strategy")
    if recolored:
        panels = [panel_of("moved", list(p.names), rows_of(p), p.offset) for p in panels]
    marks = (int(at), None) if (at := st.query_params.get("at")) else (None, None)
    text = st.session_state.get("text", "")
    if scene == "find":
        panels = plain(dimmed=np.array([text not in name for name in ("first", "second", "above second")]))
    names = [name for name in ("first", "second", "above second") if text in name]
    event = plan_view(
        panels,
        palette=PALETTE,
        legend=LEGEND,
        selected=given,
        marks=marks,
        find=Found(text, text, len(names), 5 * MIB * len(names)) if scene == "find" else None,
        on_find=lambda typed: st.session_state.update(text=typed),
        key="chart",
    )
    st.session_state["chosen"] = event.selected
    st.markdown(f"reported: `{event.selected}` reruns: `{count}` marked: `{event.marks}`")
    st.html("<div style='height: 900px'>below</div>")


def rows_of(panel: Panel) -> np.ndarray:
    return np.stack([panel.start, panel.end, panel.size, (panel.color.astype(np.int64) + 1) % 7], axis=1)


if __name__ == "__main__":
    main()
