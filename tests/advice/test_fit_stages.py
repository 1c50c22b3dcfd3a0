"""Stages until it fits: bytes by hand, verdicts that are proved, and none that is not."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from memplan_engine import Graph, InputError, SolveLimits, check_reorder, fit_graph, load, reorder
from memplan_engine.advice.fit_stages import StageName, state_bytes_of
from memplan_engine.graph import Op, Role, Storage, Tensor
from memplan_engine.preparation import Preparation
from memplan_engine.rewrites.order import checked
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.schedule import dependencies
from memplan_engine.verdict import Verdict
from tests.support.waiting import HANG_SECONDS

EXAMPLES = Path(__file__).parents[2] / "example_graphs"
WEIGHT, INPUT = 256, 64


def made(*ops: tuple[str, str, str, int], outputs: tuple[str, ...]) -> Graph:
    """Ops as (output, kind, inputs, bytes), with an input `x` and a weight `w`."""
    given = [("x", INPUT, Role.INPUT), ("w", WEIGHT, Role.CONSTANT)]
    own = [(name, size, Role.OUTPUT if name in outputs else Role.ACTIVATION) for name, _, _, size in ops]
    return Graph(
        "hand",
        tuple(Storage(name, size, role) for name, size, role in (*given, *own)),
        tuple(Tensor(name, (size // 4,), "float32", size, name) for name, size, _ in (*given, *own)),
        tuple(Op(name, kind, tuple(inputs.split()), (name,)) for name, kind, inputs, _ in ops),
        ("x",),
        outputs,
        ("w",),
    )


def branches() -> Graph:
    """Three values of 1,024 bytes, each turned into 64: all made first, although none needs another."""
    return made(
        ("a", "repeat", "x", 1024), ("b", "repeat", "x", 1024), ("c", "repeat", "x", 1024),
        ("a1", "relu", "a", 1024), ("a2", "sum", "a1", 64),
        ("b1", "relu", "b", 1024), ("b2", "sum", "b1", 64),
        ("c1", "relu", "c", 1024), ("c2", "sum", "c1", 64),
        outputs=("a2", "b2", "c2"),
    )  # fmt: skip


NO_STEP = "no training step: no op of an optimizer reads what a backward pass makes"


def stages_of(fitted):
    return {
        str(stage.name): (stage.load_bytes, stage.plan.arena_bytes, stage.proved) for stage in fitted.stages
    }


def test_the_bytes_of_each_stage_by_hand():
    """As written: three values and a result. In place: three, and a sum. In the best order: one, beside three
    sums (the last is made while what it sums is still there)."""
    fitted = fit_graph(branches())
    assert stages_of(fitted) == {
        "captured": (4096, 4096, True),
        "in_place": (3136, 3136, True),
        "reorder": (1024 + 3 * 64, 1024 + 3 * 64, True),
    }
    assert (fitted.state_bytes, fitted.verdict) == (WEIGHT + INPUT, None)
    assert fitted.needed_bytes == WEIGHT + INPUT + 1216
    assert fitted.skipped == ((StageName.GRADIENTS, NO_STEP),)
    last = fitted.stages[-1]
    assert not check_reorder(branches(), last.graph, last.order.certificate)


def test_order_alone_leaves_writes_in_place_out():
    fitted = fit_graph(branches(), only=["reorder"])
    # A value and its result, beside two results: the third is made when the value is gone.
    assert stages_of(fitted)["reorder"] == (2048 + 2 * 64, 2048 + 2 * 64, True)
    assert "in_place" not in stages_of(fitted)


def test_a_search_that_has_used_its_time_leaves_the_next_one_all_of_its_own(monkeypatch):
    searched = []

    def out_of_time(graph, limits, *told, **options):
        searched.append(limits.stopped)
        result = reorder(graph, limits, *told, **options)
        limits.cancel()
        return result

    monkeypatch.setattr(checked, "reorder", out_of_time)
    limits = SolveLimits(HANG_SECONDS)
    fit_graph(load(EXAMPLES / "gpt2_training_step.json"), only=["reorder", "gradients"], limits=limits)
    assert searched == [False, False]
    assert not limits.stopped
    # Who cancels all of it cancels each.
    limits.cancel()
    fitted = fit_graph(branches(), only=["reorder"], limits=limits)
    assert (searched[2:], len(fitted.stages), fitted.complete) == ([], 1, False)


STATE = WEIGHT + INPUT


@pytest.mark.parametrize(
    ("capacity", "names", "verdict"),
    [
        (STATE + 4096, ["captured"], Verdict.FITS),
        (STATE + 4095, ["captured", "in_place"], Verdict.FITS),
        (STATE + 3071, ["captured", "in_place", "reorder"], Verdict.FITS),
        (STATE + 1216, ["captured", "in_place", "reorder"], Verdict.FITS),
        (STATE + 1215, ["captured", "in_place", "reorder"], Verdict.DOES_NOT_FIT),
    ],
)
def test_it_stops_at_the_first_stage_that_fits_beside_the_state(capacity, names, verdict):
    fitted = fit_graph(branches(), capacity)
    assert [str(stage.name) for stage in fitted.stages] == names
    assert fitted.verdict is verdict
    assert bool(fitted.proof) == (verdict is Verdict.DOES_NOT_FIT)


def test_the_proof_over_all_orders_agrees_with_all_orders():
    graph = branches()
    needs = dependencies(graph)
    problem = order_problem(graph, merge=False)

    def is_kept(order):
        place = {op: index for index, op in enumerate(order)}
        return all(place[before] < place[op] for op in place for before in needs[op])

    # The sums of a and b are as those of c: 9 ops, of which every order that is kept is looked at.
    least = min(problem.peak(order) for order in permutations(range(9)) if is_kept(order))
    fitted = fit_graph(graph, STATE + least - 1, only=["reorder"])
    assert fitted.verdict is Verdict.DOES_NOT_FIT
    assert fitted.stages[-1].bound_bytes == least
    assert fit_graph(graph, STATE + least, only=["reorder"]).verdict is Verdict.FITS


def test_state_that_does_not_fit_by_itself_says_so():
    fitted = fit_graph(branches(), STATE - 1)
    assert (fitted.verdict, fitted.proof) == (
        Verdict.DOES_NOT_FIT,
        "weights, optimizer state and inputs alone need more",
    )


def test_a_choice_of_writes_in_place_is_no_proof_and_neither_is_an_order_beside_concatenations():
    """Another choice, or a concatenation without copies in another order, might need less."""
    assert fit_graph(branches(), STATE + 100, only=["in_place"]).verdict is Verdict.UNDECIDED
    joined = made(
        ("a", "repeat", "x", 1024), ("b", "repeat", "x", 1024), ("c", "cat", "a b", 2048), outputs=("c",)
    )  # fmt: skip
    fitted = fit_graph(joined, STATE + 100)
    assert fitted.verdict is Verdict.UNDECIDED
    last = fitted.stages[-1]
    # Both inputs are made inside the output: 2,048 bytes, where the bound over all orders would say 4,096.
    assert (last.load_bytes, last.bound_bytes, last.is_of_all_orders) == (2048, 2048, False)
    assert fit_graph(joined, STATE + 100, only=["reorder"]).verdict is Verdict.DOES_NOT_FIT
    assert fit_graph(joined, STATE + 4096, only=[]).verdict is Verdict.FITS
    assert fit_graph(joined, STATE + 4095, only=[]).verdict is Verdict.DOES_NOT_FIT


def test_gradients_of_a_training_step_are_freed_as_a_stage_of_their_own():
    graph = load(EXAMPLES / "gpt2_training_step.json")
    fitted = fit_graph(graph, only=["gradients"])
    captured, freed = fitted.stages
    assert (captured.name, freed.name) == (StageName.CAPTURED, StageName.GRADIENTS)
    assert len(freed.graph.outputs) < len(graph.outputs)
    assert freed.load_bytes <= captured.load_bytes
    assert fitted.state_bytes == state_bytes_of(graph)


@pytest.mark.parametrize(
    "name",
    [
        "gpt2.json",
        "bert_base.json",
        "vit_b16.json",
        "whisper_tiny.json",
        "mobilenet_v2.json",
        "squeezenet.onnx",
    ],
)
def test_no_plan_of_an_example_is_below_what_is_said_of_every_order(name):
    fitted = fit_graph(load(EXAMPLES / name))
    arenas = [stage.plan.arena_bytes for stage in fitted.stages]
    assert arenas == sorted(arenas, reverse=True)
    for stage in fitted.stages:
        assert stage.bound_bytes <= stage.load_bytes <= stage.plan.arena_bytes
        if stage.order is not None:
            assert stage.order.bound_bytes <= stage.load_bytes or not stage.is_of_all_orders


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"only": ["order"]}, "--only: found 'order', expected some of in_place, reorder, gradients"),
        ({"capacity": -1}, "capacity"),
        ({"how": Preparation(streams=2)}, "found streams"),
        ({"how": Preparation(early_updates=True)}, "found early updates"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(InputError, match="found") as caught:
        fit_graph(branches(), **options)
    assert said in str(caught.value)


def test_the_verb_tells_it_all_as_json_and_writes_order_and_plan(memplan, tmp_path):
    gpt2 = str(EXAMPLES / "gpt2.json")
    code, out, _ = memplan(
        "fit", gpt2, "--capacity", "505MiB", "--json", "-o", "order.json", "--save-plan", "p.json"
    )
    assert code == 0
    said = json.loads(out)
    assert (said["verdict"], said["state_bytes"]) == ("fits", 497_767_424)
    assert [(each["name"], each["load_bytes"]) for each in said["stages"]] == [
        ("captured", 53_477_376),
        ("in_place", 40_894_464),
        ("reorder", 28_311_552),
    ]
    assert all(each["proved"] for each in said["stages"])
    order = json.loads(Path("order.json").read_text())
    assert sorted(order["steps"].values()) == list(range(466))
    assert memplan("validate", "p.json")[0] == 0
    code, out, _ = memplan("fit", gpt2, "--capacity", "480MiB")
    assert code in (1, 3)
    assert "verdict" in out


def test_the_verb_refuses_in_one_line(memplan):
    for arguments, found in (
        ((str(EXAMPLES / "unet_training.csv"),), "expected a graph"),
        ((str(EXAMPLES / "gpt2.json"), "--only", "nonsense"), "--only: found 'nonsense'"),
        ((str(EXAMPLES / "gpt2.json"), "--training", "step"), "--training: found a file"),
        (("nowhere.json",), "no such file"),
        ((str(EXAMPLES / "gpt2.json"), "-o", "order.txt"), "order.txt"),
    ):
        code, _, err = memplan("fit", *arguments)
        assert (code, err.count("\n")) == (2, 1), err
        assert found in err
