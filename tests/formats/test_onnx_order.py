"""ONNX models with their nodes sorted: the same results by ONNX's own evaluator; what is wrong is refused."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from memplan_engine import InputError, load, make_plan, reorder
from memplan_engine.files import write
from memplan_engine.formats.order_files import load_schedule, write_order
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.schedule import in_order_of
from tests.formats.onnx_models import value, weight


def branches(names: bool = True, *, cond: bool = False) -> onnx.ModelProto:
    """Three values of 64 floats that are each summed up, all made first; a weight and a folded constant."""
    node = helper.make_node
    nodes = [node("Constant", [], ["times"], value=helper.make_tensor("t", TensorProto.INT64, [1], [16]))]
    nodes += [node("Tile", ["x", "times"], [f"big{i}"], name=f"tile{i}" * names) for i in range(3)]
    nodes += [node("Mul", [f"big{i}", "w"], [f"m{i}"], name=f"mul{i}" * names) for i in range(3)]
    nodes += [node("ReduceSum", [f"m{i}"], [f"s{i}"], keepdims=1, name=f"sum{i}" * names) for i in range(3)]
    nodes.append(node("Sum", ["s0", "s1", "s2"], ["y"]))
    if cond:
        # Reads a value of the graph around it, which nothing else says.
        inner = [
            helper.make_graph([node(kind, ["m1"], ["r"])], kind, [], [value("r", 64)])
            for kind in ("Abs", "Neg")
        ]
        nodes.append(node("If", ["yes"], ["z"], then_branch=inner[0], else_branch=inner[1], name="if"))
    outputs = [value("y", 1)]
    inputs = [value("x", 4)]
    if cond:
        outputs.append(value("z", 64))
        inputs.append(value("yes", kind=TensorProto.BOOL))
    weights = [weight("w", np.linspace(-1, 1, 64, dtype=np.float32))]
    graph = helper.make_graph(nodes, "branches", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def results(model: onnx.ModelProto) -> list[bytes]:
    given = {"x": np.arange(4, dtype=np.float32), "yes": np.array(True)}
    names = [value.name for value in model.graph.input]
    return [each.tobytes() for each in ReferenceEvaluator(model).run(None, {n: given[n] for n in names})]


MODELS = {"named": branches(), "unnamed": branches(names=False), "if": branches(cond=True)}


@pytest.mark.parametrize("name", MODELS)
def test_the_sorted_model_gives_the_same_and_needs_what_was_said(name: str, tmp_path: Path) -> None:
    model = deepcopy(MODELS[name])
    onnx.save(model, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    found = reorder(graph)
    assert found.live_after < found.live_before
    write_order(found.graph, tmp_path / "sorted.onnx", tmp_path / "model.onnx")
    again = onnx.load(tmp_path / "sorted.onnx")
    onnx.checker.check_model(again, full_check=True)
    assert results(again) == results(model)
    # The same nodes, and the same model but for them.
    assert sorted(n.SerializeToString() for n in again.graph.node) == sorted(
        n.SerializeToString() for n in model.graph.node
    )
    assert [n.output[0] for n in again.graph.node] != [n.output[0] for n in model.graph.node]
    del again.graph.node[:], model.graph.node[:]
    assert again == model
    assert reorder(load(tmp_path / "sorted.onnx")).live_before == found.live_after


def test_what_cannot_be_sorted_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    onnx.save(branches(), tmp_path / "model.onnx")
    graph, target = load(tmp_path / "model.onnx"), tmp_path / "sorted.onnx"
    reversed_ = replace(graph, ops=graph.ops[::-1])
    other = replace(graph, ops=(replace(graph.ops[0], name="nobody"), *graph.ops[1:]))
    for wrong, said in ((reversed_, "which is made after it"), (other, "op 'nobody'")):
        with pytest.raises(InputError, match=said):
            write_order(wrong, target, tmp_path / "model.onnx")
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = branches()
    model.functions.append(function)
    onnx.save(model, tmp_path / "functions.onnx")
    with pytest.raises(InputError, match="the function 'F'"):
        write_order(graph, target, tmp_path / "functions.onnx")
    with pytest.raises(InputError, match=r"'\.onnx'"):
        write_order(graph, target)
    assert not target.exists()


def test_weights_in_other_files_stay_where_they_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(branches(), folder / "model.onnx", **outside)
    graph = load(folder / "model.onnx")
    with pytest.raises(InputError, match=r"weights\.bin"):
        write_order(graph, tmp_path / "sorted.onnx", folder / "model.onnx")
    write_order(reorder(graph).graph, folder / "sorted.onnx", folder / "model.onnx")
    assert results(onnx.load(folder / "sorted.onnx")) == results(branches())


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_an_order_comes_back_from_the_file_that_it_was_written_to(suffix: str, tmp_path: Path) -> None:
    onnx.save(branches(), tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    best = reorder(graph).graph
    write_order(best, tmp_path / f"order{suffix}")
    schedule = load_schedule(tmp_path / f"order{suffix}", graph)
    assert in_order_of(graph, schedule) == best


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op\ntile0\n", "no column 'step'"),
        ("op,step\ntile0,0\ntile0,1\n", "line 3, field op"),
        ("op,step\ntile0,x\n", "line 2, field step"),
        ("op,step\ntile0,0\n", "op 'tile1'"),
        ("# only words\n", "no header"),
    ],
)
def test_a_table_that_is_no_order_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    onnx.save(branches(), tmp_path / "model.onnx")
    (tmp_path / "order.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        load_schedule(tmp_path / "order.csv", load(tmp_path / "model.onnx"))


def test_names_with_commas_and_quotes_come_back(tmp_path: Path) -> None:
    onnx.save(branches(), tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    named = replace(graph, ops=tuple(replace(op, name=f'{op.name},"q" ä') for op in graph.ops))
    write_order(named, tmp_path / "order.csv")
    assert load_schedule(tmp_path / "order.csv", named).step_of_op == tuple(range(len(graph.ops)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("in_order", [False, True])
def test_a_plan_is_written_into_its_model(name: str, in_order: bool, tmp_path: Path) -> None:
    onnx.save(MODELS[name], tmp_path / "model.onnx")
    how = Preparation(reorder=in_order, in_place=in_order, plan_inputs=True)
    plan = make_plan(prepare(load(tmp_path / "model.onnx"), how))
    write(plan, tmp_path / "planned.onnx", tmp_path / "model.onnx")
    again = onnx.load(tmp_path / "planned.onnx")
    onnx.checker.check_model(again, full_check=True)
    assert results(again) == results(MODELS[name])
    told = {entry.key: entry.value for entry in again.metadata_props}
    assert told == {
        "memplan.arena_bytes": str(plan.arena_bytes), "memplan.alignment": "64", "memplan.strategy": "auto"
    }  # fmt: skip
    # Read back by hand: values that are live together lie apart, by sizes of ONNX's own inference.
    sizes = {
        each.name: 4 * int(np.prod([d.dim_value for d in each.type.tensor_type.shape.dim]))
        for each in onnx.shape_inference.infer_shapes(again).graph.value_info
    }
    at: dict[str, int] = {}
    born, dies = {}, {}
    for step, node in enumerate(again.graph.node):
        entries = {entry.key: entry.value for entry in node.metadata_props}
        for value_name, offset in zip(node.output, entries.get("memplan.offsets", "").split(), strict=False):
            if offset != "-":
                at[value_name], born[value_name] = int(offset), step
        inner = [n for a in node.attribute if a.HasField("g") for sub in a.g.node for n in sub.input]
        for value_name in [*node.input, *inner]:
            dies[value_name] = step
    assert {"big0", "m1", "s2", "y"} <= at.keys()
    together = 0
    for one in at.keys() & sizes.keys():
        for other in at.keys() & sizes.keys():
            if one < other and born[one] < dies[other] and born[other] < dies[one]:
                together += 1
                assert at[one] + sizes[one] <= at[other] or at[other] + sizes[other] <= at[one], (one, other)
    assert together > 3
    # In a second plan the offsets take the place of those of the first.
    write(
        make_plan(prepare(load(tmp_path / "planned.onnx"), how), "naive"),
        tmp_path / "second.onnx",
        tmp_path / "planned.onnx",
    )
    second = onnx.load(tmp_path / "second.onnx")
    assert {entry.key: entry.value for entry in second.metadata_props}["memplan.strategy"] == "naive"
    assert all(len(node.metadata_props) <= 1 for node in second.graph.node)


def test_a_plan_is_written_only_into_the_model_that_it_is_of(memplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    onnx.save(branches(), tmp_path / "model.onnx")
    (tmp_path / "list.csv").write_text("id,lower,upper,size\na,0,2,8\n")
    assert memplan("plan", tmp_path / "model.onnx", "-o", tmp_path / "planned.onnx")[0] == 0
    assert memplan("plan", tmp_path / "model.onnx", "-o", tmp_path / "p.onnx", "--capacity", "1MiB")[0] == 0
    assert (tmp_path / "p.onnx").exists()
    code, _, err = memplan("plan", tmp_path / "list.csv", "-o", tmp_path / "bad.onnx")
    assert (code, "the suffix '.onnx', expected .json or .csv" in err) == (2, True)
    code, _, err = memplan("plan", tmp_path / "model.onnx", "-o", tmp_path / "bad.onnx", "--streams", "2")
    assert (code, err.count("\n")) == (2, 1)
    assert not (tmp_path / "bad.onnx").exists()
