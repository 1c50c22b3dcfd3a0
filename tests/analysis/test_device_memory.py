"""What a model holds on its device: against the peak's contents, and by hand."""

from __future__ import annotations

import memplan_examples
import pytest

from memplan_engine import load, to_problem
from memplan_engine.analysis.device_memory import device_memory
from memplan_engine.analysis.peak import contents_of, find_peak
from memplan_engine.analysis.peak_tree import category_of_storage
from memplan_engine.graph import Role, storage_bytes
from memplan_engine.problem import make_problem


@pytest.mark.parametrize("name", ["gpt2", "gpt2_training_step", "bert_training_min_cut", "resnet50"])
def test_the_stack_is_what_is_live_and_what_the_caller_brings(name):
    problem = to_problem(load(memplan_examples.PATH / f"{name}.json"))
    graph = problem.origin.graph
    memory = device_memory(problem)
    brought = storage_bytes(graph, Role.CONSTANT) + storage_bytes(graph, Role.INPUT)
    assert memory.peak_bytes == find_peak(problem).nbytes + brought
    category = category_of_storage(graph)
    for place in range(0, len(memory.start), max(1, len(memory.start) // 25)):
        step = int(memory.start[place])
        contents = contents_of(problem, step)
        expected = {}
        for part in contents.contributors:
            kind = category[part.name] if part.buffer is not None else "temporaries"
            expected[kind] = expected.get(kind, 0) + part.nbytes
        for kind in ("gradients", "activations", "temporaries"):
            shown = int(memory.live[kind][place]) if kind in memory.live else 0
            assert shown == expected.get(kind, 0), (step, kind)


def test_adam_holds_twice_its_weights():
    memory = device_memory(to_problem(load(memplan_examples.PATH / "gpt2_training_step.json")))
    weights, state = int(memory.live["weights"][0]), int(memory.live["optimizer state"][0])
    steps = 4 * 52
    assert state == 2 * weights + steps


def test_lists_have_none():
    assert device_memory(make_problem([0], [1], [8])) is None
