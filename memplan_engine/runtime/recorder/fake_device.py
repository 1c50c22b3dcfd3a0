"""Which device a run is predicted for, and who stands in for it: a card of this machine, one that the process
is made to believe in (`fake_cuda`), or the CPU, which says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.recorder.cuda_library import NoGuardError, guard_content, loaded_guard
from memplan_engine.runtime.recorder.fake_cuda import CUDNN, FakeCuda
from memplan_engine.runtime.recorder.own_process import observed_apart
from memplan_engine.torch_capture.torch_fake import fake_mode, on_host, patched

DEVICES = ("cpu", "cuda")
"""What a run may be predicted for."""
DEFAULT_ARCH = "sm90"
MOST_CARDS = 64
"""In one process: more devices of a kind c10 does not know (C10_COMPILE_TIME_MAX_GPUS is 120)."""
ARCHITECTURES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities of NVIDIA's cards (developer.nvidia.com/cuda-gpus) that torch's rules for attention
know: sm50 to sm121."""
_WRITTEN = re.compile(r"sm_?(\d{2,3})")


@dataclass(frozen=True, slots=True)
class Target:
    """What a run is predicted for: a `device`, the compute capability of its cards, 90 for 9.0, and how many
    there are."""

    device: str
    arch: int
    cards: int = 1


@dataclass(frozen=True, slots=True)
class CurrentDevice:
    """What a run is predicted for in this process: whether it `is_cuda`, what gives the number of the current
    stream of a card, how many `cards` there are, what is `assumed` of it, in words, the `news` of its streams
    for `StreamClock`, and whether the CPU `stands_in` for it, whose kernels may hold something else."""

    is_cuda: bool = False
    stream: Callable[[int], int] = lambda card: 0
    cards: int = 1
    assumed: tuple[str, ...] = ()
    news: Callable[[], list[tuple[int, int, int, int]]] = list
    stands_in: bool = False


_current = [CurrentDevice()]


def current_device() -> CurrentDevice:
    """The device that runs are predicted for now."""
    return _current[-1]


def target_of(device: str, arch: str | None, source: str, cards: int = 1) -> Target:
    """What `device` ("cpu", "cuda"), `arch` ("sm90") and a number of `cards` stand for.

    Raises
    ------
    InputError: another device, an architecture that is not known, or one for the CPU; no card, too many, or
        several for the CPU.
    """
    if device not in DEVICES:
        raise InputError(source, "device", repr(device), f"one of {', '.join(DEVICES)}")
    if arch is not None and device != "cuda":
        raise InputError(source, "arch", f"{arch!r} for the device {device!r}", "the device cuda")
    written = _WRITTEN.fullmatch(arch or DEFAULT_ARCH)
    if written is None or int(written[1]) not in ARCHITECTURES:
        known = ", ".join(f"sm{number}" for number in ARCHITECTURES)
        raise InputError(source, "arch", repr(arch), f"one of {known}")
    if not 1 <= cards <= MOST_CARDS:
        raise InputError(source, "cards", str(cards), f"1 to {MOST_CARDS}")
    if cards > 1 and device != "cuda":
        raise InputError(source, "cards", f"{cards} for the device {device!r}", "the device cuda")
    return Target(device, int(written[1]), cards)


def observed_on(target: Target, observe: Callable[[], Observation], name: str) -> Observation:
    """What `observe()` gives where `target` is the current device: in this process, or in one of its own
    where it would have to believe in a card."""
    device, believes = _device(target)

    def there() -> Observation:
        with device:
            return observe()

    if not believes:
        return there()
    # What it imports the next run finds here.
    fake_mode(unknown_sizes=False)
    return observed_apart(there, name)


def prepare(target: Target) -> None:
    """Have ready what `target` takes on this machine, once and for all."""
    if target.device == "cuda" and not _has_cuda():
        with suppress(NoGuardError):
            guard_content()


def on_device(target: Target) -> AbstractContextManager[None]:
    """With `target` as the current device of this process, which is of no other use after."""
    return _device(target)[0]


def _device(target: Target) -> tuple[AbstractContextManager[None], bool]:
    """What makes `target` the current device, and whether a process then believes in a card that is not
    there."""
    if target.device == "cpu":
        return nullcontext(), False
    if _has_cuda():
        return _being(_own_cards()), False
    try:
        content = guard_content()
    except NoGuardError as error:
        return _standing_in(str(error), target.cards), False
    return _believing(content, target), True


def _has_cuda() -> bool:
    return torch.version.cuda is not None and torch.cuda.is_available()


def _own_cards() -> CurrentDevice:
    name, cards = torch.cuda.get_device_name(), torch.cuda.device_count()
    which = "the card" if cards == 1 else f"the {cards} cards"
    assumed = f"cuda as {which} of this machine, {name}, whatever was asked for"
    return CurrentDevice(True, lambda card: torch.cuda.current_stream(card).stream_id, cards, (assumed,))


@contextmanager
def _believing(content: bytes, target: Target) -> Iterator[None]:
    """With the cards that the library of `content` pretends."""
    there = FakeCuda(loaded_guard(content), target.arch, target.cards)
    cudnn = f"{CUDNN // 10000}.{CUDNN // 100 % 100}"
    which = f"{target.cards} cards of" if target.cards > 1 else "as"
    capability = f"compute capability {target.arch // 10}.{target.arch % 10}"
    assumed = f"cuda without a card, {which} {capability} with cuDNN {cudnn}"
    device = CurrentDevice(True, there.current_stream, target.cards, (assumed,), there.news)
    with there.believed(), _being(device):
        yield


@contextmanager
def _standing_in(why: str, cards: int) -> Iterator[None]:
    """With the CPU in place of the device."""
    together = ", all cards as one" if cards > 1 else ""
    assumed = f"cuda taken as the CPU, with its kernels{together}: {why}"
    with _as_on_the_cpu(), _being(CurrentDevice(assumed=(assumed,), stands_in=True)):
        yield


class _ToTheCpu(TorchFunctionMode):
    """Has every call that names the device name the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0].clone()
        if func is torch.Tensor.to or "device" in kwargs:
            args, kwargs = pytree.tree_map(_named, (args, kwargs))
        return func(*args, **kwargs)


def _named(leaf: Any) -> Any:
    if isinstance(leaf, str) and leaf.partition(":")[0] == "cuda":
        return torch.device("cpu")
    return on_host(leaf)


@contextmanager
def _as_on_the_cpu() -> Iterator[None]:
    """With the device "cuda" as another name of the CPU, and autocast for it as the CPU's."""
    make = torch.amp.autocast_mode.autocast.__init__

    def made(context: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        make(context, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    with patched((torch.amp.autocast_mode.autocast, "__init__", made)), _ToTheCpu():
        yield


@contextmanager
def _being(device: CurrentDevice) -> Iterator[None]:
    _current.append(device)
    try:
        yield
    finally:
        _current.pop()
