"""What came of ranks on devices: the verdict, a rank over its step, all ranks, other configurations."""

from __future__ import annotations

from itertools import groupby
from typing import Literal

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import rank_areas
from memplan_dashboard.charts.markup import picture
from memplan_dashboard.session import state
from memplan_dashboard.session.messages import plain
from memplan_dashboard.widgets.tables import MOST_ROWS, show_table, whole

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.devices.rank_answers import DeviceAnswers, RankAnswer
from memplan_engine.devices.rank_timeline import (
    RankTimeline,
    curve_digest,
    module_bytes,
    step_ranges,
    timeline,
)
from memplan_engine.recordings.observed_flow import flow_live
from memplan_engine.reporters.allocator.answer_tables import live_basis
from memplan_engine.reporters.devices.device_tables import NATIVE, peak_categories, written
from memplan_engine.reporters.devices.device_words import BEFORE_ALL, device_headline, failed_op, where_text
from memplan_engine.units import exact, format_bytes
from memplan_engine.verdict import Verdict, verdict_text

STILL = {"displayModeBar": False}
MOST_CARDS = 16
"""Small multiples that are drawn; the table has all."""
A_ROW = 4
COLOURS: dict[Verdict, Literal["blue", "orange", "red"]] = {
    Verdict.FITS: "blue",
    Verdict.UNDECIDED: "orange",
    Verdict.DOES_NOT_FIT: "red",
}
ICONS = {
    Verdict.FITS: ":material/check:",
    Verdict.UNDECIDED: ":material/help:",
    Verdict.DOES_NOT_FIT: ":material/block:",
}


def show_answer(answers: DeviceAnswers, gpu: Accelerator, label: str) -> None:
    """The verdict in a sentence, then the three answers of the fullest rank as chips."""
    verdict, basis = device_headline(answers, gpu)
    world = answers.ranks[0].run.world_size
    with st.container(key="headline"):
        told = f"{verdict[0].upper()}{verdict[1:]}: {basis}"
        st.subheader(f"{plain(told)} :gray[{plain(f'{label}, {world:,} × {gpu.full_name}')}]", anchor=False)
    fullest = answers.fullest
    chosen, device = fullest.answers.chosen, fullest.answers.chosen.device
    assert device is not None
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(
            verdict_text(fullest.verdict, fullest.reason),
            icon=ICONS[fullest.verdict],
            color=COLOURS[fullest.verdict],
        )
        live = fullest.answers.live_bytes
        st.badge(
            plain(f"live {format_bytes(live)}"),
            color="blue",
            help=plain(f"{exact(live)}, {live_basis(fullest.answers)}"),
        )
        basis = "rules only" if chosen.run.is_rules_only else "simulated"
        name = str(chosen.settings) or NATIVE
        st.badge(
            plain(f"reserved {format_bytes(fullest.reserved_bytes)}, {name}, {basis}"),
            color="gray",
            help=plain(exact(fullest.reserved_bytes)),
        )
        low, high = map(format_bytes, fullest.total_bytes)
        st.badge(plain(f"device total {low} to {high}"), color="gray", help="Reserved, and what is beside")
        beside = f"{format_bytes(device.least_overhead)} to {format_bytes(device.most_overhead)}"
        sources = "; ".join(f"{count} × {each.name}: {each.source}" for each, count in device.overheads)
        st.badge(plain(f"of that the backend's own {beside}"), color="gray", help=plain(sources))
        for other in fullest.answers.others:
            rules = ", rules only" if other.run.is_rules_only else ""
            told = f"{str(other.settings) or NATIVE}: {format_bytes(other.run.peak_reserved)}{rules}"
            st.badge(plain(told), color="gray")


def line_of(answer: RankAnswer) -> RankTimeline:
    """The step in which it runs out, or in which most is live."""
    flow = answer.run.observation.flow
    assert flow is not None
    failed = failed_op(answer)
    live = flow_live(flow)
    # Of steps that are alike the last: the first also makes what the optimizer keeps.
    last = len(live) - 1 - int(live[::-1].argmax()) if len(live) else 0
    op = last if failed is None else failed
    steps = step_ranges(flow) or ((0, 0),)
    first, end = next((each for each in steps if each[0] <= op < each[1]), steps[-1])
    return timeline(answer.run, answer.answers.chosen.run, first, end)


def show_chart(answer: RankAnswer) -> None:
    """Categories over the ops of a step, what is reserved, and what the allocator can have."""
    flow, device = answer.run.observation.flow, answer.answers.chosen.device
    assert flow is not None
    assert device is not None
    st.markdown(f"**Rank {answer.run.rank} over one step** :gray[bytes by category; dashed: reserved]")
    line = line_of(answer)
    if line.end <= line.first:
        st.caption("It has no ops.")
        return
    phases, at = [], line.first
    for name, group in groupby(flow.stages[line.first : line.end]):
        count = len(list(group))
        if count * 12 > line.end - line.first:
            phases.append((str(name), at, at + count))
        at += count
    chart = rank_areas.figure(line, device.least_left, failed_op(answer), phases)
    st.plotly_chart(chart, key="rank_areas", config=STILL)
    step = 1 + [each[0] for each in step_ranges(flow)].index(line.first)
    left = f"{format_bytes(device.least_left)} to {format_bytes(device.most_left)}"
    where = where_text(answer)
    place = where if where == BEFORE_ALL else f"at {where}"
    told = f"the most is live {place}" if failed_op(answer) is None else f"it runs out {place}"
    words = (
        f"Step {step} of {len(step_ranges(flow))}. {left} of {device.name} are left to the allocator; {told}."
    )
    st.caption(plain(words))


def show_held(answer: RankAnswer) -> None:
    """What the rank holds where most is live, and what lies beside."""
    device = answer.answers.chosen.device
    assert device is not None
    st.markdown(f"**What rank {answer.run.rank} holds** :gray[where most is live]")
    held = peak_categories(answer.run.observation.flow)
    rows = [(name, nbytes, format_bytes(nbytes)) for name, nbytes in held.items()]
    live = sum(held.values())
    unused = answer.reserved_bytes - live
    rows += [("live", live, format_bytes(live)), ("reserved, not live then", unused, format_bytes(unused))]
    for overhead, count in device.overheads:
        low, high = count * overhead.least_bytes, count * overhead.most_bytes
        rows.append((f"{overhead.name} (beside)", high, f"{format_bytes(low)} to {format_bytes(high)}"))
    show_table(pd.DataFrame(rows, columns=["category", "bytes", "in words"]), whole("bytes"), key="rank_held")


def folded(answers: DeviceAnswers) -> list[tuple[RankAnswer, list[int]]]:
    """Of ranks that hold the same bytes at every op the first, with the numbers of all, the fullest first."""
    groups: dict[object, tuple[RankAnswer, list[int]]] = {}
    for each in answers.ranks:
        _, ranks = groups.setdefault(curve_digest(each.run), (each, []))
        ranks.extend(each.run.ranks)
    return sorted(groups.values(), key=lambda each: (-each[0].reserved_bytes, each[0].run.rank))


def show_ranks(answers: DeviceAnswers, chosen: RankAnswer) -> None:
    """Small multiples, the fullest outlined; a click chooses. Equal ones are one."""
    groups = folded(answers)
    world = answers.ranks[0].run.world_size
    st.markdown(
        f"**All {world:,} ranks** :gray[live bytes over the step, one scale; equal ones are folded, the "
        "fullest is outlined]"
    )
    lines = [line_of(each) for each, _ in groups[:MOST_CARDS]]
    top = max(each.reserved_bytes for each, _ in groups) or 1
    columns = st.container(key="rank_cards").columns(A_ROW)
    for place, ((each, ranks), line) in enumerate(zip(groups[:MOST_CARDS], lines, strict=True)):
        kind = "fullest" if each.run.rank in answers.fullest.run.ranks else "other"
        with columns[place % A_ROW].container(border=True, key=f"rankcard_{kind}_{each.run.rank}"):
            like = sorted(set(ranks) - {each.run.rank})
            name = f"Rank {each.run.rank}"
            shown = f"**{name}** {format_bytes(each.reserved_bytes)}"
            if st.button(
                shown,
                key=f"rank_button_{each.run.rank}",
                type="tertiary",
                icon=":material/radio_button_checked:"
                if each is chosen
                else ":material/radio_button_unchecked:",
            ):
                state.choose(rank=str(each.run.rank))
                st.rerun()
            if line.end > line.first:
                told = f"{name}: at most {format_bytes(each.answers.live_bytes)} live"
                assert each.answers.chosen.device is not None
                st.html(picture(rank_areas.small(line, top, each.answers.chosen.device.least_left), told))
            stage = f"stage {', '.join(map(str, each.run.stages))}; " if each.run.stages else ""
            word = "rank" if len(like) == 1 else "ranks"
            more = f"{word} {written(like)} like rank {each.run.rank}" if like else "like no other"
            st.caption(plain(f"{stage}{more}"))
    if len(groups) > MOST_CARDS:
        st.caption(f"{len(groups) - MOST_CARDS:,} more are in the table.")
    with st.expander("The ranks as a table", expanded=len(groups) > MOST_CARDS):
        rows = [
            {
                "ranks": written(sorted(ranks)),
                "stages": ", ".join(map(str, each.run.stages)),
                "live bytes": each.answers.live_bytes,
                "reserved bytes": each.reserved_bytes,
                "device, least": each.total_bytes[0],
                "device, most": each.total_bytes[1],
                "verdict": str(each.verdict),
                "most live at": where_text(each),
            }
            for each, ranks in groups[:MOST_ROWS]
        ]
        numbers = whole("live bytes", "reserved bytes", "device, least", "device, most")
        show_table(pd.DataFrame(rows), numbers, key="ranks_table")
    for note in answers.notes:
        st.caption(plain(note))


def show_configurations(sides: list[tuple[str, DeviceAnswers]], gpu: Accelerator) -> None:
    """The fullest rank of each, and what differs by module between the first two."""
    if len(sides) < 2:
        return
    st.markdown(
        "**Configurations side by side** :gray[what the fullest rank of each reserves, and which it is]"
    )
    device = sides[0][1].fullest.answers.chosen.device
    assert device is not None
    fullest = [answers.fullest for _, answers in sides]
    chart = rank_areas.configurations(
        [name for name, _ in sides],
        [each.reserved_bytes for each in fullest],
        [f"rank {each.run.rank} of {each.run.world_size}" for each in fullest],
        device.least_left,
    )
    st.plotly_chart(chart, key="configurations", config=STILL)
    rows = [
        {
            "configuration": name,
            "ranks": each.run.world_size,
            "fullest": f"rank {each.run.rank}",
            "live bytes": each.answers.live_bytes,
            "reserved bytes": each.reserved_bytes,
            "change": each.reserved_bytes - fullest[0].reserved_bytes,
            "verdict": str(each.verdict),
        }
        for (name, _), each in zip(sides, fullest, strict=True)
    ]
    show_table(
        pd.DataFrame(rows),
        whole("ranks", "live bytes", "reserved bytes", "change"),
        key="configurations_table",
    )
    _show_difference(sides[0], sides[1])


def _show_difference(one: tuple[str, DeviceAnswers], other: tuple[str, DeviceAnswers]) -> None:
    (name, first), (name_2, second) = one, other
    flows = first.fullest.run.observation.flow, second.fullest.run.observation.flow
    assert flows[0] is not None
    assert flows[1] is not None
    before, after = module_bytes(flows[0]), module_bytes(flows[1])
    st.markdown(
        f"**{plain(name)} → {plain(name_2)}, by module** :gray[their fullest ranks, where most is live]"
    )
    rows = [
        {
            "module": module,
            "before": before.get(module, 0),
            "after": after.get(module, 0),
            "change": after.get(module, 0) - before.get(module, 0),
        }
        for module in {**before, **after}
    ]
    rows.sort(key=lambda row: -abs(int(str(row["change"]))))
    show_table(pd.DataFrame(rows[:MOST_ROWS]), whole("before", "after", "change"), key="modules_table")
