"""What `torch.cuda` says and does where the card is one that `cuda_guard.cpp` pretends. Streams and events
are those of `torch.Stream` and `torch.Event`, which ask the guard; nothing is ever waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.training.torch_eager_ops import own_ops
from memplan_engine.torch_capture.training.torch_origins import who_asks
from memplan_engine.units import count_of

NAME = "memplan sm{}"
TOTAL_MEMORY = 80 * 2**30
"""Bytes that a script is told the card has: those of an H100. Nothing is allocated of them."""
PROCESSORS = 132
"""Multiprocessors of an H100 SXM, by NVIDIA's data sheet; scripts choose the size of their batches by it."""
CUDA = 1
"""The kind of device, by torch's numbers (c10/core/DeviceType.h)."""
NOTHING = (
    "init _lazy_init empty_cache ipc_collect manual_seed manual_seed_all "
    "seed seed_all set_rng_state set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated "
    "reset_max_memory_cached reset_accumulated_memory_stats set_per_process_memory_fraction"
)
ZERO = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached utilization"
)
"""Functions of `torch.cuda` that do nothing here, and those that answer 0."""
_STATE = "get_rng_state"


class Stream(torch.Stream):
    """A stream of the card, with the names that those of `torch.cuda` have."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A new one; with `stream_id` another view of one that there is."""
        if "stream_id" in kwargs:
            return super().__new__(cls, **{"device_index": 0, "device_type": CUDA, **kwargs})
        card = torch.cuda._utils._get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("cuda", card), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """Its number, in place of the address of a handle."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """As if none had been asked for."""
        return 0


class Event(torch.Event):
    """An event of the card; what CUDA's take beside is left out."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, **kwargs: Any) -> Event:
        """A new one."""
        return super().__new__(
            cls, device=torch.device("cuda"), enable_timing=enable_timing, blocking=blocking
        )

    def elapsed_time(self, end_event: Any) -> float:
        """No time passes."""
        return 0.0


def properties(arch: int) -> Any:
    """What a script may ask of the card."""
    return SimpleNamespace(
        name=NAME.format(arch),
        major=arch // 10,
        minor=arch % 10,
        total_memory=TOTAL_MEMORY,
        multi_processor_count=PROCESSORS,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
    )


def python_stubs(library: ctypes.PyDLL, arch: int, cards: int) -> list[tuple[Any, str, Any]]:
    """For `torch_fake.patched`: the functions of `torch.cuda` that scripts call, where there are `cards`."""
    cuda = torch.cuda
    card = properties(arch)

    def index_of(device: Any = None) -> int:
        return _index_of(device, cards)

    def exchange(device: int) -> int:
        return int(library.memplan_exchange_card(index_of(device))) if device >= 0 else -1

    def card_of(device: Any = None) -> Any:
        index_of(device)
        return card

    def stream_of(device: Any, number: int) -> Stream:
        return Stream(stream_id=number, device_index=index_of(device))

    def set_stream(stream: Any) -> None:
        # The current card is then that of the stream, too.
        if stream is not None:
            exchange(stream.device_index)
            library.memplan_set_stream(stream.device_index, stream.stream_id)

    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: arch >= 80 or including_emulation,
        "is_tf32_supported": lambda: arch >= 80,
        "device_count": lambda: cards,
        "current_device": lambda: int(library.memplan_card()),
        "_exchange_device": exchange,
        "_maybe_exchange_device": lambda device: exchange(device),  # Dynamo tells the two apart.
        "set_device": lambda device: exchange(int(cuda._utils._get_device_index(device))),
        "synchronize": lambda device=None: library.memplan_synchronize(index_of(device)),
        "can_device_access_peer": lambda device, peer: index_of(device) != index_of(peer),
        "get_device_properties": card_of,
        "get_device_capability": lambda device=None: (card.major, card.minor),
        "get_device_name": lambda device=None: card.name,
        "get_arch_list": lambda: [f"sm_{arch}"],
        "current_stream": lambda device=None: stream_of(device, library.memplan_stream(index_of(device))),
        "default_stream": lambda device=None: stream_of(device, 0),
        "set_stream": set_stream,
        "get_rng_state": lambda device="cuda": getattr(own_ops(), _STATE).default(),
        "get_rng_state_all": lambda: [getattr(own_ops(), _STATE).default() for _ in range(cards)],
        "initial_seed": lambda: 0,
        "mem_get_info": lambda device=None: (TOTAL_MEMORY, TOTAL_MEMORY),
        "memory_stats": lambda device=None: {},
        "memory_summary": lambda device=None, abbreviated=False: "",
        "memory_snapshot": lambda *args, **kwargs: [],
    }
    answers |= {name: lambda *args, **kwargs: None for name in NOTHING.split()}
    answers |= {name: lambda *args, **kwargs: 0 for name in ZERO.split()}
    stubs: dict[str, Any] = {**answers, "Stream": Stream, "Event": Event}
    patches = [(cuda, name, value) for name, value in stubs.items() if name in vars(cuda)]
    # Where they are defined: torch's own Python takes them from there.
    at_home = ((cuda.random, ("manual_seed", "manual_seed_all")), (cuda.streams, ("Stream", "Event")))
    patches += [(module, name, stubs[name]) for module, names in at_home for name in names]
    return [*patches, (torch.backends.cuda, "is_built", lambda: True), *_unheard()]


def _index_of(device: Any, cards: int) -> int:
    """The number of a card, the current one for None, of as many `cards`."""
    number = int(torch.cuda._utils._get_device_index(device, optional=True))
    if not 0 <= number < cards:
        there = count_of(cards, "card")
        raise RuntimeError(f"CUDA error: invalid device ordinal, cuda:{number} of {there} (--cards)")
    return number


def _on_one_card(model: Any, *args: Any, **kwargs: Any) -> Any:
    """`DataParallel.forward`, refused where it would start threads, of which nobody sees the ops."""
    if len(model.device_ids) > 1:
        found = f"DataParallel on {len(model.device_ids)} cards {who_asks()}"
        raise InputError(
            "fake run", "", found, "a model on one card (device_ids=[0]), or parts of it on several"
        )
    return model.module(*args, **kwargs)


def _unheard() -> list[tuple[Any, str, Any]]:
    """Marks for NVIDIA's profilers, recordings of an allocator that is not there, threads of DataParallel."""
    from torch.cuda import memory, nvtx

    marks = [(nvtx, name) for name in ("range_push", "range_pop", "mark")]
    recordings = [(memory, name) for name in ("_record_memory_history", "_dump_snapshot")]
    unheard = [(module, name, lambda *args, **kwargs: None) for module, name in (*marks, *recordings)]
    return [*unheard, (torch.nn.DataParallel, "forward", _on_one_card)]
