"""The order of the ops on the Replay page: by hand, greedy's next op predicted, or the best order that was
found step by step; and the cut that proves that no order is better."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import live_steps, order_picture
from memplan_dashboard.charts.order_picture import Marked, names_of
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.fitting import graph_of
from memplan_dashboard.session.messages import plain, show_note
from memplan_dashboard.session.plan_facts import OF_DOCUMENT
from memplan_dashboard.widgets import lessons
from memplan_dashboard.widgets.controls import bound
from memplan_dashboard.widgets.tables import show_table, whole

from memplan_engine.plotting.svg_figure import escape
from memplan_engine.rewrites.order.certificate import CutProof
from memplan_engine.rewrites.order.heuristics import least_peak_first
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem, whole_ops
from memplan_engine.rewrites.order.reorder import reorder
from memplan_engine.rewrites.order.steps import ReadyUnit, crossing_set, ready_units, steps_of
from memplan_engine.units import format_bytes

MOST_BY_HAND = 40
"""Ops of a graph that a person may order, and of which there is a picture."""
MOST_READY = 200
"""Rows of a table of ready ops."""
GREEDY = (
    "Least peak first, as Inductor's lpmf: of the ops that stay below the peak so far the one that leaves "
    "the fewest live bytes, else the one that adds the fewest"
)
GUESSED = "order_guessed"


class Way(StrEnum):
    """Who orders, as the address has it in `mode`."""

    HAND = "order"
    GUESS = "order_guess"
    GREEDY = "order_greedy"
    BEST = "order_best"


LABELS = {
    Way.HAND: "You order",
    Way.GUESS: "Predict greedy",
    Way.GREEDY: "Greedy, step by step",
    Way.BEST: "Best found, step by step",
}


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """What there is to know of the orders of a graph, each op a unit: greedy's and the best that was found,
    with their peaks and that as written; the bound over all orders, what proves it, and the unit whose cut
    does, −1 where no single one does. Bytes."""

    problem: OrderProblem
    greedy: tuple[int, ...]
    best: tuple[int, ...]
    peaks: tuple[int, int, int]
    bound: int
    proved_by: str
    unit: int


@st.cache_resource(max_entries=8, show_spinner="Looking for orders …", hash_funcs=OF_DOCUMENT)
def _orders(document: Document) -> Orders | None:
    graph = graph_of(document)
    if graph is None or not graph.ops:
        return None
    graph = whole_ops(graph)
    problem = order_problem(graph, merge=False)
    found = reorder(graph, brief=True)
    place = {op.name: index for index, op in enumerate(graph.ops)}
    best = tuple(place[op.name] for op in found.graph.ops)
    greedy = tuple(least_peak_first(problem.arrays).tolist())
    peaks = (found.live_before, problem.peak(greedy), found.live_after)
    proof = found.certificate.proof if found.certificate else None
    unit = place[proof.op] if isinstance(proof, CutProof) else -1
    return Orders(problem, greedy, best, peaks, found.bound_bytes, str(found.proved_by), unit)


def show_order(document: Document) -> None:
    """All of it."""
    orders = _orders(document)
    if orders is None:
        st.info("A list of buffers has no ops to order. A graph has: gpt2, or teaching: order.")
        return
    with st.container(key="order_head", horizontal=True, vertical_alignment="bottom"):
        way = _pick_way(len(orders.problem.units))
        path = _path(orders, way)
        steps = steps_of(orders.problem, path)
        _figures(orders, steps)
    count = len(orders.problem.units)
    ready = ready_units(orders.problem, path, steps[-1].left if steps else 0)
    left, right = st.container(key="halves_order").columns([1.25, 1], gap="medium")
    with left:
        if count <= MOST_BY_HAND:
            _picture(orders.problem, Marked(path, [each.unit for each in ready]))
    with right:
        _live(orders, steps)
    if way is Way.HAND:
        _choose(orders, path, ready)
    elif way is Way.GUESS:
        _guess(orders, path, ready, max((step.live for step in steps), default=0))
    else:
        _walk(orders, way, path, ready)
    if len(path) == count:
        _end(orders, way, steps)


def _pick_way(count: int) -> Way:
    offered = [way for way in Way if count <= MOST_BY_HAND or way in (Way.GREEDY, Way.BEST)]
    asked = state.get("mode")
    current = next((way for way in offered if way == asked), offered[0])
    st.segmented_control(
        "Who chooses the order",
        offered,
        format_func=LABELS.__getitem__,
        required=True,
        width="content",
        **bound("order_way", current, lambda way: state.choose(mode=way, step="", order="")),
    )
    return current


def _path(orders: Orders, way: Way) -> tuple[int, ...]:
    """The ops that have run: what the address says, as far as it makes sense."""
    count = len(orders.problem.units)
    if way is Way.HAND:
        path: list[int] = []
        named = [part for part in state.get("order").split(",") if part]
        before = [set(_before(orders.problem, unit)) for unit in range(count)]
        for part in named:
            unit = int(part) if part.isascii() and part.isdigit() and len(part) < 6 else -1
            if not 0 <= unit < count or unit in path or not before[unit] <= set(path):
                show_note(f"order: found {part[:40]!r}, expected an op that is ready then.")
                break
            path.append(unit)
        return tuple(path)
    text = state.get("step")
    step = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    order = orders.best if way is Way.BEST else orders.greedy
    return order[: min(step, count)]


def _before(problem: OrderProblem, unit: int) -> list[int]:
    o = problem.arrays
    return list(o.before[o.before_of[unit] : o.before_of[unit + 1]].tolist())


def _figures(orders: Orders, steps: Sequence[ReadyUnit]) -> None:
    written, greedy, _ = orders.peaks
    peak = max((step.live for step in steps), default=0)
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(plain(f"peak so far {format_bytes(peak)}"), color="blue")
        st.badge(plain(f"live now {format_bytes(steps[-1].left if steps else 0)}"), color="gray")
        st.badge(plain(f"as written {format_bytes(written)}"), color="gray")
        st.badge(plain(f"greedy {format_bytes(greedy)}"), color="gray", help=GREEDY)
        st.badge(plain(f"bound {format_bytes(orders.bound)}"), color="gray", help="No order has a lower peak")


def _picture(problem: OrderProblem, marked: Marked) -> None:
    drawn = order_picture.svg(problem, marked, dark=st.context.theme.type == "dark")
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    told = escape(order_picture.sentence(problem, marked))
    st.html(f'<img class="lesson-picture" src="{source}" alt="{told}">')


def _live(orders: Orders, steps: Sequence[ReadyUnit]) -> None:
    names = names_of(orders.problem)
    shown = live_steps.LiveSteps(
        tuple(names[step.unit] for step in steps),
        tuple(step.live for step in steps),
        len(names),
        (("greedy", orders.peaks[1]), ("bound", orders.bound)),
    )
    st.plotly_chart(live_steps.figure(shown), key="order_live", config={"displayModeBar": False})


def _choose(orders: Orders, path: tuple[int, ...], ready: Sequence[ReadyUnit]) -> None:
    names = names_of(orders.problem)
    if ready:
        st.markdown(
            "**Which op runs next?** :gray[what it allocates, live bytes while it runs, and after it]"
        )
    with st.container(horizontal=True, gap="small", key="order_ready"):
        for each in ready:
            st.button(
                plain(_label(names, each)),
                key=f"order_{each.unit}",
                on_click=state.choose,
                kwargs={"order": ",".join(map(str, (*path, each.unit)))},
            )
        st.button(
            "Undo",
            key="order_undo",
            icon=":material/undo:",
            type="tertiary",
            disabled=not path,
            on_click=state.choose,
            kwargs={"order": ",".join(map(str, path[:-1]))},
        )
        st.button(
            "Start again",
            key="order_again",
            icon=":material/restart_alt:",
            type="tertiary",
            disabled=not path,
            on_click=state.choose,
            kwargs={"order": ""},
        )


def _label(names: Sequence[str], each: ReadyUnit) -> str:
    allocates, live, left = map(format_bytes, (each.allocates, each.live, each.left))
    return f"{names[each.unit]}: +{allocates}, {live}, then {left}"


def _guess(orders: Orders, path: tuple[int, ...], ready: Sequence[ReadyUnit], peak: int) -> None:
    """Which op greedy runs after `path`, whose peak is `peak` bytes; what was said of the last guess below,
    so that the buttons stay where they are."""
    if ready:
        _ask(orders, path, ready, peak)
    if told := st.session_state.pop(GUESSED, None):
        right, words = told
        (st.success if right else st.warning)(plain(words))


def _ask(orders: Orders, path: tuple[int, ...], ready: Sequence[ReadyUnit], peak: int) -> None:
    names = names_of(orders.problem)
    st.markdown("**Which op does greedy run next?**")
    wanted = next(each for each in ready if each.unit == orders.greedy[len(path)])
    with st.container(horizontal=True, gap="small", key="order_ready"):
        for each in ready:
            st.button(
                plain(_label(names, each)),
                key=f"guess_{each.unit}",
                on_click=_take_guess,
                args=(each, wanted, peak, len(path), names[each.unit]),
            )
        st.button(
            "Start again", key="guess_again", type="tertiary", on_click=state.choose, kwargs={"step": ""}
        )


def _take_guess(guess: ReadyUnit, wanted: ReadyUnit, peak: int, step: int, name: str) -> None:
    right = guess == wanted
    words = f"Yes: {name}." if right else f"No: {_why_not(guess, wanted, peak, name)}. Try again."
    st.session_state[GUESSED] = (right, words)
    if right:
        state.choose(step=str(step + 1))


def _why_not(guess: ReadyUnit, wanted: ReadyUnit, peak: int, name: str) -> str:
    """Why greedy does not run `guess`, without saying which op it runs."""
    if guess.live > max(peak, wanted.live):
        other = "another makes a lower one" if wanted.live > peak else "another op makes none"
        return f"{name} makes a new peak of {format_bytes(guess.live)}, and {other}"
    if guess.left > wanted.left:
        return f"after {name} {format_bytes(guess.left)} are live, after another op fewer"
    return f"another op is as good as {name}, and comes first in the graph"


def _walk(orders: Orders, way: Way, path: tuple[int, ...], ready: Sequence[ReadyUnit]) -> None:
    """One step after the other, with what was ready and what each would have done."""
    order = orders.best if way is Way.BEST else orders.greedy
    names, count = names_of(orders.problem), len(order)
    st.slider(
        "Ops that have run",
        0,
        count,
        **bound("order_step", len(path), lambda step: state.choose(step=str(step) if step else "")),
    )
    if not ready:
        return
    taken = order[len(path)]
    shown = sorted(ready, key=lambda each: (each.unit != taken, each.live, each.left))[:MOST_READY]
    rows = pd.DataFrame(
        {
            "": ["runs next" if each.unit == taken else "" for each in shown],
            "ready": [names[each.unit] for each in shown],
            "allocates": [each.allocates for each in shown],
            "live while it runs": [each.live for each in shown],
            "frees": [each.frees for each in shown],
            "left": [each.left for each in shown],
        }
    )
    show_table(
        rows, whole("allocates", "live while it runs", "frees", "left"), key="order_candidates", most=260
    )


def _end(orders: Orders, way: Way, steps: Sequence[ReadyUnit]) -> None:
    """What the order came to, and why none is better."""
    peak = max(step.live for step in steps)
    words = format_bytes(peak)
    if peak <= orders.bound:
        st.success(plain(f"{words}: no order of these ops has a lower peak, proved by {orders.proved_by}."))
        if way is Way.HAND and not lessons.is_answered():
            lessons.take_answer(-1, len(steps))
            # The answer stands above, and is drawn already without it.
            state.run_again()
    elif way is Way.HAND:
        beats = "lower than greedy" if peak < orders.peaks[1] else "no lower than greedy"
        st.info(plain(f"{words}, {beats}. The bound is {format_bytes(orders.bound)}: Undo, or start again."))
        return
    if orders.unit >= 0:
        _proof(orders)


def _proof(orders: Orders) -> None:
    """The closed set at which every order holds what the bound says, and the storages that cross its
    border."""
    problem = orders.problem
    found, names = crossing_set(problem, orders.unit), names_of(problem)
    sizes = [(problem.storages[each], int(problem.arrays.size[each])) for each in found.crossing]
    crossing = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes[:MOST_BY_HAND])
    inside = ", ".join(names[each] for each in found.units[:MOST_BY_HAND])
    name = names[found.unit]
    st.markdown("**The cut that proves it**")
    if len(names) <= MOST_BY_HAND:
        marked = Marked(inside=found.units, unit=found.unit, crossing=found.crossing)
        _picture(problem, marked)
    st.markdown(
        plain(
            f"Whatever the order, right before {name} some set of ops has run: with each op all that it "
            f"waits for, and not {name}. Of all such sets {{{inside}}} leaves the fewest bytes: "
            f"{crossing or 'nothing'}, made inside and needed outside. With the "
            f"{format_bytes(found.makes)} that {name} makes that is {format_bytes(found.needed)}, always."
        )
    )
