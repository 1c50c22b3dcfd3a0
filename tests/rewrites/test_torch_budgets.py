"""torch's own budgets beside a curve: what they run again, by hand and by torch's own counter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from memplan_engine import Graph, accelerator
from memplan_engine.analysis.op_costs import OpWork, modelled_times, op_seconds, op_work
from memplan_engine.analysis.torch_budgets import TorchBudget, TorchPoint
from memplan_engine.fitting.fit_stages import fit_graph
from memplan_engine.formats.about import read_about
from memplan_engine.formats.memplan_json.graph_format import About, BudgetEntry
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.graph import Op
from memplan_engine.reporters.fit.fit_tables import fit_stages_summary, fit_stages_tables
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.torch_cuts import least_peak, torch_budget, without_unread
from memplan_engine.strategies.base import SolveLimits
from tests.support.graphs import make_graph

KIB = 1 << 10


def chain(*more: Op) -> Graph:
    """x → a → b → c, of 1, 4, 2 and 1 KiB, and `more`."""
    ops = (Op("a", "mix", ("x",), ("a",)), Op("b", "mix", ("a",), ("b",)), Op("c", "mix", ("b", "x"), ("c",)))
    sizes = {"x": KIB, "a": 4 * KIB, "b": 2 * KIB, "c": KIB} | {op.outputs[0]: KIB for op in more}
    return make_graph((*ops, *more), sizes, inputs=("x",), outputs=("c",))


def test_what_nobody_reads_is_left_out() -> None:
    kept = without_unread(chain(Op("dead", "mix", ("b",), ("dead",))))
    assert kept == chain()
    assert without_unread(kept) == kept
    writes = replace(chain().ops[2], name="w", outputs=(), mutates=("b",))
    assert len(without_unread(replace(chain(), ops=(*chain().ops, writes))).ops) == 4


def test_a_point_by_hand() -> None:
    again = Op("b2", "mix", ("a",), ("b2",))
    sizes = {"x": KIB, "a": 4 * KIB, "b": 2 * KIB, "c": KIB, "b2": KIB}
    cut = make_graph((*chain().ops, again), sizes, inputs=("x",), outputs=("c", "b2"))
    point = torch_budget(0.5, chain(), cut)
    assert point.work == ((OpWork(0, 5 * KIB), 1),)
    gpu = accelerator("a100-80")
    assert point.on(gpu) == TorchPoint(0.5, least_peak(cut), 5 * KIB / gpu.speed.bandwidth)
    # The other way round it does less.
    assert torch_budget(1.0, cut, chain()).work == ((OpWork(0, 5 * KIB), -1),)
    assert torch_budget(1.0, cut, cut).work == ()
    assert BudgetEntry.of(point).point == point


def test_the_least_of_four_orders() -> None:
    graph = chain()
    assert least_peak(graph) <= peak_in_order(graph)


def test_work_gives_the_times_of_a_roofline() -> None:
    for name in ("a100-80", "rtx4090"):
        gpu = accelerator(name)
        assert [work.seconds(gpu) for work in op_work(chain())] == op_seconds(chain(), gpu)
    gpu = accelerator("h100-80")
    assert OpWork(10**12, 1, True).seconds(gpu) == 10**12 / gpu.speed.flops16
    assert OpWork(10**12, 1).seconds(gpu) == 10**12 / gpu.speed.flops32


def test_tables_and_json_have_them_beside_the_curve() -> None:
    from rich.console import Console

    from tests.dashboard.fit_graphs import layers

    graph = layers()
    fitted = fit_graph(graph, times=modelled_times(graph, accelerator("h100-80")), limits=SolveLimits(0.6))
    assert fitted.curve
    seconds = fitted.curve.points[0].time.seconds
    points = [TorchPoint(0.5, 12 << 20, 0.25 * seconds), TorchPoint(0.0, 20 << 20, -0.01 * seconds)]
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for each in fit_stages_tables(fitted, points=points):
        console.print(each)
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["0.5", "12", "MiB", "+25.0%"] in lines
    assert ["0", "20", "MiB", "-1.0%"] in lines
    told = fit_stages_summary(fitted, points=points)["torch_budgets"]
    assert json.loads(json.dumps(told))[0] == {
        "budget": 0.5, "live_bytes": 12 << 20, "extra_seconds": 0.25 * seconds
    }  # fmt: skip


def test_a_file_keeps_them(tmp_path) -> None:
    point = TorchBudget(0.3, 7, ((OpWork(4, 8, True), 2), (OpWork(0, 16), -1)))
    write_json(chain(), tmp_path / "net.json", About(budgets=(BudgetEntry.of(point),)))
    assert [entry.point for entry in read_about(tmp_path / "net.json").budgets] == [point]


@pytest.mark.slow
def test_torch_counts_the_same_flops_of_what_it_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT of four layers: the extra floating-point operations of a budget, by torch's counter over the
    two halves that torch would run. It knows nothing of attention on a CPU, which is counted by hand."""
    import torch
    from torch._functorch import config
    from torch.fx import Interpreter
    from torch.utils.flop_counter import FlopCounterMode

    from example_graphs.capture import bert_for_training
    from memplan_engine import capture_training
    from memplan_engine.torch_capture.training import torch_training

    monkeypatch.setattr(torch_training, "BUDGETS", (1.0, 0.3))
    with torch.device("meta"):
        model, inputs = bert_for_training()
    model.train()

    attention = 2 * 16 * 12 * 128 * 128 * (64 + 64)

    def counted(partition: str) -> int:
        captured = capture_training(model, kwargs=inputs, partition=partition)
        total = 0
        for module in (captured.forward_module, captured.backward_module):
            given = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
            # All that nobody reads: torch.fx would leave attention, which may draw random numbers.
            module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
            with FlopCounterMode(display=False) as counter, given[0].fake_mode:
                Interpreter(module).run(*given)
            total += counter.get_total_flops()
            fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
            total += attention * len(module.graph.find_nodes(op="call_function", target=fused))
        return total

    once = counted("default")
    points = {point.budget: point for point in torch_training.capture_budgets(model, kwargs=inputs)}
    for budget in points:
        with config.patch(activation_memory_budget=budget):
            more = counted("min_cut") - once
        assert sum(work.flops * times for work, times in points[budget].work) == more
