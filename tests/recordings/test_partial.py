"""A part of a run is not read as the whole: why it is one, what it says at least, and what is not claimed."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memplan_examples.make_snapshot import SEGMENT, Allocator, as_pytorch, write_snapshot

from memplan_engine.allocator.answers import three_answers
from memplan_engine.allocator.simulated_recording import simulated_recording
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.errors import InputError
from memplan_engine.files import load, load_recording, write
from memplan_engine.planner import make_plan
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import Partial, Recording, Selection, choose_recording
from memplan_engine.recordings.cost import cost_of, live_over_time, memory_over_time
from memplan_engine.recordings.recorded_problem import buffers, recorded_plan, recording_problem
from memplan_engine.reporters.allocator.answer_tables import settings_words
from memplan_engine.scope import Scope
from memplan_engine.verdict import Reason, Verdict
from memplan_engine.verify.validate import validate_plan

MIB, GIB = 1 << 20, 1 << 30
MIDWAY, LOST, EMPTY = (Partial.BEGUN_MIDWAY,), (Partial.EVENTS_LOST,), (Partial.NO_EVENTS,)
# (address, GiB): 4 and 2, of which 4 go, 3 more, and all go.
RUN = ((1, 4), (5, 2), (1, -4), (7, 3), (5, -2), (7, -3))


def memory_events(
    changes: Any, unit: int = GIB, before: int | None = None, reserved: int | None = None, **more: Any
) -> list[dict[str, Any]]:
    """A profiler's events; `before` units were allocated already, and `reserved` are reserved throughout."""
    events, total = [], before or 0
    for ts, (address, change) in enumerate(changes):
        total += change
        args = {"Device Type": 1, "Device Id": 0, "Bytes": change * unit} | more
        args |= {} if address is None else {"Addr": address * unit}
        args |= {} if before is None else {"Total Allocated": total * unit}
        args |= {} if reserved is None else {"Total Reserved": reserved * unit}
        events.append({"name": "[memory]", "ts": ts, "tid": 1, "args": args})
    return events


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., Path]:
    def written(changes: Any, **said: Any) -> Path:
        path = tmp_path / "run.json"
        events = memory_events(changes, **said) if isinstance(changes[0], tuple) else changes
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return path

    return written


@pytest.fixture
def snapped(tmp_path: Path) -> Callable[[Any], Path]:
    return lambda value: write_snapshot(tmp_path / "run.pickle", value)


def only(path: Path) -> Recording:
    (recording,) = load_recording(path).recordings
    return recording


def test_a_trace_begun_midway_counts_what_its_totals_count(traced: Callable[..., Path]) -> None:
    recording = only(traced(RUN, before=40, reserved=50))
    assert recording.partial == MIDWAY
    cost = cost_of(recording)
    assert (cost.peak.live, cost.peak.step, cost.height.reserved) == (46 * GIB, 2, 50 * GIB)
    assert (cost.fragmentation, cost.saved) == (None, None)
    # What the file says of each step.
    said = [40, 44, 46, 42, 45, 43, 40]
    assert (memory_over_time(recording).live // GIB).tolist() == said
    assert validate_plan(recorded_plan(recording)).valid


@pytest.mark.parametrize(
    ("capacity", "verdict", "reason"),
    [
        # 50 GiB are reserved, and the context takes 300 MiB at least.
        (48, Verdict.DOES_NOT_FIT, None),
        (50, Verdict.DOES_NOT_FIT, None),
        (51, Verdict.UNDECIDED, Reason.PARTIAL),
        (500, Verdict.UNDECIDED, Reason.PARTIAL),
    ],
)
@pytest.mark.parametrize("before", [40, None])
def test_a_part_of_a_run_never_fits(
    traced: Callable[..., Path], before: int | None, capacity: int, verdict: Verdict, reason: Reason | None
) -> None:
    answers = three_answers(only(traced(RUN, before=before, reserved=50)), capacity=capacity * GIB)
    assert answers.chosen.reserved == 50 * GIB
    assert (answers.chosen.verdict, answers.chosen.reason) == (verdict, reason)
    assert (answers.live_bytes, answers.others) == (46 * GIB if before else 6 * GIB, ())
    assert (answers.suggested, answers.advice.settings, answers.advice.of_a_part) == (None, None, True)
    if verdict is Verdict.UNDECIDED:
        assert "is unknown" in settings_words(answers.advice)


@pytest.mark.parametrize(
    ("changes", "said", "partial"),
    [
        (RUN, {}, ()),
        (RUN, {"before": 0}, ()),
        (RUN, {"before": 0, "reserved": 8}, ()),
        # The first request alone explains 8 of 9 GiB at most, though nothing is in use.
        (RUN, {"before": 0, "reserved": 9}, MIDWAY),
        # What is freed at the end was not allocated.
        ((*RUN, (9, -1)), {}, MIDWAY),
        ((*RUN, (9, -1)), {"before": 1}, MIDWAY),
        # Of the CPU there are totals, too.
        (RUN, {"before": 40, "Device Type": 0, "Device Id": -1}, MIDWAY),
        # 1 is handed out twice, and 9 freed twice.
        (((1, 4), (1, 2)), {}, LOST),
        (((9, 4), (9, -4), (9, -4)), {}, LOST),
    ],
)
def test_which_traces_are_a_part(
    traced: Callable[..., Path], changes: Any, said: dict[str, Any], partial: tuple[Partial, ...]
) -> None:
    assert only(traced(changes, **said)).partial == partial


def test_totals_that_change_by_more_than_the_events(traced: Callable[..., Path]) -> None:
    events = memory_events(RUN, before=0)
    del events[3]
    # The free of what is missing is one of something from before, as its totals do not have it.
    assert only(traced(events)).partial == (Partial.BEGUN_MIDWAY, Partial.EVENTS_LOST)
    recording = only(traced(memory_events(RUN[:2], before=0) + memory_events(((9, 1),), before=20)[:1]))
    assert recording.partial == LOST
    assert three_answers(recording).live_bytes == 21 * GIB


def test_frees_without_addresses_are_matched_by_size(traced: Callable[..., Path]) -> None:
    sizes = (4, 2, 1, -4, 8, -2, -1, -8)
    recording = only(traced([(None, size) for size in sizes], unit=MIB))
    assert recording.partial == (Partial.NO_ADDRESSES,)
    assert (memory_over_time(recording).live // MIB).tolist() == [0, 4, 6, 7, 3, 11, 9, 8, 0]
    assert cost_of(recording).unmatched == 0
    # Of two equal ones the youngest goes; what nothing was allocated for was there before.
    recording = only(traced([(None, size) for size in (2, 2, -2, -3)], unit=MIB))
    spans = buffers(recording)
    assert list(zip(spans.start, spans.end, spans.size // MIB, strict=True)) == [
        (0, 4, 3), (1, 5, 2), (2, 3, 2)
    ]  # fmt: skip
    assert recording.partial == (Partial.BEGUN_MIDWAY, Partial.NO_ADDRESSES)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def test_a_trace_of_torch_counts_what_torch_counts(torch: Any, tmp_path: Path) -> None:
    """The totals of a second profile have what was made in the first one, which no event of it names."""
    chosen = {"profile_memory": True, "activities": [torch.profiler.ProfilerActivity.CPU]}
    with torch.profiler.profile(**chosen):
        kept = torch.ones(1 << 20)
    with torch.profiler.profile(**chosen) as second:
        made = kept + kept
        del made
        again = kept * 2
    second.export_chrome_trace(str(tmp_path / "second.json"))
    events = json.loads((tmp_path / "second.json").read_text())["traceEvents"]
    counted = [
        each["args"] for each in sorted(events, key=lambda event: event["ts"]) if "[memory]" in each["name"]
    ]
    recording = only(tmp_path / "second.json")
    live = live_over_time(buffers(recording), recording.steps)
    assert live.tolist()[1:] == [each["Total Allocated"] for each in counted]
    assert live[0] >= kept.nbytes == again.nbytes
    assert Partial.BEGUN_MIDWAY in recording.partial


def totals(traced: Callable[..., Path], before: int, changes: Any, said: Any) -> Recording:
    """A profiler's events (address, GiB), each with the total that the file says after it."""
    events = memory_events(changes, before=before)
    for event, total in zip(events, said, strict=True):
        event["args"]["Total Allocated"] = total * GIB
    return only(traced(events))


@pytest.mark.parametrize(
    ("before", "changes", "said"),
    [
        # A free of 4 GiB between the second event and the third, and one of 3 that frees a part of 4.
        (0, ((1, 4), (5, 2), (8, 2), (8, -2)), (4, 6, 4, 2)),
        (0, ((1, 4), (5, 2), (8, 2)), (4, 6, 5)),
        # An allocation of 6, which is freed unseen as well; of 40 from before 30.
        (0, ((1, 4), (5, 2), (5, -2)), (4, 12, 10)),
        (40, ((1, 2), (5, 1), (7, 20)), (42, 13, 33)),
        # Without addresses.
        (5, ((None, 4), (None, 2), (None, -2)), (9, 7, 1)),
    ],
)
def test_what_is_live_follows_the_totals_where_events_are_lost(
    traced: Callable[..., Path], before: int, changes: Any, said: Any
) -> None:
    found = totals(traced, before, changes, said)
    assert Partial.EVENTS_LOST in found.partial
    live = [nbytes / GIB for nbytes in live_over_time(buffers(found), found.steps)]
    assert (live[0], live[-1], max(live)) == (before, said[-1], max(before, *said))
    assert found.allocated is not None
    assert live == [nbytes / GIB for nbytes in found.allocated]
    assert make_plan(recording_problem(found), "greedy_by_size").bound.nbytes == max(before, *said) * GIB


def test_events_of_other_lists_are_none_of_a_trace(tmp_path: Path) -> None:
    """A list of that name may stand in the metadata of a trace, and its name in a text."""
    events, path = memory_events(RUN), tmp_path / "run.json"
    other = {"traceEvents": memory_events(((1, 70),))}
    head = {
        "name": "traceEvents",
        "made \\": 'a "traceEvents": [',
        "deviceProperties": [other],
        "more": other,
    }
    path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": events}))
    assert len(only(path).events) == len(events)
    path.write_text(json.dumps({"schemaVersion": 1, **head}))
    with pytest.raises(InputError, match='found no "traceEvents"'):
        load_recording(path)


def run_on(segment_of: Callable[[int], int] = as_pytorch) -> Allocator:
    """4 MiB that stay, 40 that come and go, and 6 ten times over."""
    allocator = Allocator(segment_of=segment_of)
    allocator.alloc(4 * MIB)
    allocator.free(allocator.alloc(40 * MIB))
    for _ in range(10):
        allocator.free(allocator.alloc(6 * MIB))
    return allocator


@pytest.mark.parametrize(
    ("kept", "said", "partial"),
    [
        (None, {}, ()),
        (None, {"trace_alloc_overflowed": [False], "trace_alloc_max_entries": [10]}, ()),
        (30, {"trace_alloc_overflowed": [True]}, (Partial.OVERFLOWED,)),
        (30, {"trace_alloc_overflowed": True}, (Partial.OVERFLOWED,)),
        # The ring is full.
        (30, {"trace_alloc_max_entries": [30]}, (Partial.OVERFLOWED,)),
        # 40 MiB are held for a request that was gone when the recording began.
        (30, {}, MIDWAY),
        (0, {}, EMPTY),
    ],
)
def test_which_snapshots_are_a_part(
    snapped: Callable[[Any], Path], kept: int | None, said: dict[str, Any], partial: tuple[Partial, ...]
) -> None:
    recording = only(snapped(run_on().snapshot(kept) | said))
    assert recording.partial == partial
    answers = three_answers(recording, capacity=80 * GIB)
    assert answers.chosen.verdict is (Verdict.UNDECIDED if partial else Verdict.FITS)
    # 20 MiB for the first 4 and the 6 behind them, 40 for the 40.
    assert answers.chosen.reserved == 60 * MIB
    assert recording_problem(recording).scope is (Scope.PART if partial else Scope.EAGER)


def test_weights_from_before_leave_a_recording_whole(snapped: Callable[[Any], Path]) -> None:
    allocator = Allocator(segment_of=as_pytorch)
    for size in (30 * MIB, 4 * MIB, 1000):
        allocator.alloc(size)
    made = len(allocator.events)
    later = allocator.alloc(6 * MIB)
    whole = allocator.snapshot(len(allocator.events) - made)
    assert only(snapped(whole)).partial == ()
    # One that goes while it is recorded was made by a run that was under way.
    allocator.free(later)
    assert only(snapped(allocator.snapshot(2))).partial == MIDWAY


def test_a_segment_that_nothing_explains(snapped: Callable[[Any], Path]) -> None:
    def after(size: int, expandable: bool) -> Recording:
        """8 MiB are made where `size` bytes are gone, and seen alone."""
        allocator = Allocator(expandable=expandable, segment_of=as_pytorch)
        allocator.free(allocator.alloc(size))
        allocator.alloc(8 * MIB)
        return only(snapped(allocator.snapshot(1)))

    for expandable in (False, True):
        assert after(64 * MIB, expandable).partial == MIDWAY
        assert three_answers(after(64 * MIB, expandable)).chosen.reserved == 64 * MIB


def test_a_device_without_events_is_a_part_and_the_other_is_not(snapped: Callable[[Any], Path]) -> None:
    one, two = Allocator(), Allocator(device=1)
    for allocator in (one, two):
        allocator.alloc(1000)
    value = two.snapshot(most_events=0)
    value["segments"] += one.snapshot()["segments"]
    value["device_traces"] = [one.events, []]
    first, second = load_recording(snapped(value)).recordings
    assert (first.partial, second.partial) == ((), EMPTY)


def test_what_is_made_of_a_part_is_one(snapped: Callable[[Any], Path], tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(1000, stream=7)
    allocator.alloc(1000)
    path = snapped(allocator.snapshot() | {"trace_alloc_overflowed": [True]})
    part = choose_recording(load_recording(path), Selection(stream=7))
    assert part.partial == (Partial.OVERFLOWED,)
    again = simulated_recording(simulate_allocator(part))
    assert again.partial == part.partial
    problem = recorded_plan(again).problem
    write(problem, tmp_path / "saved.json")
    saved = load(tmp_path / "saved.json")
    assert isinstance(saved, Problem)
    assert problem.scope is saved.scope is Scope.PART


@pytest.mark.parametrize(
    "inside",
    [
        {"action": "x"},
        {"action": "alloc", "addr": "nowhere"},
        {"action": 5, "frames": 7, "pool_id": "none"},
        [{"action": "alloc", "addr": 4096, "size": 512, "stream": 0}],
    ],
)
def test_a_dict_in_an_event_is_no_event(snapped: Callable[[Any], Path], inside: Any) -> None:
    allocator = Allocator()
    allocator.free(allocator.alloc(1000))
    value = copy.deepcopy(allocator.snapshot())
    plain = only(snapped(value))
    events = value["device_traces"][0]
    # In some alone, and a whole event in one like it.
    events[0]["user_metadata"] = copy.deepcopy(inside)
    events[2]["user_metadata"] = copy.deepcopy(events[1])
    for frame in events[0]["frames"]:
        frame |= copy.deepcopy(inside) if isinstance(inside, dict) else {"action": inside}
    found = only(snapped(value))
    assert pickle.dumps(found.events.tolist()) == pickle.dumps(plain.events.tolist())
    assert len(found.events) == 4


@pytest.mark.parametrize("verb", ["plan", "peak", "compare"])
def test_plans_of_a_part_claim_nothing_of_the_run(
    memplan: Any, snapped: Callable[[Any], Path], verb: str
) -> None:
    path = snapped(run_on().snapshot(30))
    out = memplan(verb, path)[1]
    assert "optimal" not in out.replace("not proved optimal", "")
    assert "what was recorded of one real run; the run may have needed more" in " ".join(out.split())
    assert memplan("plan", path, "--capacity", "1GiB")[0] == 3
    assert memplan("plan", path, "-o", "part.json")[0] == 0
    assert json.loads(memplan("peak", "part.json", "--json")[1])["scope"] == "eager_part"


def test_a_plan_of_a_part_is_the_smallest_of_what_was_recorded(
    memplan: Any, snapped: Callable[[Any], Path], tmp_path: Path
) -> None:
    """What stays and what comes and goes ten times meet the bound ten times, and are no peak of the run."""
    path = snapped(run_on().snapshot(30))
    said = json.loads(memplan("plan", path, "--json")[1])
    assert (said["arena_bytes"], said["lower_bound_bytes"], said["optimal"]) == (10 * MIB, 10 * MIB, False)
    assert "; no arena for what was recorded can be smaller." in memplan("compare", path)[1]
    assert memplan("suggest", path)[1].splitlines()[0].endswith("10 steps tie for the recorded maximum")
    assert "the minimum" not in memplan("what-if", path, "--capacity", "1MiB")[1]
    page, picture = tmp_path / "part.html", tmp_path / "part.svg"
    assert memplan("report", path, "-o", page, "--svg", picture)[0] == 0
    plan = make_plan(recording_problem(only(path)), "greedy_by_size")
    assert plan.optimal
    for text in (page.read_text(), picture.read_text(), plan._repr_mimebundle_()["text/html"]):
        assert "arena of this part" in text
        assert "recorded maximum" in text
        assert "arena = lower bound" not in text
        assert "ptimal" not in text.partition("<body")[2].partition("<script")[0]


CLAIMS = ("never needed", "optimal", "exact", "peak", "never live", "less than", "fits\n")


@pytest.mark.parametrize("verb", ["snapshot", "allocator"])
@pytest.mark.parametrize("kept", [0, 30])
def test_the_verbs_claim_nothing_of_the_run(
    memplan: Any, snapped: Callable[[Any], Path], verb: str, kept: int
) -> None:
    path = snapped(run_on().snapshot(kept))
    options = ("--capacity", "24GiB") if verb == "allocator" else ()
    code, out, _ = memplan(verb, path, *options)
    assert code == (3 if options else 0)
    assert "at least" in out
    assert "partial  " in out
    assert not [claim for claim in CLAIMS if claim in out]
    said = json.loads(memplan(verb, path, *options, "--json")[1])
    assert said["partial"] == [EMPTY[0] if kept == 0 else MIDWAY[0]]
    assert said["fragmentation_bytes"] is None
    if options:
        assert (said["verdict"], said["reason"]) == ("undecided", "the recording is partial")
        assert said["reserved_bytes"] == max(said["over_time"]["reserved_bytes"]) == 60 * MIB
    # The context takes 300 MiB, and leaves less than the 60 that were reserved.
    assert not options or memplan(verb, path, "--capacity", "340MiB")[0] == 1


def test_a_whole_run_keeps_its_claims(memplan: Any, snapped: Callable[[Any], Path]) -> None:
    path = snapped(run_on().snapshot())
    assert "of the reserved bytes never needed" in memplan("snapshot", path)[1]
    code, out, _ = memplan("allocator", path, "--capacity", "24GiB")
    assert (code, "(exact)" in out, "never live" in out) == (0, True, True)
    said = json.loads(memplan("snapshot", path, "--json")[1])
    assert (said["partial"], said["peak_reserved"]["reserved_bytes"]) == ([], 60 * MIB)
    assert said["fragmentation_bytes"] == 16 * MIB
    assert SEGMENT == 2 * MIB
