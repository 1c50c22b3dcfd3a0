"""Autocast's cache in captured graphs: a cast of a weight is there until its region ends, as in real runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memplan_engine import InputError, find_peak, observe_model, observed_peak, to_problem
from memplan_engine.torch_capture.capture_module import capture

CAST = 256 * 256 * 2
"""Bytes of a weight in bfloat16."""
ROWS = 4 * 256 * 2
"""Bytes of what a layer gives."""


def cast(**settings: bool) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, **settings)


class Layers(nn.Module):
    def __init__(self, run: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(256, 256, bias=False) for _ in range(3))
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


def in_one(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        return m.three(m.two(m.one(x)))


def in_two(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        x = m.two(m.one(x))
    with cast():
        return m.three(x)


def shared(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        return m.one(m.two(m.one(m.one(x))))


def nested(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        x = m.one(x)
        with cast():
            x = m.two(x)
        return m.three(x)


def nested_without(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        x = m.one(x)
        with cast(cache_enabled=False):
            x = m.two(x)
        return m.three(x)


def nested_in_none(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast(cache_enabled=False):
        x = m.one(x)
        with cast(cache_enabled=True):
            x = m.two(x)
        return m.three(x)


def switched_off(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        x = m.one(x)
        with torch.autocast("cpu", enabled=False):
            x = m.two(x.float())
        return m.three(x)


def cleared(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        x = m.two(m.one(x))
        torch.clear_autocast_cache()
        return m.three(x)


def other_grad_mode(m: Layers, x: torch.Tensor) -> torch.Tensor:
    """The tracer cuts the region in three."""
    with cast():
        x = m.one(x)
        with torch.enable_grad():
            y = m.two(x).detach()
        return m.three(y)


def inference(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(), cast():
        return m.three(m.two(m.one(x)))


def of_a_view(m: Layers, x: torch.Tensor) -> torch.Tensor:
    with cast():
        return torch.mm(torch.mm(x, m.one.weight), m.two.weight.t())


RUNS = (
    in_one,
    in_two,
    shared,
    nested,
    nested_without,
    nested_in_none,
    switched_off,
    cleared,
    inference,
    of_a_view,
)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("frozen", [False, True])
def test_casts_are_held_as_in_a_real_run(run, frozen):
    model, x = Layers(run), torch.rand(4, 256)
    model.one.requires_grad_(not frozen)
    graph = capture(model, (x,))
    seen = observe_model(model, (x,))
    assert find_peak(to_problem(graph, alignment=1)).nbytes == observed_peak(seen, "dispatch")[0]


def casts_of(run):
    graph = capture(Layers(run), (torch.rand(4, 256),))
    return [(storage.nbytes, storage.held_by.split(".")[-1]) for storage in graph.storages if storage.held_by]


def test_one_cast_of_each_weight_until_the_region_ends():
    """Of three casts all are there when the last layer reads one and gives its rows."""
    assert casts_of(in_one) == [(CAST, "linear_2")] * 3
    assert casts_of(in_two) == [(CAST, "linear_1")] * 2 + [(CAST, "linear_2")]
    assert casts_of(shared) == [(CAST, "linear_3")] * 2
    assert casts_of(cleared) == [(CAST, "linear_1")] * 2 + [(CAST, "linear_2")]
    assert casts_of(other_grad_mode) == [(CAST, "linear_2")] * 3
    assert casts_of(inference) == []
    graph = capture(Layers(in_one), (torch.rand(4, 256),))
    assert find_peak(to_problem(graph, alignment=1)).nbytes == 3 * CAST + 2 * ROWS


def switched(m: Layers, x: torch.Tensor) -> torch.Tensor:
    torch.set_autocast_enabled("cpu", True)
    try:
        return m.one(x)
    finally:
        torch.set_autocast_enabled("cpu", False)


def test_autocast_that_a_function_switches_is_refused_with_the_line():
    with pytest.raises(InputError, match=r"set_autocast_enabled shows in no graph.*test_torch_autocast\.py"):
        capture(Layers(switched), (torch.rand(4, 256),))
    assert not torch.is_autocast_enabled("cpu")


def test_an_input_that_requires_gradients_is_cached_too():
    x = torch.rand(4, 256, requires_grad=True)
    graph = capture(Layers(in_one), (x,))
    assert sorted(storage.nbytes for storage in graph.storages if storage.held_by) == [ROWS, *[CAST] * 3]


def test_sizes_that_are_symbols_do_not_change_the_casts():
    graph = capture(Layers(in_one), (torch.rand(4, 256),), dynamic_shapes="x:0=batch")
    assert [(s.nbytes, s.formula) for s in graph.storages if s.held_by] == [(CAST, "")] * 3
