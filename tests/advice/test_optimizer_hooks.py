"""The optimizer moved into the backward pass of a source: which lines it becomes, and what forbids it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memplan_engine.advice.optimizer_hooks import NO_STEP, update_in_backward
from memplan_engine.advice.source_edits import Edited
from memplan_engine.graph import Phase
from tests.advice.test_source_edits import FILE, graph_of

STEP = """def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x)
    loss.backward()
    count(loss)
    optimizer.step()
    return loss
"""
MOVED = """def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x)
    def update_now(parameter):
        optimizer.step()
        parameter.grad = None
    owned = [each for group in optimizer.param_groups for each in group["params"]]
    owned = [each for each in owned if each.requires_grad]
    hooks = [each.register_post_accumulate_grad_hook(update_now) for each in owned]
    loss.backward()
    for hook in hooks:
        hook.remove()
    count(loss)
    return loss
"""


def moved(text: str, *lines: int) -> Edited:
    """`text` edited for a graph whose optimizer has an op in each of `lines`."""
    graph = graph_of(text, *((line, "add", "x", f"new{line}") for line in lines))
    ops = tuple(replace(op, phase=Phase.OPTIMIZER) for op in graph.ops)
    return update_in_backward(text, FILE, replace(graph, ops=ops))


def test_the_optimizer_goes_into_hooks_that_end_with_the_backward_pass() -> None:
    edited = moved(STEP, 6)
    assert edited.text == MOVED
    assert (edited.lines, edited.left, edited.frees_gradients) == ((4, 6), (), True)


def test_names_that_the_file_has_are_left_to_it() -> None:
    edited = moved(STEP.replace("count(loss)", "hooks = hook = loss"), 6)
    assert "    for hook_ in hooks_:\n        hook_.remove()\n" in edited.text


@pytest.mark.parametrize(
    ("text", "lines", "left"),
    [
        (STEP, (3,), (0, NO_STEP)),
        (STEP.replace("loss.backward()", "grads(loss)"), (6,), (6, "no backward() before it")),
        (STEP.replace("loss.backward()", "loss.backward(); more(loss)"), (6,), (6, "not a statement on a")),
        (STEP.replace("optimizer.step()", "other = 1; optimizer.step()"), (6,), (6, "not a statement on a")),
        (STEP.replace("count(loss)", "second.step()"), (5, 6), (5, "several calls of step()")),
        (STEP.replace("count(loss)", "if SKIP: return loss"), (6,), (6, "it may be left out: a return")),
        (STEP.replace("count(loss)", "if loss > 9: raise ValueError"), (6,), (6, "it may be left out")),
        (STEP.replace("optimizer.step()", "optimizer.step(closure)"), (6,), (0, NO_STEP)),
        (STEP.replace("optimizer.step()", "make().step()"), (6,), (0, NO_STEP)),
    ],
)
def test_what_forbids_it_is_said(text: str, lines: tuple[int, ...], left: tuple[int, str]) -> None:
    edited = moved(text, *lines)
    assert (edited.text, edited.lines, edited.frees_gradients) == (text, (), False)
    ((line, why),) = edited.left
    assert (line, why[: len(left[1])]) == left
