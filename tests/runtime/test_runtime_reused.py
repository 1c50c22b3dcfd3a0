"""Plans with writes in place and concatenations without copies, run at their very bytes."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from memplan_engine import InputError, MemplanError, Plan, insert_slab, load_program, make_plan, run_safely
from memplan_engine.rewrites.reuse import reuse, reused_problem
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.slab.insert_slab import slab_report
from memplan_engine.runtime.slab.slab_order import check_order
from tests.support.runtime import Calls, same_bits

POLICIES = ("native", "all")


def chain(linear, x, mask):
    """Elementwise ops one after another, over either operand, in other types of one size, and a mask over a
    mask, which no kernel of `masked_fill` may write over."""
    y = linear(x)
    kept = (y * 2).masked_fill(mask, 0.5)
    mixed = torch.where(mask, kept, y.exp())
    whole = (mixed + 1).to(torch.int32) + 3
    half = torch.nn.functional.gelu(whole.to(torch.float32) / 7)
    both = (x > 0).masked_fill(mask.logical_not(), True)
    return torch.rsub(half, 1.0).sum(), both.logical_not().sum()


def joined(linear, x, mask):
    """A concatenation in a concatenation, with an input that is copied beside those that are made there."""
    y = torch.cat([x.sin() * 2, x, x.cos() * 2])
    return torch.cat([y.relu(), x.exp() + 1, y.tanh()]).sigmoid().sum(0)


def subject(function) -> tuple[Program, Plan, tuple[torch.Tensor, ...]]:
    x = torch.randn(4, 16)
    program = load_program(Calls(function).eval(), (x, x > 0.3))
    return program, make_plan(reused_problem(reuse(program.graph)), "greedy_by_size"), (x, x > 0.3)


@pytest.mark.parametrize("function", [chain, joined])
def test_storages_take_over_bytes_and_the_bits_stay(function):
    program, plan, args = subject(function)
    expected = program.interpret(args)
    assert plan.arena_bytes < make_plan(program.graph, "greedy_by_size").arena_bytes
    for policy in POLICIES:
        module = insert_slab(program, plan, policy=policy)
        check_order(module)
        assert same_bits(program.with_module(module).run(args), expected)
        report = slab_report(module)
        assert report.slab_bytes == plan.arena_bytes
        if policy == "native":
            assert report.share == 1.0 or {made.op for made in report.left_out} >= {"masked_fill_1"}
    safe = run_safely(program, plan, args)
    assert same_bits(safe.value, expected)
    assert safe.guard == 0


def test_an_op_over_its_input_and_a_concatenation_over_its_parts_are_written_where_they_are():
    program, plan, _ = subject(joined)
    text = insert_slab(program, plan).print_readable(print_output=False)
    assert "aten.cat" not in text
    # Only what is not made there is copied: the graph's input, and `relu`, which is not known to write where
    # it is told.
    assert re.findall(r"copy_.default\(narrow\w*, (\w+)\)", text) == ["args_0", "relu"]
    program, plan, _ = subject(chain)
    module = insert_slab(program, plan)
    places = {node.name: node.args[1] for node in module.graph.nodes if node.name.endswith("_memory")}
    assert places["mul_memory"] == places["masked_fill_memory"]
    assert places["div_memory"] == places["gelu_memory"]


def test_a_plan_that_writes_over_what_is_needed_is_refused_and_caught_when_forced():
    program, plan, args = subject(chain)
    names = list(plan.problem.names)
    start, end, size = plan.problem.start, plan.problem.end, plan.problem.size
    pairs = [
        (i, j)
        for i, j in itertools.permutations(range(len(names)), 2)
        if start[i] < end[j] and start[j] < end[i] and size[i] == size[j] == 256
    ]
    assert pairs
    for one, other in pairs:
        offsets = np.array(plan.offsets)
        offsets[one] = offsets[other]
        broken = replace(plan, offsets=offsets)
        with pytest.raises(InputError, match=r"overlap|broken"):
            insert_slab(program, broken)
        with pytest.raises(MemplanError, match=r"op '\w+' \(aten\.\w+\) makes buffer '\w+' at bytes \d+"):
            run_safely(program, broken, args, force=True)


def test_a_graph_that_is_reused_unsoundly_is_refused():
    program, plan, _ = subject(chain)
    origin = plan.problem.origin
    home = {tensor.name: tensor.storage for tensor in origin.graph.tensors}
    # `exp` reads `linear` after `mul` has written: not even one that says so may write there.
    tensors = tuple(
        replace(tensor, storage=home["linear"]) if tensor.name in ("mul", "masked_fill") else tensor
        for tensor in origin.graph.tensors
    )
    ops = tuple(replace(op, mutates=("linear",)) if op.name == "mul" else op for op in origin.graph.ops)
    graph = replace(origin.graph, tensors=tensors, ops=ops)
    wrong = replace(plan, problem=replace(plan.problem, origin=replace(origin, graph=graph)))
    with pytest.raises(InputError, match="op 'exp', tensor 'linear': broken: a read finds the value"):
        insert_slab(program, wrong)
