"""What came of a fit: the answer in a sentence, chips, stages, profiles, changes, and what to take away."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import profiles_overlaid, stage_waterfall
from memplan_dashboard.session import fitting
from memplan_dashboard.session.messages import errors_shown, file_name, plain
from memplan_dashboard.widgets.code_blocks import show_code
from memplan_dashboard.widgets.tables import MOST_ROWS, show_table, whole

from memplan_engine.advice.fit_stages import Fitted, Stage, StageName
from memplan_engine.advice.stage_changes import StageChange
from memplan_engine.analysis.claims import counted, doubt
from memplan_engine.diffing.rewritten import Rewrote, rewritten_ops
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.formats.memplan_json.schedule_format import order_bytes
from memplan_engine.reporters.diff_words import rewrite_rows
from memplan_engine.reporters.fit.fit_words import TOLD, fit_proof, fit_verdict, held_words, patch_words
from memplan_engine.units import exact, format_bytes, format_percent
from memplan_engine.verdict import Verdict, verdict_text

STILL = {"displayModeBar": False}
MOST_LINES = 2
"""Of code, that a card shows at first."""
MOST_FILES = 3
"""Of sources, that are named."""


def show_answer(fitted: Fitted, unfinished: bool) -> None:
    """The verdict first, in one sentence; then chips. `unfinished`: more stages may come."""
    subject, rest = fit_verdict(fitted, unfinished)
    with st.container(key="headline"):
        st.subheader(f"{plain(subject)} :gray[{plain(rest)}]", anchor=False)
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        _verdict_chip(fitted, unfinished)
        best = fitted.best
        if best.proved:
            words = (
                "no order is lower: proved" if best.is_of_all_orders else "no arena of this order is smaller"
            )
            told = plain(fit_proof(best))
            if doubt(best.plan.problem) is None:
                st.badge(plain(words), icon=":material/check:", color="green", help=told)
            else:
                st.badge(plain(words), color="gray", help=told)
        else:
            over = best.plan.arena_bytes / max(best.bound_bytes, 1) - 1
            told = plain(fit_proof(best))
            st.badge(plain(f"at most {format_percent(over)} above the bound"), color="blue", help=told)
        needed = f"{fitted.needed_bytes:,} B"
        parts = f"state {exact(fitted.state_bytes)}, arena {exact(best.plan.arena_bytes)}"
        st.badge(plain(needed), color="gray", help=plain(f"Arena + state. {parts}"))
        if fitted.capacity is not None:
            room = fitted.capacity - fitted.needed_bytes
            st.badge(
                plain(f"{format_bytes(abs(room))} {'left' if room >= 0 else 'missing'}"),
                color="gray",
                help=plain(f"Of the capacity of {exact(fitted.capacity)}"),
            )
        if workspace := best.plan.total_bytes - best.plan.arena_bytes:
            told = "Temporaries of ops lie outside the arena and are not in the verdict"
            st.badge(plain(f"temporaries {format_bytes(workspace)} more"), color="gray", help=plain(told))
    st.caption(plain(f"Counted: {counted(fitted.best.plan.problem)}"))


def _verdict_chip(fitted: Fitted, unfinished: bool) -> None:
    if fitted.verdict is None:
        return
    words = verdict_text(fitted.verdict, fitted.reason)
    if fitted.verdict is Verdict.FITS:
        st.badge(words, icon=":material/check:", color="green")
    elif fitted.verdict is Verdict.DOES_NOT_FIT:
        st.badge(words, icon=":material/block:", color="red", help=plain(f"Proved: {fitted.proof}"))
    elif not unfinished:
        told = "No stage fits, and there is no proof that none can"
        if fitted.reason is not None:
            told = fitted.reason.meaning
        st.badge(words, icon=":material/help:", color="orange", help=told)


def show_stages(fitted: Fitted) -> None:
    """The waterfall, and a row a stage."""
    st.markdown("**Stage by stage** :gray[the arena; each stage keeps what those before it won]")
    if fitted.capacity is not None:
        shares = stage_waterfall.capacity_figure(
            fitted.state_bytes, fitted.best.plan.arena_bytes, fitted.capacity
        )
        st.plotly_chart(shares, key="capacity_shares", config=STILL)
    chart = stage_waterfall.figure(stage_waterfall.data(fitted))
    st.plotly_chart(chart, key="stage_waterfall", config=STILL)
    if fitted.capacity is not None:
        _capacity_note(fitted)
    stages = fitted.stages
    before = (stages[0], *stages)
    saved = [
        earlier.plan.arena_bytes - stage.plan.arena_bytes
        for earlier, stage in zip(before, stages, strict=False)
    ]
    rows = pd.DataFrame(
        {
            "stage": [TOLD[stage.name] for stage in stages],
            "live bytes": [stage.load_bytes for stage in stages],
            "arena": [stage.plan.arena_bytes for stage in stages],
            "saved": saved,
            "bound": [stage.bound_bytes for stage in stages],
            "of": ["every order" if stage.is_of_all_orders else "this order" for stage in stages],
            "proved": ["smallest" if stage.proved else "" for stage in stages],
        }
    )
    columns = {
        "stage": st.column_config.TextColumn(width=180),
        **whole("live bytes", "arena", "bound"),
        # By its first cell, 0, it would be too narrow for the others.
        "saved": st.column_config.NumberColumn(format="localized", width=95),
        "of": st.column_config.TextColumn(width=80),
        "proved": st.column_config.TextColumn(width=70),
    }
    show_table(rows, columns, key="fit_stages_table")


def _capacity_note(fitted: Fitted) -> None:
    assert fitted.capacity is not None
    room = fitted.capacity - fitted.state_bytes
    left = f"{exact(room)} are left for the arena" if room >= 0 else f"{exact(-room)} more than there is"
    st.caption(plain(f"State, which comes off first: {exact(fitted.state_bytes)}; {left}."))


def show_profiles(fitted: Fitted) -> None:
    """Live bytes before and after, over the steps of each."""
    first, best = fitted.stages[0], fitted.best
    if first is best:
        return
    st.markdown(f"**Live bytes over the step** :gray[before, and with {plain(TOLD[best.name])}]")
    room = None if fitted.capacity is None else fitted.capacity - fitted.state_bytes
    chart = profiles_overlaid.figure(profiles_overlaid.before_and_after(first.plan, best.plan), room)
    st.plotly_chart(chart, key="fit_profiles", config=STILL)


def show_changes(fitted: Fitted, changes: tuple[StageChange, ...]) -> None:
    """A card for each stage that changes something, with what to write, and why others are not there."""
    used = len(fitted.stages) - 1
    told = f"{len(changes)} of {used} stages change something" if used else "none: it fits as it is"
    st.markdown(f"**The changes** :gray[{told if fitted.capacity is not None or used else 'none'}]")
    for change in changes:
        with st.container(border=True, key=f"change_{change.stage.name}"):
            saved = change.saved_bytes
            tone = f":green[**−{format_bytes(saved)}**]" if saved > 0 else ":gray[saves nothing]"
            st.markdown(f"{tone} {plain(change.change.title)}")
            if change.change.note:
                st.caption(plain(change.change.note))
            show_code(change.change.code, MOST_LINES)
            if change.stage.name is StageName.REORDER:
                _show_moved(fitted, change.stage)
    for name, why in fitted.skipped:
        if why != "not asked for":
            st.caption(plain(f"No {TOLD[name]}: {why}."))


def show_held(fitted: Fitted) -> None:
    """What holds the gradients of a training step: the lines that stand in the way of freeing them early."""
    if not fitted.gradients:
        return
    st.markdown("**What holds gradients** :gray[of the step as it was captured]")
    for row, group in enumerate(fitted.gradients):
        with st.container(border=True, key=f"held_{row}"):
            free = group.free and not group.readers
            tone = ":green[**can go early**]" if free else ":orange[**held**]"
            st.markdown(f"{tone} {plain(held_words(group))}")
            for op in (group.op, *group.readers):
                if op is not None and op.source is not None:
                    st.code(f"{op.source.code.strip()}  # {op.source}", language="python")


def show_patch(fitted: Fitted) -> None:
    """The changes as a patch of the user's own file, which is read here and never run."""
    files = {op.source.file for op in fitted.stages[0].graph.ops if op.source is not None}
    if len(fitted.stages) == 1 or not files:
        return
    with st.expander("As a patch of your file"):
        shown = ", ".join(sorted(files)[:MOST_FILES]) + ", …" * (len(files) > MOST_FILES)
        uploaded = st.file_uploader(
            plain(f"The source, one of {shown}"), "py", key="fit_source", help="Read, not run, and not kept"
        )
        if uploaded is None:
            return
        with errors_shown():
            change = fitting.proposed(fitted, uploaded.name, uploaded.getvalue())
            for words in patch_words(change):
                st.caption(plain(words))
            if change.diff:
                st.code(change.diff, language="diff")
                st.caption(
                    "Nothing was run here, so no saving is claimed: `memplan fit FILE.py:FACTORY --patch "
                    "out.patch` runs and captures the changed file first, and writes only what holds."
                )


def _show_moved(fitted: Fitted, stage: Stage) -> None:
    """Which ops move, and how the model runs in the order."""
    ops = [each for each in rewritten_ops(fitted.stages[0].plan, stage.plan) if each.what is Rewrote.MOVED]
    with st.expander(f"Ops that move: {len(ops):,}"):
        rows = pd.DataFrame(rewrite_rows(stage.plan, ops[:MOST_ROWS])).drop(columns=["what", "kind"])
        show_table(rows, whole("step before", "step after", "bytes"), key="fit_moved")


def show_downloads(fitted: Fitted) -> None:
    """The order and the plan of the best stage, to run, compare and check."""
    best, name = fitted.best, file_name(fitted.best.plan.problem.name)
    with st.container(key="to_take", horizontal=True, vertical_alignment="center", gap="small"):
        for text, file, told, make in (
            (
                "Order, JSON",
                f"{name}_order.json",
                "A step for each op: `memplan run --schedule` runs the model in it.",
                lambda: order_bytes(best.graph),
            ),
            (
                "Plan, JSON",
                f"{name}_plan.json",
                "The best plan with its bound and its graph: `memplan validate` checks it, `memplan run "
                "--plan` runs it.",
                lambda: dumps(best.plan),
            ),
        ):
            st.download_button(
                text,
                make,
                file,
                "application/json",
                icon=":material/download:",
                type="tertiary",
                on_click="ignore",
                help=told,
            )
