"""Operators whose C++ code asks for values: torch.export takes them by decompositions in Python, and so does
the re-run that finds storages."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import (
    StaticRuntime,
    capture,
    compare_run,
    insert_slab,
    load_program,
    make_plan,
    run_safely,
)
from memplan_engine.graph import unknown_sizes
from tests.support.runtime import same_bits


class Spectrum(nn.Module):
    """Sound, its spectrum, and sound again: istft compares the sum of its windows with zero."""

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(16)
        spectrum = torch.stft(sound, 16, 4, 16, window, return_complex=True)
        return torch.istft(spectrum * 2, 16, 4, 16, window)


class Durations(nn.Module):
    """As many steps as the data says, padded, as VITS does it."""

    def forward(self, duration: torch.Tensor) -> torch.Tensor:
        total = duration.sum(1).long()
        mask = (torch.arange(total.max()).unsqueeze(0) < total.unsqueeze(1)).float()  # type: ignore[call-overload]
        reached = torch.arange(mask.shape[-1]).unsqueeze(0) < duration.cumsum(-1).view(-1, 1)
        steps = reached.float().view(1, duration.shape[1], mask.shape[-1])
        return steps - functional.pad(steps, [0, 0, 1, 0, 0, 0])[:, :-1]


def test_istft_is_captured_planned_and_run() -> None:
    sound = torch.randn(2, 64)
    program = load_program(Spectrum(), (sound,))
    assert {op.kind for op in program.graph.ops} >= {"aten.stft", "aten.istft"}
    sizes = {storage.name: storage.nbytes for storage in program.graph.storages}
    # 2 × 9 × 17 complex numbers of 8 bytes; 2 × 64 floats.
    assert (sizes["stft"], sizes["istft"]) == (2448, 512)
    measured = compare_run(program, (sound,), eager=Spectrum())
    assert measured.equality.exact
    assert set(measured.differing) <= {"istft"}, "its temporaries are those of the decomposition"
    plan = make_plan(program.graph, "greedy_by_size")
    expected = Spectrum()(sound)
    assert same_bits(run_safely(program, plan, (sound,)).value, expected)
    runtime = StaticRuntime(Spectrum(), (sound,))
    assert same_bits([runtime(sound), runtime(sound)], [expected, expected])


@pytest.mark.parametrize("functional_form", [False, True])
def test_a_pad_of_a_size_that_depends_on_the_data_is_captured(functional_form: bool) -> None:
    graph = capture(Durations(), (torch.tensor([[2.0, 3.0, 1.0]]),), functional=functional_form)
    assert any("pad" in op.kind for op in graph.ops)
    assert unknown_sizes(graph)


class Checked(nn.Module):
    """A check of values, as LLaVA's of its image tokens: export makes a number of it (`sym_ite`), which is
    the size of nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all(x > -100)
        return x.exp() * 2


def test_a_number_that_is_no_size_does_not_keep_a_model_out_of_the_slab() -> None:
    x = torch.randn(4, 8)
    expected = Checked()(x)
    program = load_program(Checked(), (x,))
    assert any("sym_ite" in str(node.target) for node in program.module.graph.nodes)
    plan = make_plan(program.graph, "greedy_by_size")
    for policy in ("native", "all"):
        in_slab = program.with_module(insert_slab(program, plan, policy=policy))
        assert same_bits(in_slab.run((x,)), expected)
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            in_slab.run((x - 1000,))
    assert same_bits(run_safely(program, plan, (x,)).value, expected)
    runtime = StaticRuntime(Checked(), (x,))
    assert same_bits([runtime(x), runtime(x)], [expected, expected])
