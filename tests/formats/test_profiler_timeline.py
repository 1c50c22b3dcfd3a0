"""The profiler's traces and timelines: real ones of a small training step, and small ones by hand."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import (
    ImportOptions,
    InputError,
    Plan,
    Problem,
    find_peak,
    find_provenance,
    load,
    make_profile,
)
from memplan_engine.files import load_recording
from memplan_engine.formats import json_stream
from memplan_engine.formats.about import may_have_about
from memplan_engine.formats.allocator_files import profiler_timeline
from memplan_engine.formats.allocator_files.profiler_trace import load_trace
from memplan_engine.planner import make_plan
from memplan_engine.recordings.allocator_recording import Selection, choose_recording, reserved_over_time
from memplan_engine.recordings.cost import cost_of, live_over_time
from memplan_engine.recordings.recorded_problem import buffers


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of a small model, traced, in every form that the profiler writes."""
    import torch

    folder = tmp_path_factory.mktemp("profiled")
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    data, optimizer = torch.randn(32, 64), torch.optim.Adam(model.parameters())
    chosen: dict[str, Any] = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **chosen) as profile:
        for _ in range(2):
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
    profile.export_chrome_trace(str(folder / "trace.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("line.json", "line.json.gz", "line.raw.json.gz"):
            profile.export_memory_timeline(str(folder / name), device="cpu")
    return folder


def peak_of(path: Path) -> int:
    problem = load(path)
    assert isinstance(problem, Problem)
    return find_peak(problem).nbytes


def test_a_real_trace_has_the_bytes_that_the_profiler_counted(profiled: Path) -> None:
    (recording,) = load_trace(profiled / "trace.json").recordings
    assert (recording.device, recording.held) == (-1, None)
    events = json.loads((profiled / "trace.json").read_text())["traceEvents"]
    memory = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda event: event["ts"])
    spans = buffers(recording)
    live = live_over_time(spans, recording.steps)
    counted = [event["args"]["Total Allocated"] for event in memory]
    older = live[0]
    assert [int(value) - older for value in live[1:]] == [
        value - (counted[0] - memory[0]["args"]["Bytes"]) for value in counted
    ]
    assert (spans.double_frees, spans.lost_frees) == (0, 0)
    assert cost_of(recording).peak.live == max(live)


def test_a_real_trace_says_who_asked(profiled: Path) -> None:
    problem = load(profiled / "trace.json")
    assert isinstance(problem, Problem)
    known = find_provenance(problem)
    assert {"addmm", "mm", "zeros_like"} <= {each.kind for each in known}
    assert {Path(each.source.file).name for each in known if each.source} >= {Path(__file__).name}
    plan = load(profiled / "trace.json", ImportOptions(offsets_as_plan=True))
    assert isinstance(plan, Plan)
    assert plan.strategy == "recorded"


def test_real_timelines_have_the_same_peak_in_every_form(profiled: Path) -> None:
    sizes = json.loads((profiled / "line.json").read_text())[1]
    peak = max(map(sum, sizes))
    assert peak_of(profiled / "line.json") == peak_of(profiled / "line.json.gz") == peak
    events = json.loads(gzip.decompress((profiled / "line.raw.json.gz").read_bytes()))
    live = most = 0
    for _, _, nbytes, _ in events:
        live += nbytes
        most = max(most, live)
    assert peak_of(profiled / "line.raw.json.gz") == most
    problem = load(profiled / "line.raw.json.gz")
    assert isinstance(problem, Problem)
    assert {"parameter", "gradient", "optimizer_state"} <= {each.kind for each in find_provenance(problem)}


def memory(
    ts: float, nbytes: int, address: int, device: int = 0, reserved: int = 0, **more: Any
) -> dict[str, Any]:
    said = {
        "Bytes": nbytes,
        "Addr": address,
        "Device Type": 1,
        "Device Id": device,
        "Total Reserved": reserved,
    }
    return {"ph": "i", "name": "[memory]", "ts": ts, "tid": 7, "args": said | more}


def running(cat: str, name: str, ts: float, dur: float, tid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(value: Any, name: str = "some.json", packed: bool = False) -> Path:
        text = (value if isinstance(value, str) else json.dumps(value)).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if packed else text)
        return tmp_path / name

    return write


def trace(*events: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": list(events), "traceName": "x"}


TWO = (
    # Not in the order of time, as kineto writes them.
    running("cpu_op", "aten::mm", 10, 5),
    memory(12, 512, 4096, reserved=2048),
    memory(21.5, -512, 4096, reserved=2048),
    memory(11, 256, 8192, reserved=1024),
    running("python_function", "a/train.py(7): step", 9, 20),
    running("python_function", "torch/nn/modules/linear.py(125): forward", 9.5, 6),
    running("cpu_op", "aten::empty", 11.9, 0.2),
    memory(30, -64, 9000, reserved=2048),
    memory(31, 64, 1, device=1),
)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_memory_events_are_buffers_with_the_stack_of_what_was_running(
    written: Any, monkeypatch: pytest.MonkeyPatch, packed: bool, chunk: int
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    told: list[tuple[int, int]] = []
    path = written(trace(*TWO), "run.pt.trace.json", packed)
    snapshot = load_recording(path, lambda done, total: told.append((done, total)))
    assert [each.device for each in snapshot.recordings] == [0, 1]
    recording = choose_recording(snapshot, Selection())
    assert recording.name == "run, device 0"
    spans = buffers(recording)
    assert list(zip(spans.start.tolist(), spans.end.tolist(), spans.size.tolist(), strict=True)) == [
        (0, 4, 64), (1, 5, 256), (2, 3, 512)
    ]  # fmt: skip
    assert [recording.stacks.caller(stack).label for stack in spans.stack.tolist()] == [
        "no stack recorded", "train.py:7 step", "train.py:7 step"
    ]  # fmt: skip
    assert [recording.stacks.caller(stack).kind for stack in spans.stack.tolist()[1:]] == ["mm", "mm"]
    frames = recording.stacks.frames_of(int(spans.stack[2]))
    assert [frame.function for frame in frames] == ["aten::empty", "aten::mm", "forward", "step"]
    assert reserved_over_time(recording).tolist() == [1024, 1024, 2048, 2048, 2048]
    assert recording.events["time"].tolist() == [11, 12, 21, 30]
    assert told[-1][0] == told[-1][1] == path.stat().st_size


def test_a_trace_of_the_cpu_has_no_reserved_bytes_and_the_verb_says_so(memplan, written):
    path = written(trace(memory(1, 512, 64, **{"Device Type": 0, "Device Id": -1})))
    out = memplan("snapshot", path)[1]
    assert "peak reserved    not recorded" in out
    assert "fragmentation" not in out
    assert "planned arena    512 B (auto)\n" in out
    assert "device -1" in out
    assert memplan("plan", path)[0] == 0
    assert not may_have_about(path), "a trace of gigabytes is not read for a header"
    code, _, err = memplan("snapshot", written("[[1],[[0,1,0,0,0,0,0,0,0]]]"))
    assert (code, err) == (
        2,
        "memplan: some.json: found a memory timeline, which has no addresses, expected a snapshot or a "
        "trace; `memplan plan` and `peak` take timelines\n",
    )


def test_points_of_a_timeline_are_growth_and_the_youngest_shrinks_first(written: Any) -> None:
    #          a0  a1  a2  a3
    activation = [10, 30, 5, 5]
    sizes = [[0, 7, 0, 0, 0, grown, 0, 0, 0] for grown in activation]
    problem = load(written([[5, 6, 7, 9], sizes]))
    assert isinstance(problem, Problem)
    rows = zip(
        problem.names, problem.start.tolist(), problem.end.tolist(), problem.size.tolist(), strict=True
    )
    assert list(rows) == [
        ("activation #1", 1, 3, 5),
        ("activation #2", 1, 5, 5),
        ("parameter #1", 1, 5, 7),
        ("activation #3", 2, 3, 20),
    ]
    assert [each.kind for each in find_provenance(problem)] == [
        "activation",
        "activation",
        "parameter",
        "activation",
    ]


def test_events_of_a_timeline_are_tensors(written: Any) -> None:
    events = [
        [-1, 1, 100, 0],  # there before: a parameter
        [5, 2, 40, 3],  # a temporary
        [6, 2, 40, 3],  # another
        [7, 3, -40, 3],  # the youngest of which becomes
        [7, 3, 40, 4],  # an activation
        [8, 4, -40, 3],
        [9, 4, -100, 0],
    ]
    problem = load(written(events, "run.raw.json.gz", packed=True))
    assert isinstance(problem, Problem)
    rows = zip(
        problem.names, problem.start.tolist(), problem.end.tolist(), problem.size.tolist(), strict=True
    )
    assert list(rows) == [
        ("parameter #1", 0, 7, 100),
        ("temporary #1", 2, 6, 40),
        ("activation #1", 3, 8, 40),
    ]


@given(st.lists(st.lists(st.integers(0, 50), min_size=8, max_size=8), max_size=12))
def test_live_bytes_are_exact_at_every_point(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("points") / "a.json"
    path.write_text(json.dumps([list(range(len(sizes))), [[0, *row] for row in sizes]]))
    problem = load(path)
    assert isinstance(problem, Problem)
    profile = make_profile(problem, make_plan(problem, "greedy_by_size").offsets)
    found = [int(profile.live[profile.sections.at(step)]) for step in range(1, len(sizes) + 1)]
    assert found == [sum(row) for row in sizes]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (trace(), "traceEvents: found no memory event, expected [memory] events"),
        ('{"schemaVersion": 1, "x": 2}', 'found no "traceEvents"'),
        ('{"schemaVersion": 1, "traceEvents": {}}', 'found "traceEvents" without a list'),
        ('{"schemaVersion": 1, "traceEvents": [{"a": 1}', "it was cut short"),
        ('{"schemaVersion": 1, "traceEvents": [{"a": 1', "expected the rest of the list"),
        ('{"schemaVersion": 1, "traceEvents": [{"a": nonsense}]}', "found broken JSON"),
        ('{"schemaVersion": 1, "traceEvents": [{"a":' + "[" * 100_000 + "]}", "values nested without end"),
        ('{"schemaVersion": 1, "traceEvents": [,]}', "found broken JSON, ',' behind 0 objects of the list"),
        (
            '{"schemaVersion": 1, "traceEvents": [{},,{}]}',
            "',' behind 1 objects of the list",
        ),
        (
            '{"schemaVersion": 1, "traceEvents": [{} {}]}',
            "'{' behind 1 objects of the list",
        ),
        ('{"schemaVersion": 1, "traceEvents": [1]}', "'1' behind 0 objects of the list, expected an object"),
        (trace(memory(1, "x", 1)), "memory event 0: found 1, 'x'"),  # type: ignore[arg-type]
        (trace(memory(1, 2**70, 1)), "expected an address and whole numbers"),
        (trace(memory(-1, 1, 1)), "event '[memory]', ts: found -1, expected microseconds"),
        (trace(running("cpu_op", "a", 1, float("inf"))), "event 'a', dur: found inf"),
        ("[[1, 2], [[0]]]", "found a list, expected a memory timeline"),
        ("[[1], [[0, 1]]]", "point 1: found 2 values, expected 8 categories"),
        ("[[1], [[0, 1, 2, 3, 4, 5, 6, 7, 1.5]]]", "step 1: found 1.5, expected a whole number"),
        ("[[1, 9, 1, 0]]", "found time 1, action 9"),
        ("[[1, 2, 1, 8]]", "found category 8, expected 0 to 7"),
        ("[[1, 2, -1, 0]]", "step 1: found -1, expected a whole number"),
        ("[[1, 4, -1, 0]]", "event 1: found 1 bytes of parameter freed"),
        ("[[1, 3, -1, 0], [1, 3, 2, 0]]", "expected those of the old version"),
        ("[[1, ", "found broken JSON"),
        ("[[" * 100_000, "found broken JSON"),
    ],
)
def test_what_is_broken_is_said_in_one_line(written: Any, content: Any, message: str) -> None:
    for packed in (False, True):
        with pytest.raises(InputError) as caught:
            load(written(content, packed=packed))
        assert message in str(caught.value)
        assert str(caught.value).startswith("some.json: ")


def test_damaged_and_endless_compression(
    written: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = written(trace(*TWO), packed=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(InputError, match="damaged compression"):
        load(path)
    path.write_bytes(whole[:200] + bytes(20) + whole[220:])
    with pytest.raises(InputError, match=r"some\.json: "):
        load(path)
    monkeypatch.setattr(json_stream, "MAX_PLAIN_BYTES", 1 << 21)
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * (8 << 20)))
    with pytest.raises(InputError, match="expected a packing ratio of at most 200"):
        load(path)
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * (3 << 20), 0))
    with pytest.raises(InputError, match="found more than 2,097,152 bytes when unpacked"):
        load(path)
    monkeypatch.setattr(profiler_timeline, "MAX_BYTES", 1 << 20)
    path.write_bytes(gzip.compress(b"[[" + b" " * (2 << 20), 0))
    with pytest.raises(InputError, match="expected at most 1,048,576"):
        load(path)
    (tmp_path / "other.gz").write_bytes(gzip.compress(b"hello"))
    with pytest.raises(InputError, match="an unknown file format"):
        load(tmp_path / "other.gz")
