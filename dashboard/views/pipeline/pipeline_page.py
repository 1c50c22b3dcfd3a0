"""Pipeline: what each rank of a pipeline does for which micro-batch, and what it holds meanwhile."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st
from memplan_dashboard.charts import pipeline_rows
from memplan_dashboard.session import rank_runs, state
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.tables import show_table, whole

from memplan_engine.accelerators.presets import USUAL
from memplan_engine.devices.rank_answers import RankAnswer
from memplan_engine.devices.rank_timeline import RankTimeline, step_ranges, timeline
from memplan_engine.recordings.rank_run import PipelineAction
from memplan_engine.reporters.devices.device_tables import written
from memplan_engine.units import exact, format_bytes

STILL = {"displayModeBar": False}
MOST_RANKS = 16
FIRST = "recorded:llama_1F1B"


def _last_step(answer: RankAnswer) -> tuple[RankTimeline, tuple[PipelineAction, ...]]:
    flow = answer.run.observation.flow
    assert flow is not None
    first, end = (step_ranges(flow) or ((0, 0),))[-1]
    mine = tuple(each for each in answer.run.actions if first <= each.first < end)
    return timeline(answer.run, answer.answers.chosen.held, first, end), mine


def _peak(line: RankTimeline) -> tuple[int, int]:
    live = np.sum([*line.live.values()], axis=0)
    return int(live.max(initial=0)), line.first + int(live.argmax()) if len(live) else line.first


def _in_flight(actions: tuple[PipelineAction, ...], op: int) -> int:
    """Micro-batches that have begun their forward pass by `op`, and not ended their backward pass."""
    begun = {(each.stage, each.micro_batch) for each in actions if each.kind == "F" and each.first <= op}
    last = {(each.stage, each.micro_batch): each.end for each in actions if each.kind in ("B", "I", "W")}
    return len({number for stage, number in begun if last.get((stage, number), op + 1) > op})


def _show(key: str) -> None:
    ranks = [each for each in rank_runs.answers_of(key, USUAL, "", "").ranks if each.run.actions]
    if not ranks:
        st.info("This run has no pipeline: its actions are those of torch.distributed.pipelining.")
        return
    rows = [(each, *_last_step(each)) for each in ranks]
    peaks = [_peak(line) for _, line, _ in rows]
    top = max(nbytes for nbytes, _ in peaks)
    leader = next(place for place, (nbytes, _) in enumerate(peaks) if nbytes == top)
    fullest, _, actions = rows[leader]
    op = peaks[leader][1]
    at = next((each for each in actions if each.first <= op < each.end), None)
    where = "between actions" if at is None else f"at {at.kind}{at.micro_batch} of stage {at.stage}"
    number = _in_flight(actions, op)
    flying = f"{number:,} micro-batch{'' if number == 1 else 'es'}"
    told = f"Peak {format_bytes(top)} on rank {fullest.run.rank}, {where}: {flying} in flight"
    with st.container(key="headline"):
        st.subheader(f"{plain(told)} :gray[live bytes; {plain(rank_runs.label_of(key))}]", anchor=False)
    with st.container(key="figures", horizontal=True, gap="small"):
        st.badge(plain(exact(top)), color="blue")
        for kind, name in pipeline_rows.NAMES.items():
            if any(each.kind == kind for each in actions):
                st.badge(plain(f"{kind} {name}"), color="gray")
    st.caption(
        "Actions as torch's schedule ran them, over each rank's own ops of its last step; how long one waits "
        "for another is not known."
    )
    for place, (each, line, mine) in enumerate(rows[:MOST_RANKS]):
        kind = "fullest" if place == leader else "other"
        with st.container(border=True, key=f"rankcard_{kind}_{each.run.rank}"):
            stages = ", ".join(map(str, each.run.stages))
            name = (
                f"**Ranks {written(each.run.ranks)}**"
                if len(each.run.ranks) > 1
                else f"**Rank {each.run.rank}**"
            )
            st.markdown(f"{name}, stage {stages}: {plain(format_bytes(peaks[place][0]))}")
            st.plotly_chart(pipeline_rows.figure(line, mine, top), key=f"pipeline_{place}", config=STILL)
    if len(rows) > MOST_RANKS:
        st.caption(f"{len(rows) - MOST_RANKS:,} more ranks are on the page Devices.")


def _compare(known: dict[str, str]) -> None:
    """The fullest rank of each schedule that comes along, in its last step."""
    found = []
    for key in known:
        ranks = [each for each in rank_runs.answers_of(key, USUAL, "", "").ranks if each.run.actions]
        if ranks:
            peaks = [(_peak(_last_step(each)[0])[0], each.run.rank) for each in ranks]
            nbytes, rank = max(peaks, key=lambda each: (each[0], -each[1]))
            found.append({"schedule": known[key], "live bytes": nbytes, "fullest": f"rank {rank}"})
    found.sort(key=lambda row: int(str(row["live bytes"])))
    st.markdown("**Schedules by their fullest rank** :gray[the same Llama, 2 ranks, 4 micro-batches]")
    show_table(pd.DataFrame(found), whole("live bytes"), key="schedules_table")


def _page() -> None:
    known = rank_runs.catalogue()
    key = state.get("ranks") or FIRST
    with controls.row([2, 3])[0]:
        controls.pick_key(
            "Run", known, key, "pipeline_widget", lambda name: state.choose(ranks=name, rank="")
        )
    with errors_shown():
        _show(key)
    with errors_shown():
        _compare({each: name for each, name in known.items() if each.startswith(rank_runs.EXAMPLE)})


_page()
