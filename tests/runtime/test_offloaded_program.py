"""Programs whose results wait on the host: the bits of the captured program, and the predicted bytes, by a
recorder that knows nothing of the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from memplan_engine import InputError, accelerator, fit_graph, fitted_program, insert_slab, load_program
from memplan_engine.analysis.op_costs import modelled_times
from memplan_engine.fitting.fitted import Stage, StageName, state_bytes_of
from memplan_engine.op_kinds.copies import TO_DEVICE, TO_HOST, is_copy
from memplan_engine.runtime.host_copies import Layout, to_device, to_host
from memplan_engine.runtime.loading import load_step
from memplan_engine.runtime.offloaded_program import offloaded_program
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.slab.fitted_program import ordered_program
from memplan_engine.runtime.trial.equality import restoring, written_tensors
from tests.runtime.test_recomputed_program import Blocks, Pictures, square
from tests.support.measured import measure_graph_module
from tests.support.runtime import same_bits

ALL = ("in_place", "reorder", "recompute", "offload")


def offloaded(program: Program, share: float, only: tuple[str, ...]) -> Stage:
    """The stage with copies to the host, within `share` of what the stages before it need."""
    graph = program.graph
    before = fit_graph(graph, only=[name for name in only if name != "offload"]).best.plan.arena_bytes
    capacity = state_bytes_of(graph) + int(share * before)
    times = replace(modelled_times(graph, accelerator("a100-80")), host_bandwidth=1e12)
    stage = fit_graph(graph, capacity, only, times=times).best
    assert stage.name is StageName.OFFLOAD
    assert stage.copied_bytes > 0
    return stage


def check(program: Program, inputs: tuple[Any, ...], stage: Stage) -> None:
    flat, graph = program.inputs(inputs), stage.rewritten
    kinds = [op.kind for op in graph.ops]
    assert kinds.count(TO_HOST) == kinds.count(TO_DEVICE) > 0
    other, base = fitted_program(program, graph), ordered_program(program, graph)
    in_slab = base.with_module(insert_slab(base, stage.plan, policy="all"))
    with restoring(written_tensors(program, flat), 5) as restore:
        restore()
        expected = program.run(inputs)
        after = [tensor.clone() for tensor in written_tensors(program, flat)]
        for each in (other, in_slab):
            restore()
            result = each.run(inputs)
            assert same_bits(result, expected[: len(result)] if isinstance(result, list) else expected)
            assert same_bits(written_tensors(program, flat), after)
        restore()
        peak = max(measure_graph_module(other.module, flat).values())
    has_concats = any(op.kind == "aten.cat" for op in program.graph.ops)
    assert peak == stage.load_bytes or (has_concats and peak > stage.load_bytes)


@pytest.mark.parametrize(
    ("optimizer", "share", "only"),
    [("sgd", 0.7, ("offload",)), ("adamw", 0.6, ("in_place", "offload")), ("adamw", 0.5, ALL)],
)
def test_a_training_step_has_the_same_bits_and_the_peak_that_was_predicted(
    optimizer: str, share: float, only: tuple[str, ...]
) -> None:
    x = torch.rand(128, 32)
    program = load_step(Blocks().train(), (x,), optimizer=optimizer, loss=square)
    check(program, (x,), offloaded(program, share, only))


@pytest.mark.parametrize("only", [("offload",), ("in_place", "reorder", "offload")])
def test_views_of_what_comes_back_and_batch_norm(only: tuple[str, ...]) -> None:
    x = torch.rand(4, 3, 16, 16)
    program = load_step(Pictures().train(), (x,), optimizer="sgd", loss=square)
    check(program, (x,), offloaded(program, 0.8, only))


def test_copies_of_another_program_are_refused() -> None:
    x = torch.rand(128, 32)
    program = load_step(Blocks().train(), (x,), optimizer="sgd", loss=square)
    stage = offloaded(program, 0.8, ("offload",))
    other = load_program(Blocks().eval(), (x,))
    with pytest.raises(InputError, match="other ops than those of the program"):
        offloaded_program(other, stage.graph)


def test_what_comes_back_has_the_content_and_the_form_of_what_went() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    part = whole[1:, ::2]
    copy = to_host(part, 4 * part.storage_offset(), 4 * 24)
    assert copy.nbytes == whole.untyped_storage().nbytes()
    layouts = tuple(
        Layout(tuple(each.shape), each.stride(), 4 * each.storage_offset(), each.dtype)
        for each in (whole, part)
    )
    backs = to_device(copy, layouts)
    assert same_bits(list(backs), [whole, part])
    assert backs[0].untyped_storage().data_ptr() == backs[1].untyped_storage().data_ptr()
    assert backs[0].data_ptr() != whole.data_ptr()


def test_what_has_no_values_has_a_copy_without() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.rand(3))
        copy = to_host(fake, 0, 12)
        (back,) = to_device(copy, (Layout((3,), (1,), 0, torch.float32),))
    assert (copy.nbytes, copy.content, tuple(back.shape)) == (12, None, (3,))


def test_what_lies_on_a_card_is_not_copied() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(InputError, match="a tensor on cuda:0, expected a CPU"):
        to_host(torch.empty(3, device="cuda"), 0, 12)


def test_no_op_of_the_program_is_a_copy() -> None:
    program = load_program(Blocks().eval(), (torch.rand(8, 32),))
    assert not any(is_copy(op.kind) for op in program.graph.ops)
