"""Ranks on their devices: as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.devices.rank_answers import DeviceAnswers, RankAnswer
from memplan_engine.devices.rank_timeline import held_at_peak
from memplan_engine.recordings.observed_flow import Flow
from memplan_engine.reporters.devices.device_words import device_headline
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers, plain_text
from memplan_engine.units import exact, format_bytes

NATIVE = "native"


def devices_summary(answers: DeviceAnswers, gpu: Accelerator) -> dict[str, Any]:
    """For machines: a row for each rank that was run, the fullest named."""
    return {
        "device": gpu.name,
        "device_bytes": gpu.usable_bytes,
        "world_size": answers.ranks[0].run.world_size,
        "fullest_rank": answers.fullest.run.rank,
        "verdict": answers.fullest.verdict,
        "reason": answers.fullest.reason,
        "ranks": [_row(each) for each in answers.ranks],
        "notes": list(answers.notes),
    }


def _row(answer: RankAnswer) -> dict[str, Any]:
    run, answers = answer.run, answer.answers
    op, source = answer.peak
    settings = {
        _name(answers.chosen.settings): answers.chosen,
        **{_name(e.settings): e for e in answers.others},
    }
    assert answers.chosen.device is not None
    return {
        "rank": run.rank,
        "ranks": list(run.ranks),
        "stages": list(run.stages),
        "live_bytes": answers.live_bytes,
        "reserved_bytes": {name: each.run.peak_reserved for name, each in settings.items()},
        "basis": {
            name: "rules only" if each.run.is_rules_only else "simulated" for name, each in settings.items()
        },
        "device_total_bytes": list(answer.total_bytes),
        "beside": [
            {
                "name": overhead.name,
                "least_bytes": count * overhead.least_bytes,
                "most_bytes": count * overhead.most_bytes,
                "source": overhead.source,
            }
            for overhead, count in answers.chosen.device.overheads
        ],
        "verdict": answer.verdict,
        "reason": answer.reason,
        "peak_op": op,
        "peak_source": source,
        "categories": peak_categories(run.observation.flow),
        "ops": len(run.observation.ops),
        "steps": 0 if run.observation.flow is None else run.observation.flow.steps,
    }


def _name(settings: Any) -> str:
    return str(settings) or NATIVE


def peak_categories(flow: Flow | None) -> dict[str, int]:
    """The live bytes of each category at the op where most is live."""
    if flow is None:
        return {}
    storages = flow.storages
    found: dict[str, int] = {}
    for number in held_at_peak(flow):
        name = str(storages.categories[number])
        found[name] = found.get(name, 0) + int(storages.nbytes[number])
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def devices_tables(answers: DeviceAnswers, gpu: Accelerator) -> list[RenderableType]:
    """The verdict, the ranks, what the fullest holds, and what the figures leave out."""
    fullest = answers.fullest
    return [_verdict(answers, gpu), _ranks(answers), _fullest(fullest), *_notes(answers)]


def _verdict(answers: DeviceAnswers, gpu: Accelerator) -> Table:
    fullest = answers.fullest
    world = f"{fullest.run.world_size:,} of {gpu.full_name}, {format_bytes(gpu.usable_bytes)} each"
    rows = [
        ("verdict", ": ".join(device_headline(answers, gpu))),
        ("devices", world),
        ("most live at", " at ".join(part for part in fullest.peak if part)),
    ]
    return label_table(rows)


def _ranks(answers: DeviceAnswers) -> Table:
    chosen = answers.ranks[0].answers
    names = [_name(chosen.chosen.settings), *(_name(other.settings) for other in chosen.others)]
    rules = {_name(each.settings) for each in (chosen.chosen, *chosen.others) if each.run.is_rules_only}
    heads = [f"reserved, {name}{' (rules only)' if name in rules else ''}" for name in names]
    rows = []
    for each in answers.ranks:
        low, high = map(format_bytes, each.total_bytes)
        others = [format_bytes(other.run.peak_reserved) for other in each.answers.others]
        stages = ", ".join(map(str, each.run.stages)) or "–"
        figures = [format_bytes(each.answers.live_bytes), format_bytes(each.reserved_bytes), *others]
        verdict = each.verdict + (", fullest" if each is answers.fullest else "")
        rows.append([written(each.run.ranks), stages, *figures, f"{low} to {high}", verdict])
    columns = ["ranks", "stage", *numbers("live", *heads, "device total"), "verdict"]
    return make_table(columns, rows)


def _fullest(fullest: RankAnswer) -> Table:
    rows = [
        (f"  {name}", exact(nbytes)) for name, nbytes in peak_categories(fullest.run.observation.flow).items()
    ]
    assert fullest.answers.chosen.device is not None
    for overhead, count in fullest.answers.chosen.device.overheads:
        low, high = (format_bytes(count * each) for each in (overhead.least_bytes, overhead.most_bytes))
        rows.append((f"  {overhead.name}", f"{low} to {high}, beside ({overhead.source})"))
    return label_table([(f"rank {fullest.run.rank}", "at the op where most is live"), *rows])


def _notes(answers: DeviceAnswers) -> list[RenderableType]:
    folded = sum(len(each.run.ranks) - 1 for each in answers.ranks)
    notes = list(answers.notes)
    if folded:
        notes.insert(0, f"{folded:,} ranks were not run: shards of the same shapes, in the same stages")
    return [plain_text(f"note: {note}") for note in notes]


def written(ranks: Sequence[int]) -> str:
    """Numbers in order; three and more of one step by their ends: "0 to 7, 9", "0 to 56 by 8"."""
    words, at = [], 0
    while at < len(ranks):
        end = at + 1
        step = ranks[end] - ranks[at] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - at < 3:
            end = at + 1
            words.append(str(ranks[at]))
        else:
            words.append(f"{ranks[at]} to {ranks[end - 1]}" + (f" by {step}" if step > 1 else ""))
        at = end
    return ", ".join(words)
