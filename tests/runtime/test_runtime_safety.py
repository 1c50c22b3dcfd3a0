"""Safety mode: sound plans go through, and every plan or kernel at fault is caught and named."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import (
    InputError,
    MemplanError,
    Plan,
    Program,
    insert_slab,
    load_program,
    load_step,
    make_plan,
    make_problem,
    run_safely,
    validate_plan,
)
from memplan_engine.plan import naive_offsets
from memplan_engine.runtime.slab.binding import bind
from memplan_engine.runtime.trial.safety import spread
from tests.support.runtime import Blocks, Calls, Pixels, same_bits

X = torch.linspace(-2, 2, 64).reshape(4, 16)


def planned(program: Program) -> Plan:
    return make_plan(program.graph, "greedy_by_size")


@pytest.fixture(scope="module")
def blocks() -> tuple[Program, Plan]:
    program = load_program(Blocks(), (X,), name="blocks")
    return program, planned(program)


@pytest.mark.parametrize("guard", [0, 1, 64, 1000])
def test_sound_plans_go_through(blocks: tuple[Program, Plan], guard: int) -> None:
    program, plan = blocks
    run = run_safely(program, plan, (X,), guard=guard)
    assert same_bits(run.value, program.interpret((X,)))
    assert run.ops == len(program.graph.ops)
    assert run.guard % 64 == 0
    assert run.guard >= guard
    assert run.arena_bytes >= plan.arena_bytes + 2 * run.guard
    assert run.compared_bytes > run.ops * plan.arena_bytes / 4
    image = torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)
    program = load_program(Pixels().eval(), (image,))
    assert same_bits(run_safely(program, planned(program), (image,)).value, program.interpret((image,)))


def test_a_training_step_goes_through() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    program = load_step(model, (X,), optimizer="adam")
    state = [tensor.clone() for tensor in program.state]
    expected = program.interpret((X,))
    for tensor, value in zip(program.state, state, strict=True):
        tensor.copy_(value)
    assert same_bits(run_safely(program, planned(program), (X,)).value, expected)


def test_guards_keep_what_is_live_apart_and_nothing_else(blocks: tuple[Program, Plan]) -> None:
    program, plan = blocks
    binding = bind(program.graph, plan)
    guarded = spread(binding, 100)
    regions = guarded.regions
    assert guarded.arena_bytes == max(region.high for region in regions.values()) + 128
    for one, other in combinations(binding.regions, 2):
        a, b, c, d = (regions[one], regions[other], binding.regions[one], binding.regions[other])
        if a.start < b.end and b.start < a.end:
            assert a.high + 128 <= b.low or b.high + 128 <= a.low
        if c.low == d.low:
            assert a.low == b.low
    assert min(region.low for region in regions.values()) == 128
    for name, region in regions.items():
        assert region.low >= 128
        assert region.high - region.low == binding.regions[name].high - binding.regions[name].low
        assert region.low % 64 == 0


def test_the_largest_arena_that_guards_may_make(blocks: tuple[Program, Plan]) -> None:
    binding = bind(blocks[0].graph, blocks[1])
    name, region = next(iter(binding.regions.items()))
    for high, fits in ((127, True), (128, False)):
        one = replace(binding, regions={name: replace(region, low=0, high=high)})
        if fits:
            assert spread(one, 2**62 - 64).arena_bytes == 2**63 - 1
        else:
            with pytest.raises(InputError, match="expected an arena of at most"):
                spread(one, 2**62 - 64)


# Plans at fault


@given(st.data())
def test_two_live_buffers_that_overlap_are_refused_and_caught_if_forced(data: st.DataObject) -> None:
    """Every time: over random pairs, any number of shared bytes, and whatever the values are."""
    program, plan = BLOCKS
    problem = plan.problem
    pairs = [
        (one, other)
        for one in range(len(problem))
        for other in range(len(problem))
        if one != other
        and problem.start[one] < problem.end[other]
        and problem.start[other] < problem.end[one]
    ]
    one, other = data.draw(st.sampled_from(pairs))
    base = data.draw(st.sampled_from([plan.offsets, naive_offsets(problem) + 4096]))
    most = int(problem.size[other]) // 64
    step = data.draw(st.integers(1 - int(problem.size[one]) // 64, max(most - 1, 0)))
    offsets = base.copy()
    offsets[one] = max(0, int(base[other]) + 64 * step)
    shared = min(offsets[one] + problem.size[one], offsets[other] + problem.size[other])
    shared -= max(offsets[one], offsets[other])
    if shared <= 0:
        return
    bad = replace(plan, offsets=offsets)
    x = torch.zeros(4, 16) if data.draw(st.booleans()) else X.clone()
    with pytest.raises(InputError, match="overlap"):
        insert_slab(program, bad)
    with pytest.raises(InputError, match="overlap"):
        run_safely(program, bad, (x,))
    with pytest.raises(MemplanError, match=r"op '\w+' \(aten\.\w+\) makes buffer '\w+' at bytes") as raised:
        run_safely(program, bad, (x,), force=True)
    assert "which is live" in str(raised.value)


BLOCKS: Any = None


@pytest.fixture(autouse=True, scope="module")
def _program_for_hypothesis(blocks: tuple[Program, Plan]) -> None:
    global BLOCKS
    BLOCKS = blocks


def test_the_message_names_op_buffers_and_bytes() -> None:
    program = load_program(Calls(lambda linear, x: linear(x).exp() + x.sin()), (X,), name="m")
    plan = planned(program)
    assert plan.problem.names == ("linear", "exp", "sin", "add")
    bad = replace(plan, offsets=np.array([0, 256, 448, 1024]))
    with pytest.raises(MemplanError) as raised:
        run_safely(program, bad, (X,), force=True)
    assert str(raised.value) == (
        "m: op 'sin' (aten.sin) makes buffer 'sin' at bytes 448–703, of which 448–511 (64 bytes) belong to "
        "'exp', which is live"
    )


def test_every_lifetime_that_is_too_short_is_refused_and_caught_if_forced(
    blocks: tuple[Program, Plan],
) -> None:
    """One step taken off the end of each buffer that is read after it is made."""
    program, plan = blocks
    problem = plan.problem
    tried = 0
    for row, name in enumerate(problem.names):
        returned = problem.end[row] == problem.steps
        if problem.end[row] - problem.start[row] < 2 or returned:
            continue
        ends = problem.end.copy()
        ends[row] -= 1
        columns = {"start": problem.start, "end": ends, "size": problem.size, "names": problem.names}
        short = make_problem(**columns, alignment=64, steps=problem.steps, origin=problem.origin)
        bad = replace(plan, problem=short)
        assert not [v for v in validate_plan(bad, replay=False).violations if "bound" not in v.rule.value]
        with pytest.raises(InputError, match=f"buffer '{name}' live during"):
            run_safely(program, bad, (X,))
        with pytest.raises(MemplanError, match=f"reads buffer '{name}', bytes .*, which is live only during"):
            run_safely(program, bad, (X,), force=True)
        tried += 1
    assert tried >= 5


def with_life(plan: Plan, name: str, start: int, end: int) -> Plan:
    """`plan` in which the buffer `name` is taken to be live during `[start, end)`."""
    problem = plan.problem
    row = problem.names.index(name)
    starts, ends = problem.start.copy(), problem.end.copy()
    starts[row], ends[row] = start, end
    columns = {"start": starts, "end": ends, "size": problem.size, "names": problem.names}
    other = make_problem(**columns, alignment=64, steps=problem.steps, origin=problem.origin)
    return replace(plan, problem=other)


def test_what_is_made_too_early_or_returned_too_late_is_caught_if_forced() -> None:
    program = load_program(Calls(lambda linear, x: (linear(x).exp(), x.sin())), (X,), name="m")
    plan = replace(planned(program), offsets=np.array([0, 256, 512]))
    assert plan.problem.names == ("linear", "exp", "sin")
    with pytest.raises(MemplanError) as raised:
        run_safely(program, with_life(plan, "exp", 2, 3), (X,), force=True, guard=0)
    assert str(raised.value).startswith(
        "m: op 'exp' (aten.exp) at step 1 makes buffer 'exp', bytes 256–511, which is live only during "
        "steps 2 to 2"
    )
    with pytest.raises(MemplanError) as raised:
        run_safely(program, with_life(plan, "exp", 1, 2), (X,), force=True, guard=0)
    assert str(raised.value).startswith(
        "m: after the last op the graph returns buffer 'exp', bytes 256–511, which is live only during "
        "steps 1 to 1"
    )


# Kernels at fault

LIBRARY = torch.library.Library("memplan_test", "DEF")
LIBRARY.define("spill(Tensor x, int where) -> Tensor")
LIBRARY.define("spill.out(Tensor x, int where, *, Tensor(a!) out) -> Tensor(a!)")
LIBRARY.define("meddle(Tensor x) -> Tensor")
LIBRARY.define("fails(Tensor x) -> Tensor")
LIBRARY.define("look(Tensor x) -> Tensor")


def spill_out(x: torch.Tensor, where: int, *, out: torch.Tensor) -> torch.Tensor:
    """Doubles, and writes one item at `where`, counted from the start of `out`, too."""
    out.copy_(x * 2)
    if out.untyped_storage().nbytes() > out.nbytes:
        torch.as_strided(out, [1], [1], out.storage_offset() + where).fill_(7.0)
    return out


def meddle(x: torch.Tensor) -> torch.Tensor:
    """Claims to read only."""
    x[0, 0] = 0.5
    return x * 2


LIBRARY.impl("spill", lambda x, where: x * 2, "CPU")
LIBRARY.impl("spill.out", spill_out, "CPU")


FAULT: list[Exception] = []


def fails(x: torch.Tensor) -> torch.Tensor:
    raise FAULT[-1]


SEEN: list[torch.Tensor] = []


def look(x: torch.Tensor) -> torch.Tensor:
    """Remembers all bytes of the memory in which `x` lies."""
    SEEN.append(torch.tensor([], dtype=torch.uint8).set_(x.untyped_storage()).clone())
    return x * 2


LIBRARY.impl("look", look, "CPU")
LIBRARY.impl("meddle", meddle, "CPU")
LIBRARY.impl("fails", fails, "CPU")
torch.library.register_fake("memplan_test::spill", lambda x, where: torch.empty_like(x), lib=LIBRARY)
torch.library.register_fake("memplan_test::look", lambda x: torch.empty_like(x), lib=LIBRARY)
torch.library.register_fake("memplan_test::meddle", lambda x: torch.empty_like(x), lib=LIBRARY)
torch.library.register_fake("memplan_test::fails", lambda x: torch.empty_like(x), lib=LIBRARY)


def test_bytes_of_nobody_are_poisoned() -> None:
    def forward(linear: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.memplan_test.look(linear(x).exp())
        return torch.ops.memplan_test.look(y + 1) + y

    program = load_program(Calls(forward), (X,), name="m")
    plan = planned(program)
    assert plan.problem.names == ("linear", "exp", "look", "add", "look_1", "add_1")
    SEEN.clear()
    offsets = np.array([0, 256, 512, 0, 256, 768])
    run = run_safely(program, replace(plan, offsets=offsets), (X,), guard=0)
    assert len(SEEN) == 2
    # Each op writes a quarter of the arena, and the three others are compared; behind a look, whose value is
    # copied there by another node, all of them.
    assert (run.ops, run.compared_bytes, run.arena_bytes, run.guard) == (6, 6 * 768 + 2 * 1024, 1024, 0)
    assert same_bits(run.value, program.interpret((X,)))
    # In quarters of 256 bytes: at the first look exp is live, at the second the first look and add.
    for seen, live in zip(SEEN[:2], ({1}, {0, 2}), strict=True):
        poisoned = {
            place for place in range(4) if bool((seen[256 * place : 256 * place + 256] == 0xFF).all())
        }
        assert poisoned == {0, 1, 2, 3} - live


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (63, ""),
        (64, "free bytes 0 behind buffer 'spill'"),
        (70, "free bytes 24 behind buffer 'spill'"),
        (-1, "free bytes|no live buffer"),
    ],
)
def test_a_kernel_that_writes_out_of_bounds_is_named(where: int, what: str) -> None:
    program = load_program(
        Calls(lambda linear, x: torch.ops.memplan_test.spill(linear(x).exp(), where).sin() + 1),
        (X,),
        name="m",
    )
    plan = planned(program)
    if not what:
        run_safely(program, plan, (X,))
        return
    with pytest.raises(MemplanError, match=r"m: op 'spill' \(memplan_test.spill\) wrote into bytes \d+–\d+"):
        run_safely(program, plan, (X,))
    with pytest.raises(MemplanError, match=what):
        run_safely(program, plan, (X,))


def test_without_guards_a_neighbour_is_hit_and_named() -> None:
    # Of these weights no byte of the neighbour is what is written over it.
    torch.manual_seed(0)
    program = load_program(
        Calls(lambda linear, x: torch.ops.memplan_test.spill(linear(x).exp(), -1).sin() + 1), (X,), name="m"
    )
    plan = planned(program)
    rows = {name: row for row, name in enumerate(plan.problem.names)}
    offsets = np.zeros(len(rows), dtype=np.int64)
    for name, offset in (("linear", 512), ("exp", 0), ("spill", 256), ("sin", 0), ("add", 512)):
        offsets[rows[name]] = offset
    with pytest.raises(
        MemplanError, match="wrote into bytes 252–255 of the arena, which belong to buffer 'exp'"
    ):
        run_safely(program, replace(plan, offsets=offsets), (X,), guard=0)


def test_the_first_byte_of_the_arena_counts_and_free_bytes_have_the_nearest_buffer_below() -> None:
    torch.manual_seed(0)

    def forward(linear: torch.nn.Module, x: torch.Tensor, where: int) -> torch.Tensor:
        y = linear(x).exp()
        return torch.ops.memplan_test.spill(y.sin(), where) + y

    for where, what in ((-128, "bytes 0–3 of the arena, which belong to buffer 'exp'"), (80, "'spill'")):
        program = load_program(Calls(lambda linear, x, at=where: forward(linear, x, at)), (X,), name="m")
        plan = planned(program)
        assert plan.problem.names == ("linear", "exp", "sin", "spill", "add")
        offsets = np.array([1024, 0, 256, 512, 1024])
        with pytest.raises(MemplanError) as raised:
            run_safely(program, replace(plan, offsets=offsets), (X,), guard=0)
        assert what in str(raised.value)
        assert ("free bytes 64 behind buffer 'spill' (512–767)" in str(raised.value)) is (where == 80)


def test_a_kernel_that_fails_is_named() -> None:
    program = load_program(Calls(lambda linear, x: torch.ops.memplan_test.fails(linear(x))), (X,), name="m")
    FAULT.append(RuntimeError("no"))
    with pytest.raises(
        MemplanError, match=r"^m: op 'fails' \(memplan_test.fails\) failed in the arena: RuntimeError: no"
    ):
        run_safely(program, planned(program), (X,))
    # What says by itself what is wrong is passed on as it is.
    FAULT.append(MemplanError("m: no"))
    with pytest.raises(MemplanError, match=r"^m: no$"):
        run_safely(program, planned(program), (X,))


def test_a_kernel_that_writes_what_it_only_reads_is_named() -> None:
    program = load_program(
        Calls(lambda linear, x: (lambda y: torch.ops.memplan_test.meddle(y) + y)(linear(x).exp())), (X,)
    )
    with pytest.raises(MemplanError, match=r"op 'meddle' .* wrote into bytes \d+–\d+ .* buffer 'exp'"):
        run_safely(program, planned(program), (X,))


def test_bad_calls(blocks: tuple[Program, Plan]) -> None:
    program, plan = blocks
    with pytest.raises(InputError, match="guard: found -1 bytes"):
        run_safely(program, plan, (X,), guard=-1)
    for guard in (2**62, 2**63 - 1, 2**70):
        with pytest.raises(InputError, match=r"guard: found \d+ bytes, expected an arena of at most 2\^63-1"):
            run_safely(program, plan, (X,), guard=guard)
    with pytest.raises(InputError, match="input 'x': found shape"):
        run_safely(program, plan, (X[:2],))
