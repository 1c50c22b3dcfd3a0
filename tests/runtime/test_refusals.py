"""Types that kernels refuse: predicted runs refuse them with the words of real ones, and take all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memplan_engine import InputError, observe_fake, observed_peak
from memplan_engine.errors import one_line
from memplan_engine.runtime.recorder.refusals import RefusedTypes
from tests.support.measured import PeakMode

FLOAT8 = torch.float8_e4m3fn


def normalized(x: torch.Tensor) -> torch.Tensor:
    return nn.BatchNorm1d(3)(x)


REFUSED: tuple[Callable[[], Any], ...] = (
    lambda: torch.rand(4) & torch.rand(4),
    lambda: torch.rand(4) << 1,
    lambda: torch.gcd(torch.rand(3), torch.rand(3)),
    lambda: torch.bitwise_not(torch.rand(3)),
    lambda: torch.rand(4).to(FLOAT8) + torch.rand(4).to(FLOAT8),
    lambda: torch.zeros(3, dtype=torch.bool).cumsum_(0),
    lambda: torch.zeros(3, dtype=torch.int).addcmul_(torch.zeros(3), torch.zeros(3)),
    lambda: torch.linalg.inv(torch.eye(3, dtype=torch.half)),
    lambda: torch.rand(3, 3) @ torch.rand(3, 3).half(),
    lambda: nn.Linear(300, 70)(torch.ones(200, 300, dtype=torch.bfloat16)),
    lambda: nn.Conv2d(3, 40, 3)(torch.ones(2, 3, 900, 900, dtype=torch.bfloat16)),
    lambda: normalized(torch.ones(2, 3, dtype=torch.long)),
    lambda: functional.cross_entropy(torch.rand(3, 4), torch.zeros(3, dtype=torch.int32)),
    lambda: functional.binary_cross_entropy(torch.rand(3), torch.zeros(3, dtype=torch.long)),
    lambda: functional.avg_pool2d(torch.ones(1, 1, 3, 3, dtype=torch.int), 2),
    lambda: torch.rand(3, dtype=torch.int),
    # Errors that name a type without the word.
    lambda: torch.rand(3) - torch.ones(3, dtype=torch.bool),
    lambda: torch.rand(3) * torch.rand(3).to(FLOAT8),
    lambda: torch.rand(3, dtype=torch.complex64) * torch.rand(3).to(FLOAT8),
    lambda: torch.polar(torch.ones(3, dtype=torch.bool), torch.rand(3)),
    lambda: torch.zeros(3, dtype=torch.bool).relu(),
    lambda: torch.zeros(3, dtype=torch.complex64).floor(),
    lambda: torch.zeros(3, dtype=torch.complex64).argmax(),
    lambda: torch.fft.rfft(torch.zeros(8, dtype=torch.half)),
    lambda: torch.zeros(3, dtype=torch.complex64).median(),
)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_a_real_run_refuses_is_refused_in_its_words(number: int) -> None:
    call = REFUSED[number]
    with pytest.raises((RuntimeError, NotImplementedError)) as real:
        call()
    with pytest.raises(InputError, match=r"test_refusals\.py:\d+") as refused:
        observe_fake(call)
    assert one_line(str(real.value).splitlines()[0], 80).rstrip("…") in str(refused.value)


def test_what_a_real_run_takes_is_taken() -> None:
    """Half precision, whole numbers in convolutions, types that are promoted, and no elements."""

    def run() -> None:
        whole = torch.ones(1, 1, 3, 3, dtype=torch.int)
        functional.conv2d(whole, whole[..., :2, :2])
        whole[0, 0] @ whole[0, 0]
        torch.rand(3).bfloat16().erfinv() + torch.rand(3) * torch.arange(3)
        torch.rand(3, 4).gather(0, torch.zeros(1, 4, dtype=torch.int32))
        nn.LayerNorm(700)(torch.ones(2, 700, dtype=torch.half))
        torch.zeros(0, 3, 3, dtype=torch.half).logical_and(torch.rand(3))
        torch.linalg.cholesky(torch.zeros(0, 3, 3, dtype=torch.half))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            nn.Linear(4, 4)(torch.rand(2, 4)).softmax(-1)

    with PeakMode() as mode:
        run()
    assert observed_peak(observe_fake(run))[0] == mode.peak


def test_a_run_may_go_on_after_a_refusal() -> None:
    def run() -> None:
        try:
            torch.linalg.inv(torch.eye(30).bfloat16())
        except RuntimeError:
            torch.linalg.inv(torch.eye(30))

    with PeakMode() as mode:
        run()
    assert observed_peak(observe_fake(run))[0] == mode.peak


def test_numbers_that_are_drawn_stay_as_they_are() -> None:
    before = torch.get_rng_state()
    RefusedTypes().check(torch.ops.aten.rand.default, [[900, 900]], {})
    RefusedTypes().check(torch.ops.aten.random_.default, [torch.zeros(3)], {})
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize(
    ("call", "is_refused"),
    [
        (lambda: torch.rand(4, device="cuda") & 1, True),
        (lambda: nn.Linear(4, 4, device="cuda")(torch.rand(2, 4, device="cuda").half()), True),
        # Not on the CPU.
        (lambda: torch.zeros(3, dtype=torch.int, device="cuda").histc(), False),
        (lambda: torch.rand(2, 4, device="cuda").half().softmax(-1), False),
    ],
)
def test_of_the_kernels_of_cards_only_some_are_judged(call: Callable[[], Any], is_refused: bool) -> None:
    def refused() -> bool:
        try:
            observe_fake(call, name="call", device="cuda")
        except InputError as error:
            return "dtype" in str(error) or "not implemented for" in str(error)
        return False

    assert refused() is is_refused


def compiled(grad: bool) -> Any:
    """Call what torch.jit.script has made of a function."""
    twice = torch.jit.script(doubled)
    return twice(torch.rand(30, requires_grad=grad))


def observed_by_channel() -> None:
    observed = torch.ao.quantization.default_fused_per_channel_wt_fake_quant()
    observed(torch.rand(16, 8))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: torch.jit.script(nn.Linear(8, 4))(torch.rand(2, 8)), "what torch.jit.script has compiled"),
        (lambda: torch.jit.trace(nn.Linear(8, 4), torch.rand(2, 8)), "torch.jit.trace, which compares"),
        (lambda: compiled(True), "what torch.jit.script has compiled"),
        (
            lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 16)), {nn.Linear}),
            "a quantized tensor",
        ),
        (observed_by_channel, "a fused observer of channels"),
        (lambda: torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.qint8), "a quantized tensor"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_a_predicted_run_cannot_tell_is_refused_with_the_line(call: Any, found: str) -> None:
    with pytest.raises(
        InputError, match=rf"found {found}.* at .*test_refusals\.py:\d+.*, expected .*observe"
    ):
        observe_fake(call)


def test_a_compiled_function_without_gradients_is_taken() -> None:
    with PeakMode() as mode:
        compiled(False)
    assert observed_peak(observe_fake(lambda: compiled(False)))[0] == mode.peak


def test_a_compiled_module_is_refused_and_left_alone() -> None:
    model = torch.jit.script(nn.Linear(8, 4))
    with pytest.raises(InputError, match=r"a module that .* compiled, expected the model itself"):
        observe_fake(model, (torch.rand(2, 8),))
    observe_fake(lambda: torch.rand(3), name="run")
    assert model(torch.rand(2, 8)).shape == (2, 4)
