"""The memory observer: every allocation and free of tiny runs, worked out by hand.

All tensors are float32 of 1,000 numbers (4,000 bytes) unless said.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memplan_engine import (
    InputError,
    Level,
    Observer,
    observation_recording,
    observe,
    observe_result,
    observed_live,
    observed_peak,
    observed_problem,
)
from memplan_engine.recordings.observation import CHANGE, Observation, older, passing
from memplan_engine.runtime.observer.allocations import CudaHistory
from tests.support.measured import measure_call

N = 4000
X = torch.ones(1000)


def chain(x: torch.Tensor) -> torch.Tensor:
    """Three ops, each of which lets go of what came before."""
    a = x.neg()
    b = a.abs()
    del a
    return b.exp()


def rows(observation: Observation, level: str) -> list[tuple[str, int, bool]]:
    """Each change as (name of its op, bytes, whether the op was running)."""
    names = (*observation.ops.names, "")
    found = observation.at(level)
    return [(names[op], size, inside) for op, size, inside in found[["op", "size", "inside"]].tolist()]


@pytest.mark.parametrize("level", Level)
def test_a_chain_of_three_ops_at_both_levels(level: str) -> None:
    seen, result = observe_result(chain, (X,))
    assert torch.equal(result, torch.ones(1000).exp())
    assert seen.ops.names == ("neg", "abs", "exp")
    assert seen.ops.kinds == ("aten.neg", "aten.abs", "aten.exp")
    assert rows(seen, level) == [
        ("neg", N, True),
        ("abs", N, True),
        ("abs", -N, False),
        ("exp", N, True),
        ("exp", -N, False),
    ]
    live = observed_live(seen, level)
    assert live.during.tolist() == [N, 2 * N, 2 * N]
    assert live.after.tolist() == [N, 2 * N, 2 * N]
    assert observed_peak(seen, level) == (2 * N, 1)


def test_times_are_ordered() -> None:
    seen = observe(chain, X)
    ops = seen.ops
    assert (ops.begin < ops.end).all()
    assert (ops.end[:-1] <= ops.begin[1:]).all()
    rows = seen.at("allocator")
    inside = rows[rows["inside"]]
    assert ((ops.begin[inside["op"]] <= inside["time"]) & (inside["time"] <= ops.end[inside["op"]])).all()
    assert (np.diff(seen.at("dispatch")["time"]) >= 0).all()


def test_what_was_there_before_counts_nowhere() -> None:
    """A weight that nobody named is first seen as a view of itself; an input written in place is no more."""
    linear = torch.nn.Linear(10, 10)
    x = torch.ones(4, 10)

    def run() -> None:
        with torch.no_grad():
            linear(x)
            x.add_(1)

    seen = observe(run)
    assert seen.ops.names == ("t", "addmm", "add_")
    assert rows(seen, "dispatch") == [("addmm", 160, True), ("addmm", -160, False)]


def test_constants_made_in_the_run_count_and_a_storage_that_grows_is_counted_anew() -> None:
    def run() -> torch.Tensor:
        made = torch.tensor([1.0, 2.0])
        made.resize_(10)
        return made

    seen = observe(run, levels="dispatch")
    # `torch.tensor` copies into a new storage, which comes to light as it is detached from nothing.
    assert [size for _, size, _ in rows(seen, "dispatch")] == [8, -8, 40]
    assert observed_peak(seen)[0] == 40


def test_what_autograd_saves_lives_until_the_backward_pass_has_read_it() -> None:
    weight = torch.ones(1000, requires_grad=True)

    def run() -> None:
        weight.exp().sum().backward()

    seen = observe(run, levels="dispatch")
    expected = [("exp", N), ("sum", 4), ("ones_like", 4), ("mul", N)]
    assert [(name, size) for name, size, _ in rows(seen, "dispatch") if size > 0] == expected
    freed = [size for _, size, _ in rows(seen, "dispatch") if size < 0]
    # The gradient stays, as `weight.grad`.
    assert sorted(freed) == [-N, -4, -4]
    assert observed_peak(seen)[0] == 2 * N + 8
    assert measure_call(run, weight) >= 2 * N + 4
    weight.grad = None


@pytest.fixture(scope="module")
def hungry() -> Iterator[Any]:
    """An operator whose kernel takes 8,000 bytes for itself, which no dispatcher sees."""
    library = torch.library.Library("memplan_tests", "FRAGMENT")
    library.define("hungry(Tensor x) -> Tensor")

    def kernel(x: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(2000)
        result = x.neg()
        del scratch
        return result

    library.impl("hungry", kernel, "CPU")
    yield torch.ops.memplan_tests.hungry.default
    library._destroy()


def test_what_a_kernel_takes_is_seen_by_the_allocator_alone(hungry: Any) -> None:
    def run() -> torch.Tensor:
        return hungry(chain(X))

    seen = observe(run, kernels=True)
    assert seen.ops.names[-1] == "hungry"
    dispatch, allocator = observed_live(seen, "dispatch"), observed_live(seen, "allocator")
    assert dispatch.during.tolist() == [N, 2 * N, 2 * N, 2 * N]
    assert allocator.during.tolist() == [N, 2 * N, 2 * N, 4 * N]
    assert allocator.temporary.tolist() == [0, 0, 0, 2 * N]
    found = seen.at("allocator")
    of_hungry = found[(found["op"] == 3) & found["inside"]]
    assert of_hungry["size"].tolist() == [2 * N, N, -2 * N]
    assert [seen.kernels[kernel] for kernel in of_hungry["kernel"][:2]] == ["aten::empty", "aten::neg"]
    assert passing(found).nonzero()[0].tolist() == [found["size"].tolist().index(2 * N)]


def test_the_allocator_alone_names_the_outermost_operators() -> None:
    linear = torch.nn.Linear(10, 10)
    seen = observe(linear, torch.ones(4, 10), levels=["allocator"])
    assert (seen.levels, seen.ops.names) == ((Level.ALLOCATOR,), ("linear",))
    with torch.no_grad():
        assert observed_peak(observe(linear, torch.ones(4, 10), levels="allocator")) == (160, 0)


def test_stacks_are_lines_of_python_outside_the_observer() -> None:
    seen = observe(chain, X, stacks=True)
    frames = seen.stacks.frames_of(int(seen.ops.stack[1]))
    assert (frames[0].function, Path(frames[0].file).name) == ("chain", Path(__file__).name)
    assert "b = a.abs()" in Path(__file__).read_text(encoding="utf-8").splitlines()[frames[0].line - 1]
    problem = observed_problem(seen)
    assert problem.callers is not None
    assert problem.callers.of(1).source is not None
    assert problem.callers.of(1).kind == "abs"
    assert set(observe(chain, X).ops.stack) == {-1}


def test_frees_of_what_is_older_than_the_run() -> None:
    """Torch reports them on accelerators alone. Another device has addresses of its own."""
    made = np.zeros(4, dtype=CHANGE)
    made["size"], made["address"] = [1000, -2048, -512, -1000], [64, 64, 128, 64]
    made["device"], made["kernel"], made["inside"] = [0, 1, 0, 0], -1, True
    ops = observe(chain, X, levels="dispatch").ops
    seen = Observation("made", ops, {Level.ALLOCATOR: made})
    assert older(made).tolist() == [False, True, True, False]
    assert observed_live(seen).during.tolist() == [1000, 0, 0]
    problem = observed_problem(seen, device=0)
    assert problem.names == ("before the recording, 512 B", "neg temporary")
    assert list(zip(problem.start.tolist(), problem.end.tolist(), strict=True)) == [(0, 2), (1, 3)]


def test_an_observation_is_a_problem() -> None:
    """Of four allocations in eight events; the temporary says so in its name."""
    made = np.zeros(8, dtype=CHANGE)
    made["size"] = [10, 20, -20, 30, -10, 40, -40, -30]
    made["address"] = [64, 128, 128, 192, 64, 64, 64, 192]
    made["op"] = [0, 0, 0, 1, 1, 2, 2, 2]
    made["inside"] = [1, 1, 1, 1, 0, 1, 0, 0]
    made["device"], made["kernel"] = -1, -1
    seen = observe(chain, X, levels="dispatch")
    seen = Observation("made", seen.ops, {Level.ALLOCATOR: made})
    problem = observed_problem(seen)
    assert problem.names == ("neg", "neg temporary", "abs", "exp")
    assert problem.start.tolist() == [1, 2, 4, 6]
    assert problem.end.tolist() == [5, 3, 8, 7]
    assert (problem.size.tolist(), problem.steps) == ([10, 20, 30, 40], 9)
    assert observed_live(seen).during.tolist() == [30, 40, 70]
    assert observed_live(seen).after.tolist() == [10, 40, 70]
    recording = observation_recording(seen)
    assert recording.stacks.caller(int(recording.events["stack"][0])).kind == "neg"


def test_bad_levels_devices_and_a_profiler_that_runs_already() -> None:
    with pytest.raises(InputError, match="levels: found kernel, expected of dispatch, allocator"):
        observe(chain, X, levels=["kernel"])
    seen = observe(chain, X, levels="dispatch")
    with pytest.raises(
        InputError, match="level: found 'allocator', expected one that was observed: dispatch"
    ):
        seen.at("allocator")
    with pytest.raises(InputError, match="device: found 3, expected one of -1"):
        seen.at("dispatch", 3)
    with (
        torch.autograd.profiler.profile(use_kineto=True),
        pytest.raises(InputError, match="a profiler that is running already"),
    ):
        observe(chain, X)
    with pytest.raises(InputError, match="a run that is not over"), Observer() as observer:
        _ = observer.observation
    with pytest.raises(InputError, match="subject: found a int, expected a program, a module or a function"):
        observe(3)  # type: ignore[arg-type]
    with Observer() as observer:
        pass
    assert len(observer.observation.ops) == 0
    with pytest.raises(InputError, match="found one that has been used"), observer:
        pass
    # An error in the run ends the recording, too.
    with pytest.raises(ZeroDivisionError):
        observe(lambda: 1 / 0)
    assert len(observe(chain, X).ops) == 3


class Memory:
    """Torch's memory history of a GPU, as far as it is used: three events on device 0 of a run of `chain`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.times: list[int] = []

    def _record_memory_history(self, enabled: Any, **options: Any) -> None:
        self.calls.append(enabled)

    def _dump_snapshot(self, path: str) -> None:
        def event(action: str, address: int, size: int, time: int) -> dict[str, Any]:
            return {
                "action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": []
            }  # fmt: skip

        old, first, second = self.times
        trace = [event("alloc", 2048, 512, old), event("alloc", 4096, 1024, first)]
        trace += [event("free_completed", 4096, 1024, second)]
        with open(path, "wb") as file:
            pickle.dump({"segments": [], "device_traces": [trace]}, file)


def test_a_memory_history_of_cuda_becomes_changes_of_its_device() -> None:
    memory = Memory()
    observer = Observer(name="chain")
    observer.cuda = CudaHistory(memory)
    with observer:
        begun = observer.ops.epoch // 1000
        chain(X)
        ended = observer.ops._end[-1] // 1000
        memory.times = [begun - 1_000_000, ended - 1, ended + 1_000_000]
    assert memory.calls == ["all", None]
    seen = observer.observation
    assert seen.devices == (-1, 0)
    on_gpu = seen.at("allocator", 0)
    assert on_gpu["size"].tolist() == [1024, -1024]
    assert on_gpu["op"].tolist()[1] == 2
    assert not on_gpu["inside"][1]
    assert observed_peak(seen, "allocator", -1)[0] == 2 * N
    assert observed_problem(seen, "allocator", 0).size.tolist() == [1024]
