"""What a recording cost: figures by hand, tables and the verb `memplan snapshot`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memplan_examples.make_snapshot import SEGMENT, Allocator, frame, stack, write_snapshot

from memplan_engine import load, make_problem
from memplan_engine.callers import NOBODY, Frame, Stacks, find_caller
from memplan_engine.cli.progress import describe_reading, reading
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.recordings.cost import cost_of, groups_at
from memplan_engine.reporters.recording_tables import cost_summary

MIB = 1 << 20


def fragmented() -> Allocator:
    """Two segments of 2 MiB, half of each in use: 2 MiB are free, and a request for them fails.

    Steps: 1 segment, 2–5 four halves with a segment before the third, 6–9 two of them freed, 10 the failure.
    """
    allocator = Allocator(limit=2 * SEGMENT)
    halves = [allocator.alloc(MIB, stack(10 + n)) for n in range(4)]
    allocator.free(halves[1])
    allocator.free(halves[2])
    assert allocator.alloc(2 * MIB, stack(50, "bmm")) == -1
    return allocator


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_snapshot(tmp_path / "train.pickle", fragmented().snapshot())


def test_what_fragmentation_cost_by_hand(file: Path) -> None:
    (recording,) = load_snapshot(file).recordings
    cost = cost_of(recording)
    assert (cost.peak.step, cost.peak.live, cost.peak.reserved) == (6, 4 * MIB, 4 * MIB)
    assert (cost.height.step, cost.height.live, cost.height.reserved) == (4, 2 * MIB, 4 * MIB)
    assert (cost.fragmentation, cost.saved) == (0, 0)
    (failure,) = cost.failures
    assert failure.moment.step == 11
    assert (failure.asked, failure.device_free) == (2 * MIB, 0)
    assert (failure.moment.live, failure.moment.reserved, failure.moment.unused) == (
        2 * MIB,
        4 * MIB,
        2 * MIB,
    )
    assert failure.fits_unused
    assert [(group.caller.label, group.count, group.nbytes) for group in failure.moment.groups] == [
        ("train.py:10 forward", 1, MIB), ("train.py:13 forward", 1, MIB)
    ]  # fmt: skip
    assert cost.seconds == pytest.approx(1e-4)
    assert (cost.older, cost.younger, cost.unmatched) == (0, 2, 0)


def test_a_request_that_no_placement_could_have_met(tmp_path: Path) -> None:
    allocator = Allocator(limit=2 * SEGMENT)
    allocator.alloc(MIB)
    allocator.alloc(4 * SEGMENT)
    (recording,) = load_snapshot(write_snapshot(tmp_path / "a.pickle", allocator.snapshot())).recordings
    (failure,) = cost_of(recording).failures
    assert (failure.moment.unused, failure.device_free) == (MIB, SEGMENT)
    assert not failure.fits_unused


def test_a_plan_ahead_needs_less_than_was_reserved(tmp_path: Path) -> None:
    """Four segments, of which a bit more than half is in use, are too small for what comes then."""
    allocator = Allocator()
    first = [allocator.alloc(MIB + 1, stack(1)) for _ in range(4)]
    for address in first:
        allocator.free(address)
    allocator.alloc(4 * MIB, stack(2))
    path = write_snapshot(tmp_path / "a.pickle", allocator.snapshot())
    (recording,) = load_snapshot(path).recordings
    cost = cost_of(recording)
    assert cost.peak.live == 4 * (MIB + 1)
    assert cost.height.reserved == 4 * SEGMENT + 2 * SEGMENT
    assert cost.fragmentation == 12 * MIB - 4 * (MIB + 1)
    # Offsets are multiples of 512: three of the four take 1 MiB and 512 bytes.
    assert cost.bound.nbytes == cost.plan.arena_bytes == 3 * (MIB + 512) + MIB + 1
    assert cost.saved == 12 * MIB - cost.plan.arena_bytes


def test_groups_without_stacks_are_one() -> None:
    problem = make_problem([0, 0], [2, 1], [5, 7])
    assert [(group.caller, group.count, group.nbytes) for group in groups_at(problem, 0)] == [(NOBODY, 2, 12)]


@pytest.mark.parametrize(
    ("frames", "kind", "label", "source"),
    [
        (stack(7), "addmm", "train.py:7 forward", "/home/me/train.py:7"),
        ([frame(5, "f", "/x/torch/nn/a.py")], "f", "a.py:5 f", "/x/torch/nn/a.py:5"),
        ([frame(5, "f", r"C:\me\b.py")], "f", "b.py:5 f", r"C:\me\b.py:5"),
        (
            [
                frame(0, "torch::unwind::unwind()", "??"),
                frame(0, "at::_ops::empty_like::call(x)", ""),
                frame(0, "at::_ops::bmm::call(x)", ""),
                frame(0, "torch::autograd::generated::BmmBackward0::apply(x)", "??"),
            ],
            "bmm", "BmmBackward0", "None",
        ),
        ([frame(0, "at::_ops::empty::call(x)", "")], "empty", "empty", "None"),
        ([frame(0, "ncclAllReduce", "lib.cpp")], "ncclAllReduce", "ncclAllReduce", "None"),
        ([frame(0, "torch::unwind::unwind()", "??")], "buffer", "no stack recorded", "None"),
        ([], "buffer", "no stack recorded", "None"),
    ],
)  # fmt: skip
def test_who_asked(frames: list[dict[str, object]], kind: str, label: str, source: str) -> None:
    caller = find_caller([Frame(*(each[key] for key in ("name", "filename", "line"))) for each in frames])  # type: ignore[arg-type]
    assert (caller.kind, caller.label, str(caller.source)) == (kind, label, source)


def test_stacks_by_number() -> None:
    stacks = Stacks((Frame("f", "a.py", 1), Frame("g", "b.py", 2)), ((0, 1), (1,)))
    assert [str(each) for each in stacks.frames_of(0)] == ["a.py:1 f", "b.py:2 g"]
    assert stacks.caller(1).label == "b.py:2 g"
    assert (stacks.caller(-1), stacks.frames_of(-1)) == (NOBODY, ())


def test_the_verb_as_a_table(memplan, file):
    code, out, err = memplan("snapshot", file)
    assert (code, err) == (0, f"next: memplan allocator {file}\n")
    lines = out.splitlines()
    assert lines[0] == "out of memory at step 11: 2 MiB (2,097,152 B) requested by train.py:50 forward"
    lines = lines[lines.index("recorded         train: 11 events in 0.10 ms, device 0") :]
    assert lines[1] == "buffers          4, 0 of them older than the recording, 2 live at its end"
    assert lines[2] == "peak live bytes  4 MiB (4,194,304 B) at step 6"
    assert lines[3] == "peak reserved    4 MiB (4,194,304 B) at step 4, when 2 MiB were live"
    assert lines[4] == "fragmentation    0 B, 0.0 % of the reserved bytes never needed"
    assert "planned arena    4 MiB (4,194,304 B) (auto), 0 B less than peak reserved" in lines
    assert "out of memory    1 ×" in lines
    lines = out.splitlines()
    assert "  2 MiB live, 4 MiB reserved, 2 MiB of it unused, 0 B free on the device" in lines
    assert "  enough bytes were unused, but not contiguous: fragmentation" in lines
    assert "live at the peak, 4 MiB at step 6" in lines


def test_all_has_the_call_stack_of_the_request_that_failed(memplan, file):
    title = "  call stack of the request, innermost call first"
    assert title not in memplan("snapshot", file)[1]
    lines = memplan("snapshot", file, "--all")[1].splitlines()
    first, *_ = calls = lines[lines.index(title) + 1 : lines.index("live then")]
    assert first == "    ??:0 torch::unwind::unwind()"
    assert any(call.endswith("train.py:50 forward") for call in calls)


def test_the_verb_for_machines(memplan, file):
    found = json.loads(memplan("snapshot", file, "--json")[1])
    assert found == json.loads(json.dumps(found))
    assert (found["buffers"], found["fragmentation_bytes"], found["planned_arena_bytes"]) == (4, 0, 4 * MIB)
    assert found["peak_reserved"]["reserved_bytes"] == 4 * MIB
    assert found["devices"] == [
        {
            "device": 0, "events": 11, "peak_reserved_bytes": 4 * MIB, "allocated_bytes": 4 * MIB,
            "streams": [0], "pools": [[0, 0]], "segments": 2,
        }
    ]  # fmt: skip
    (failure,) = found["out_of_memory"]
    assert (failure["asked_bytes"], failure["unused_bytes"], failure["fits_unused"]) == (
        2 * MIB,
        2 * MIB,
        True,
    )
    assert failure["asked_by"] == "train.py:50 forward"
    assert failure["stack"][-2:] == ["/home/me/train.py:50 forward", "/home/me/train.py:3 <module>"]
    assert failure["callers"][0] == {
        "caller": "train.py:10 forward", "kind": "addmm", "source": "/home/me/train.py:10",
        "buffers": 1, "bytes": MIB, "kinds": ["addmm"],
    }  # fmt: skip


def test_the_verb_writes_what_was_recorded(memplan, file, tmp_path):
    assert memplan("snapshot", file, "-o", "out.json")[0] == 0
    written = load(tmp_path / "out.json")
    assert written.strategy == "recorded"
    assert written.arena_bytes == 4 * MIB
    assert memplan("validate", "out.json")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--card", "3"], "device: found 3, expected one of 0"),
        (["--stream", "9"], "found stream 9"),
        (["--pool", "x"], "--pool: found 'x', expected two numbers"),
        (["-o", "out.txt"], "out.txt"),
        (["--strategy", "none"], "none"),
    ],
)
def test_the_verb_refuses_in_one_line(memplan, file, arguments, message):
    code, out, err = memplan("snapshot", file, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_other_verbs_take_snapshots(memplan, file):
    code, out, _ = memplan("plan", file)
    assert code == 0
    assert "arena                  4 MiB" in out
    code, out, _ = memplan("peak", file)
    assert "/home/me/train.py:10" in out
    code, out, _ = memplan("validate", file)
    assert (code, out.split(":")[0]) == (0, "valid")
    code, _, err = memplan("plan", file, "--streams", "2")
    assert (code, "buffers have no ops" in err) == (2, True)


def test_hostile_pickles_are_one_line_and_exit_2(memplan, tmp_path):
    (tmp_path / "evil.pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    for verb in ("snapshot", "plan", "peak", "compare", "validate"):
        code, out, err = memplan(verb, "evil.pickle")
        assert (code, out) == (2, "")
        assert err.startswith("memplan: evil.pickle: byte 2: found the global os.system, expected plain data")
        assert err.count("\n") == 1


def test_text_of_frames_is_only_text(memplan, tmp_path):
    allocator = Allocator()
    allocator.alloc(1000, [frame(1, "[red]\x1b[31m<script>", "/x/[bold]a.py")])
    write_snapshot(tmp_path / "a.pickle", allocator.snapshot())
    out = memplan("snapshot", "a.pickle")[1]
    assert "[bold]a.py:1 [red] [31m<script>" in out
    assert "\x1b" not in out


def test_several_devices_and_streams_are_summed_up(memplan, tmp_path):
    one, two = Allocator(), Allocator(device=1)
    one.alloc(1000, stream=3)
    one.alloc(9000)
    two.alloc(5 * MIB)
    value = two.snapshot()
    value["segments"] += one.snapshot()["segments"]
    value["device_traces"][0] = one.events
    path = write_snapshot(tmp_path / "two.pickle", value)
    out = memplan("snapshot", path)[1]
    assert "recorded         two, device 1: 2 events" in out
    assert "device 0         4 events, 4 MiB reserved" in out
    out = memplan("snapshot", path, "--card", "0")[1]
    assert "streams          0 (8.79 KiB), 3 (1000 B) allocated" in out
    out = memplan("snapshot", path, "--card", "0", "--stream", "3")[1]
    assert "4 events in 0.03 ms, 2 of them left out, device 0" in out
    assert "peak reserved    2 MiB" in out


def test_summary_of_a_snapshot_without_events(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(1000)
    path = write_snapshot(tmp_path / "still.pickle", allocator.snapshot(most_events=0))
    snapshot = load_snapshot(path)
    found = cost_summary(snapshot, cost_of(snapshot.recordings[0]))
    assert (found["steps"], found["seconds"], found["older_than_recording"]) == (1, 0.0, 1)
    assert found["peak_live"]["callers"][0]["caller"] == "train.py:10 forward"
    # What was in use before is unknown: the segment may have been needed whole.
    assert (found["fragmentation_bytes"], found["saved_bytes"]) == (None, None)
    assert found["partial"] == ["it has no event of an allocation"]


def test_progress_is_for_terminals_and_large_files(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x")
    for path in (small, tmp_path / "none"):
        with reading(path) as progress:
            assert progress is None
    assert describe_reading(3 << 20, 12 << 20, 1.25) == "reading 3 MiB of 12 MiB · 25 % · 1.2 s"


def test_a_line_with_several_operations_says_so(memplan, tmp_path):
    allocator = Allocator()
    for op, nbytes in (("sum", 1000), ("mm", 3000), ("sum", 1500)):
        allocator.alloc(nbytes, stack(10, op))
    write_snapshot(tmp_path / "ops.pickle", allocator.snapshot())
    _, out, _ = memplan("snapshot", "ops.pickle")
    assert "mm and 1 more" in out
    _, out, _ = memplan("snapshot", "ops.pickle", "--json")
    (group,) = json.loads(out)["peak_live"]["callers"]
    assert (group["kind"], group["kinds"], group["buffers"]) == ("mm", ["mm", "sum"], 3)
    assert json.loads(out)["over_time"] == {
        "step": [0, 1, 2, 3, 4],
        "live_bytes": [0, 0, 1000, 4000, 5500],
        "reserved_bytes": [0, 2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB],
    }


def test_pools_are_named_where_there_are_several(memplan, tmp_path):
    allocator = Allocator()
    for pool in ((0, 0), (0, 1)):
        allocator.alloc(1000, pool=pool)
    write_snapshot(tmp_path / "pools.pickle", allocator.snapshot())
    assert "pools            0:0, 0:1" in memplan("snapshot", "pools.pickle")[1]
    code, _, err = memplan("snapshot", "pools.pickle", "--pool", "2:0")
    told = "found pool 2:0, expected what has events: streams 0; pools 0:0, 0:1"
    assert (code, told in err) == (2, True)


def test_a_timeline_is_said_to_be_one(memplan, tmp_path):
    (tmp_path / "timeline.json").write_text("[[1, 2], [[0, 1], [2, 3]]]")
    code, _, err = memplan("snapshot", "timeline.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "found a memory timeline, which has no addresses" in err
