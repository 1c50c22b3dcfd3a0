"""The course: eight short lessons, each with places of the Replay page that show it. Also docs/course.md.

The Replay page shows the lesson that it was opened with above its picture.
"""

from __future__ import annotations

import base64
import textwrap
from dataclasses import dataclass
from urllib.parse import urlencode

import streamlit as st
from memplan_dashboard.charts import keep_picture, lesson_picture, order_picture
from memplan_dashboard.session import progress, state
from memplan_dashboard.session.documents import Options
from memplan_dashboard.session.messages import show_note
from memplan_dashboard.widgets.kept_layers import KeptLayers, kept_layers

from memplan_engine import Graph, Replay, make_replay
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem

DASHBOARD = "http://127.0.0.1:8501"
WIDTH = 110
NOTHING_RUN = order_picture.Marked()


@dataclass(frozen=True, slots=True)
class Place:
    """A state of the Replay page: an example, a strategy, a step (1 …) and a mode, as the URL has them."""

    label: str
    example: str
    strategy: str = ""
    step: int = 1
    mode: str = ""

    def choices(self, lesson: int) -> dict[str, str]:
        """The query parameters, those that are not needed as ""."""
        return {
            "doc": f"example:{self.example}",
            "strategy": self.strategy,
            "step": str(self.step) if self.step > 1 else "",
            "mode": self.mode,
            "lesson": str(lesson),
        }

    def url(self, lesson: int) -> str:
        """The address below the dashboard's own."""
        given = {name: value for name, value in self.choices(lesson).items() if value}
        return f"/replay?{urlencode(given, safe=':')}"


@dataclass(frozen=True, slots=True)
class Lesson:
    """A title, a few paragraphs of Markdown that end in a question, its answer, and places to look at: the
    first one opens with the lesson."""

    title: str
    text: str
    answer: str
    places: tuple[Place, ...]


LESSONS = (
    Lesson(
        "Lifetimes",
        "A buffer is a rectangle: as wide as the steps in which it is needed, from the operation that "
        "writes it to the last one that reads it, and as tall as its bytes. Its width and height are "
        "given; a planner chooses only how high it lies, its *offset*. The top of the highest one is "
        "the *arena*, what must be allocated.\n\n"
        "Without reuse all rectangles lie one above the other: 14 B here. Yet a and c never live at "
        "the same step, so they may have the same bytes. What is live at one step may not, so no "
        "arena is smaller than the most live bytes at a step: 7 B, at step 2. That is the *lower "
        "bound*. Can it be reached?",
        "It can: with b at 6 B all others lie below it, and the arena is as large as the bound.",
        (
            Place("Without reuse", "teaching_linear_scan", "naive"),
            Place("By hand: can you reach 7 B?", "teaching_linear_scan", mode="exercise"),
        ),
    ),
    Lesson(
        "Holes and first fit",
        "The simplest planner places one buffer after the other, in order of start, and never changes "
        "its mind. Of the buffers that are placed it looks only at those live with the new one; "
        "between them are *holes*. First fit takes the lowest hole that is large enough, else it goes "
        "above all of them.\n\n"
        "Here a leaves a hole of 3 B and c one of 2 B: which one does first fit give to e, 2 B, and what "
        "becomes of f, 3 B, after it?",
        "First fit takes the hole that a has left, though the one of c would fit e exactly. Then f "
        "finds no hole at all, and the arena grows to 10 B where 7 B are enough.",
        (
            Place("Predict where e goes", "teaching_first_fit", "first_fit_by_start", 5, "predict"),
            Place("What becomes of f", "teaching_first_fit", "first_fit_by_start", 6),
            Place("Predict every step", "teaching_first_fit", "first_fit_by_start", mode="predict"),
        ),
    ),
    Lesson(
        "Best fit, and the order",
        "Best fit takes the tightest hole, so that large ones stay whole. It is no cure. In the first "
        "example f, 2 B, is next, and two holes can hold it: which one will it get? Predict it, then go "
        "on to g and see what that choice has cost.\n\n"
        "What helps more is the order. Large buffers are hard to place and small ones go anywhere, so "
        "most planners place the largest first. That, too, can be far off: can you beat it by hand?",
        "The tightest hole it is, of 2 B; best fit ends at 12 B, first fit in the same order at 10 B. The "
        "second example ends at 11 B with the largest first, and 7 B are enough.",
        (
            Place("Predict where f goes", "teaching_best_fit", "greedy_by_size", 6, "predict"),
            Place("Largest first, far off", "teaching_greedy_by_size", "greedy_by_size", 5),
            Place("By hand: beat greedy", "teaching_greedy_by_size", mode="exercise"),
        ),
    ),
    Lesson(
        "Linear scan",
        "A compiler that hands out registers goes through the program once, and so can a planner: an "
        "*active set* of what is live now, and a *free list* of bytes that nobody has. A buffer that "
        "ends gives its bytes back, one that starts takes a range that holds it. It is quick, and it "
        "never sees what comes.\n\n"
        "Here b lies on top of a, and a has ended: where does c, 6 B, go?",
        "The 5 B of a are one too few, and b is in the way above: it goes to the end, 12 B where 7 B are "
        "enough.",
        (
            Place("Predict where c goes", "teaching_linear_scan", "linear_scan", 3, "predict"),
            Place("Predict every step", "teaching_first_fit", "linear_scan", mode="predict"),
        ),
    ),
    Lesson(
        "Shared objects",
        "Some runtimes cannot cut an arena as they like, for GPU textures say. They have whole "
        "*objects*, and buffers take turns in them. Two that are live together need two objects, and "
        "an object is as large as its largest buffer.\n\n"
        "Each lane is an object. A buffer joins one that is free while it lives, else it gets a new "
        "one. What an object has beyond the buffer of the moment lies idle. Objects one behind "
        "another are an arena, too, so the best arena is never larger than the best objects. Here a comes "
        "fourth: which object takes it?",
        "None: all that there are have a buffer that is live with it, so it gets one of its own.",
        (
            Place("Predict which one", "teaching_greedy_by_size", "shared_objects_by_size", 4, "predict"),
            Place("The same with partition", "teaching_greedy_by_size", "partition", 4),
        ),
    ),
    Lesson(
        "Branch and bound",
        "To know that nothing smaller exists one has to try everything, or show why it need not be "
        "tried. Here no step holds more than 5 B. Does everything fit into 5 B?\n\n"
        "The search asks whether all fits within a capacity. It takes a buffer and *branches*: it "
        "lies at the lowest offset it can have, or it does not and rests on another one. After each "
        "decision a *bound* tells how much must be needed; where that is more than the capacity, the "
        "node is *pruned* with all that would lie below it.",
        "It does not: the whole tree is refuted at 5 B. Then 6 B are asked for, and found: a proof that 6 "
        "B are the optimum.",
        (
            Place("By hand: what is the least?", "teaching_no_way_out", mode="exercise"),
            Place("The search, node by node", "teaching_no_way_out", "exact"),
        ),
    ),
    Lesson(
        "The order of the ops",
        "Until here the ops were given in an order, and with it the lifetimes. Most graphs leave a choice: "
        "an op may run as soon as all that it reads is there. While it runs, what it makes is live beside "
        "all that somebody still needs; after it goes what nobody reads any more. So the order decides the "
        "peak, and with it the bound of every plan.\n\n"
        "Here are eight ops with the bytes that each makes. A greedy rule runs, of those that are ready, "
        "the op that leaves the fewest bytes without a new peak, else the one with the lowest new peak. It "
        "comes to 24 KiB. Which op does it run first? And can you do better?",
        "Greedy begins with d, 1 KiB, for a makes a higher peak. a, f, g, b, c, d, e, h has a peak of 16 "
        "KiB: what a needs costs more at first, and pays off later. No order is better. While c runs there "
        "are b and c itself, 14 KiB, and at least 2 KiB of a, f and g.",
        (
            Place("You order: beat greedy", "teaching_order", mode="order"),
            Place("Predict what greedy runs", "teaching_order", mode="order_guess"),
        ),
    ),
    Lesson(
        "Recomputation",
        "In a training step most bytes are results of the forward pass that wait until the backward pass "
        "reads them. One can let go of them, and run their ops again right before: fewer bytes for more "
        "time. What is made again may need another that is gone. That one is made first, and is live beside "
        "it.\n\n"
        "Here are six layers with the bytes that each makes and the milliseconds that it takes, back twice "
        "as many, 60 ms in all. With all results kept 31 MiB are live, and 20 MiB is what there is. Without "
        "the two largest, of f1 and f2, 18 MiB are enough, but both run again, 10 ms. Without any of f1 to "
        "f5 it is 30 MiB: to make the last of them all others are made first. What would you keep?",
        "The results of f1, f3 and f5: f2 and f4 run again, 6 ms, a tenth more time. No schedule is quicker. "
        "When b6 runs first, let each MiB that is there cost ⅔ ms. Then the result of f1 is cheaper kept, 5⅓ "
        "of 6 ms, that of f2 made again, 4 of 5⅓ ms, and with all others as cheap as can be it comes to 19⅓ "
        "ms. Within 20 MiB the bytes cost 13⅓ ms at most, so that 6 ms at least are run again.",
        (Place("You choose what to keep", "teaching_recompute", mode="keep"),),
    ),
)


def course_markdown() -> str:
    """The course as the page of the documentation."""
    parts = [
        "# A short course in memory planning\n\n"
        "Eight lessons, also in the dashboard on the page Learn. Start it with `memplan dashboard`; the\n"
        "links open its Replay page where the lesson begins."
    ]
    for number, lesson in enumerate(LESSONS, 1):
        links = "\n".join(f"- [{place.label}]({DASHBOARD}{place.url(number)})" for place in lesson.places)
        text = "\n\n".join(textwrap.fill(each, WIDTH) for each in lesson.text.split("\n\n"))
        answer = f"<details><summary>Answer</summary>\n{textwrap.fill(lesson.answer, WIDTH)}\n</details>"
        parts.append(f"## {number}. {lesson.title}\n\n{text}\n\n{links}\n\n{answer}")
    return "\n\n".join(parts) + "\n"


def show_lesson() -> None:
    """The lesson that the URL names, if any, with its places and the way to the next one."""
    asked = state.get("lesson")
    if not asked:
        return
    number = parse_lesson(asked)
    if not number:
        show_note(f"lesson: found {asked[:40]!r}, expected 1 to {len(LESSONS)}.")
        state.choose(lesson="")
        return
    lesson = LESSONS[number - 1]
    title = f"Lesson {number} of {len(LESSONS)}: {lesson.title}"
    with st.container(key="open_lesson"), st.expander(title, expanded=True):
        st.markdown(lesson.text)
        # Of one height with and without an answer: the picture stays where it is.
        with st.container(key="lesson_answer"):
            show_answer(number)
        with st.container(horizontal=True):
            current = _current(lesson, number)
            for place in lesson.places:
                here = place is current
                st.button(
                    place.label,
                    key=f"place_{number}_{place.label}",
                    type="primary" if here else "secondary",
                    on_click=go_to,
                    args=(place, number),
                )
            st.space("stretch")
            if number > 1:
                _to_lesson("Previous", ":material/arrow_back:", number - 1)
            if number < len(LESSONS):
                _to_lesson("Next lesson", ":material/arrow_forward:", number + 1)
            st.button(
                "Close", key="lesson_close", type="tertiary", on_click=state.choose, kwargs={"lesson": ""}
            )


def show_answer(number: int) -> None:
    """The answer to the question of a lesson, once the visitor has given one or wants to see it."""
    if number in progress.done():
        st.success(LESSONS[number - 1].answer, icon=":material/check_circle:")
    else:
        st.button(
            "Show the answer",
            key=f"answer_{number}",
            icon=":material/visibility:",
            type="tertiary",
            on_click=progress.add,
            args=(number,),
        )


def take_answer(step: int, steps: int) -> None:
    """The reader of a lesson has answered at `step` (0 …) of `steps`, or, below 0, reached the optimum."""
    number = parse_lesson(state.get("lesson"))
    places = LESSONS[number - 1].places if number else ()
    asked = [place.step - 1 if place.step > 1 else steps - 1 for place in places if place.mode == "predict"]
    if number and (step < 0 or step in asked):
        progress.add(number)


def is_answered() -> bool:
    """Whether the question of the lesson that is open is answered; True without a lesson."""
    number = parse_lesson(state.get("lesson"))
    return not number or number in progress.done()


def picture(lesson: Lesson, dark: bool) -> tuple[str, str]:
    """The lesson's first place before its question is answered, as SVG and in words."""
    place = lesson.places[0]
    if place.mode == "keep":
        layers = _layers_of(place.example)
        ops = layers.drawn()
        return keep_picture.svg(ops, layers.choices, (), dark), keep_picture.sentence(ops, layers.choices, ())
    if place.mode.startswith("order"):
        problem = _order_of(place.example)
        return order_picture.svg(problem, NOTHING_RUN, dark), order_picture.sentence(problem, NOTHING_RUN)
    strategy = place.strategy or "naive"
    replay = _replay(place.example, strategy)
    before = len(replay) if strategy == "naive" else place.step - 1
    return lesson_picture.svg(replay, before, dark), lesson_picture.sentence(replay, before)


def picture_html(lesson: Lesson, dark: bool) -> str:
    """The picture as an image, which says in words what it shows."""
    drawn, told = picture(lesson, dark)
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    return f'<img class="lesson-picture" src="{source}" alt="{escape(told)}">'


@st.cache_resource(max_entries=16, show_spinner=False)
def _replay(example: str, strategy: str) -> Replay:
    return make_replay(state.load_document(f"example:{example}", Options()).problem, strategy)


@st.cache_resource(max_entries=4, show_spinner=False)
def _order_of(example: str) -> OrderProblem:
    graph = state.load_document(f"example:{example}", Options()).loaded
    assert isinstance(graph, Graph)
    return order_problem(graph, merge=False)


@st.cache_resource(max_entries=4, show_spinner=False)
def _layers_of(example: str) -> KeptLayers:
    graph = state.load_document(f"example:{example}", Options()).loaded
    assert isinstance(graph, Graph)
    layers = kept_layers(graph)
    assert layers is not None
    return layers


def parse_lesson(text: str) -> int:
    """The number of the lesson that a URL names; 0 for none that there is."""
    return int(text) if text in map(str, range(1, len(LESSONS) + 1)) else 0


def go_to(place: Place, number: int) -> None:
    """Choose what `place` shows."""
    state.choose(**choices_of(place, number))


def choices_of(place: Place, number: int) -> dict[str, str]:
    """The choices that show `place`."""
    choices = place.choices(number)
    return state.document_choices(choices.pop("doc"), Options(), **choices)


def _current(lesson: Lesson, number: int) -> Place | None:
    """The place of the lesson that is open: at its step, or else where the reader has gone on from it."""
    for names in (("doc", "strategy", "mode", "step"), ("doc", "strategy", "mode")):
        for place in lesson.places:
            wanted = place.choices(number)
            if all(state.get(name) == wanted[name] for name in names):
                return place
    return None


def _to_lesson(label: str, icon: str, number: int) -> None:
    place = LESSONS[number - 1].places[0]
    st.button(label, key=f"lesson_{number}", icon=icon, type="tertiary", on_click=go_to, args=(place, number))
