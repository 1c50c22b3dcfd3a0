"""Operators that call graphs: what is inside them is laid out as a real run allocates it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from memplan_engine import find_peak
from memplan_engine.analysis.claims import doubt
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.errors import InputError
from memplan_engine.lifetimes import to_problem
from memplan_engine.planner import make_plan
from memplan_engine.rewrites.reuse import reuse
from memplan_engine.symbolic.symbolic_problem import resolve
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.training.torch_step import capture_step
from tests.support.measured import most_allocated

X = torch.linspace(-1, 1, 16 * 24).reshape(16, 24)


class Wide(nn.Module):
    """An op on either side of a branch that is 40 times as wide."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 960), nn.Linear(960, 24)

    def wide(self, x):
        return self.down(torch.relu(self.up(x)))

    def forward(self, x):
        return torch.cond(x.sum() > self.least, self.wide, lambda x: x.clone(), (x + 1,)) * 2


def of(function):
    """A module that calls `function` with itself."""

    class Calls(Wide):
        def forward(self, x):
            return function(self, x)

    return Calls()


def taken(least):
    model = Wide()
    model.least = least
    return model


def branch_in_branch(self, x):
    def inner(x):
        return torch.cond(x.min() > 0, self.wide, lambda x: x.sin().cos(), (x,))

    return torch.cond(x.sum() > 1e9, lambda x: x.cos(), inner, (x,))


def loop(self, x):
    return while_loop(
        lambda n, x: n < 4, lambda n, x: (n + 1, self.wide(x).tanh()), (torch.zeros((), dtype=int), x)
    )


def scanned(self, x):
    def combine(carry, row):
        return (carry + row).tanh(), torch.relu((carry * row) @ self.up.weight.T) @ self.down.weight.T

    return scan(combine, x[0] * 0, x)


def mapped(self, x):
    return map_rows(
        lambda row, up, down: torch.relu(row @ up.T) @ down.T, x[:, None], self.up.weight, self.down.weight
    )


def view_of_more(self, x):
    """Each row's result is a view of a storage that is 24 times as large."""
    return map_rows(lambda row: torch.outer(row, row).sin()[0], x)


def expanded(self, x):
    """Each row's result shows one number many times."""
    return map_rows(lambda row: row.sum().expand(4096), x)


def carried_views(self, x):
    def body(n, x):
        return n + 1, torch.cat([x, x, x]).tanh()[: len(x)]

    return while_loop(lambda n, x: n < 4, body, (torch.zeros((), dtype=int), x))


def scanned_views(self, x):
    def combine(carry, row):
        return torch.cat([carry, row, row])[:24], torch.outer(row, row).cos()[1]

    return scan(combine, x[0] * 0, x)


def attention(self, q):
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: torch.where(i < j, score, -9.0))


HEADS = torch.linspace(-1, 1, 2 * 128 * 16).reshape(1, 2, 128, 16)
CASES = {
    "cond, its wide branch": (taken(-1e9), X),
    "cond in cond": (of(branch_in_branch), X + 9),
    "while_loop": (of(loop), X),
    "scan": (of(scanned), X),
    "map": (of(mapped), X),
    "map, views": (of(view_of_more), X),
    "map, expanded": (of(expanded), X),
    "while_loop, views": (of(carried_views), X),
    "scan, views": (of(scanned_views), X),
    "flex_attention": (of(attention), HEADS),
}


# Of the kernels' own scratch, which is not counted, these have none where they are fullest.
@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_that_of_a_real_run(case):
    model, x = CASES[case]
    # What else was compiled in this process could make sizes symbols.
    torch._dynamo.reset()
    problem = to_problem(capture(model.eval(), (x,)), alignment=1)
    figures = figures_of(make_plan(problem, "auto"))
    with torch.no_grad():
        model(x)
        assert figures.peak_bytes == most_allocated(lambda: model(x))
    assert doubt(problem) is None


def test_a_branch_that_is_not_taken_counts():
    wide, narrow = taken(-1e9), taken(1e9)
    peaks = {figures_of(make_plan(to_problem(capture(model, (X,))))).peak_bytes for model in (wide, narrow)}
    assert len(peaks) == 1
    with torch.no_grad():
        narrow(X)
        assert most_allocated(lambda: narrow(X)) < max(peaks) / 2


@pytest.mark.parametrize("case", CASES)
def test_sizes_that_follow_a_symbol(case):
    model, x = CASES[case]
    dim = 2 if case == "flex_attention" else 0
    graph = capture(model, (x,), dynamic_shapes=[{dim: torch.export.Dim("rows", min=4, max=512)}])
    larger = torch.cat([x, x, x], dim)
    at = resolve(graph, {"rows": larger.shape[dim]})
    expected = capture(model, (larger,))
    assert {s.name: s.nbytes for s in at.storages} == {s.name: s.nbytes for s in expected.storages}
    assert find_peak(to_problem(at)).nbytes == find_peak(to_problem(expected)).nbytes


def test_a_training_step_that_would_lose_gradients_is_refused():
    """The layer behind the branches has gradients; those of the layers inside would be left out."""

    class Routed(Wide):
        def forward(self, x):
            return self.up(torch.cond(x.mean() > 0, lambda x: self.wide(x), lambda x: x.sin(), (x,)))

    with pytest.raises(InputError, match=r"found cond at .*test_higher_order.py:\d+.*observe --fake"):
        capture_step(Routed(), (X,))


def test_what_a_scan_is_given_is_not_written_over():
    """By hand: torch refuses a body that changes its inputs."""
    graph = capture(of(scanned), (X,))
    reused = reuse(graph, concat=False)
    homes = {tensor.name: tensor.storage for tensor in reused.graph.tensors}
    carried = {name for op in graph.ops if op.kind == "loop.carried" for name in op.outputs}
    assert carried
    for name in carried:
        assert [each for each, home in homes.items() if home == homes[name]] == [name]
