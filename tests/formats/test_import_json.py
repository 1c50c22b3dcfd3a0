"""memplan JSON: what is written is read byte-equal, and what is wrong is named by its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import ValidationError

from memplan_engine import (
    FREE,
    Bound,
    BoundKind,
    Gap,
    Graph,
    InputError,
    Op,
    Plan,
    Problem,
    Role,
    Source,
    Storage,
    Tensor,
    load,
    lower_bound,
    make_plan,
    make_problem,
    to_problem,
)
from memplan_engine.files import write
from memplan_engine.formats.memplan_json import json_base
from memplan_engine.formats.memplan_json.json_base import Head
from memplan_engine.formats.memplan_json.json_file import dumps, loads, write_json
from memplan_engine.formats.memplan_json.schema import FOLDER, schemas
from memplan_engine.graph import Phase, Symbol, Workspace
from memplan_engine.plan import make_offsets
from memplan_engine.problem import Origin
from memplan_engine.schedule import Schedule
from tests.support.work import calls_of


def graph() -> Graph:
    line = Source("model.py", 12, "y = self.lin(x)")
    return Graph(
        "net ü",
        (
            Storage("x", 16, Role.INPUT),
            Storage("w", 64, Role.CONSTANT),
            Storage("h", 16, Role.ACTIVATION, 128, "4*n"),
            Storage("y", 16, Role.OUTPUT),
        ),
        (
            Tensor("x", (4,), "float32", 16, "x"),
            Tensor("w", (4, 4), "float32", 64, "w"),
            Tensor("h", (4,), "float32", 16, "h"),
            Tensor("v", (2, 2), "float32", 16, "h", (1, 2), 0, ("n // 2", "2")),
            Tensor("y", (), "float32", 16, "y"),
        ),
        (
            Op("lin", "linear", ("x", "w"), ("h",), module="body.lin", source=line),
            Op("view", "reshape", ("h",), ("v",), source=line),
            Op(
                "out",
                "relu",
                ("v",),
                ("y",),
                mutates=("v",),
                source=Source("other.py", 3),
                workspace=Workspace(100, 7),
                phase=Phase.BACKWARD,
                out_variant=False,
            ),
        ),
        ("x",),
        ("y",),
        ("w",),
        (Symbol("n", 2, 64, 4), Symbol("u0", 0)),
    )


def problem() -> Problem:
    return make_problem(
        [0, 1, 0],
        [4, 3, 2],
        [8, 12, 0],
        names=["a", "b", "c"],
        alignment=[1, 4, 2],
        fixed=[FREE, 8, FREE],
        gaps={0: (Gap(1, 2), Gap(2, 3, 1, 5))},
        steps=9,
        name="three",
    )


def plan() -> Plan:
    made = to_problem(graph())
    return Plan(
        made,
        make_offsets([0, 128]),
        "mine",
        lower_bound(made),
        (("fit", "best"), ("limit", 1.5), ("n", None)),
    )


VALUES = {
    "graph": graph(),
    "problem": problem(),
    "plan": plan(),
    "planned": make_plan(problem(), "greedy_by_size"),
    "plain problem": make_problem([0, 1], [2, 3], [5, 6]),
    "problem of a graph": to_problem(graph()),
    "one buffer": make_problem([0], [1], [5], alignment=64, fixed=[64]),
    "empty problem": make_problem([], [], []),
    "empty graph": Graph("nothing", (), (), (), (), ()),
}


@pytest.mark.parametrize("kind", VALUES)
def test_written_read_and_written_again_is_byte_equal(tmp_path: Path, kind: str) -> None:
    value = VALUES[kind]
    write_json(value, tmp_path / "x")
    text = (tmp_path / "x").read_bytes()
    back = load(tmp_path / "x")
    assert back == value
    assert dumps(back) == text
    assert text.count(b"\n") == 1
    assert text.endswith(b"}\n")


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_written_keeps_its_published_schema(kind: str) -> None:
    document = json.loads(dumps(VALUES[kind]))
    schema = json.loads((FOLDER / f"{document['format'].removeprefix('memplan/')}.v1.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_the_published_schemas_are_those_of_the_code() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.glob("*.json")} == schemas(), (
        "run python -m memplan_engine.formats.memplan_json.schema"
    )


@pytest.mark.parametrize("change", [{"extra": 1}, {"tensors": [{"name": "x", "nbytes": -1}]}, {"version": 2}])
def test_the_schema_refuses_what_the_reader_refuses(change: dict[str, Any]) -> None:
    document = {**json.loads(dumps(graph())), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(schemas()["graph.v1.json"]))


def test_a_problem_keeps_its_graph_schedule_and_time_axis() -> None:
    schedule = Schedule((0, 1, 3), 5)
    made = to_problem(graph(), schedule)
    back = loads(dumps(made).decode(), "x")
    assert isinstance(back, Problem)
    assert back.origin == Origin(graph(), schedule)
    assert (back.name, back.steps) == ("net ü", 5)
    assert (back.names, back.alignment.tolist()) == (("h", "y"), [128, 64])


def test_a_plan_keeps_all_but_nothing_more() -> None:
    made = plan()
    back = loads(dumps(made).decode(), "x")
    assert isinstance(back, Plan)
    assert back.parameters == (("fit", "best"), ("limit", 1.5), ("n", None))
    assert [type(value) for _, value in back.parameters] == [str, float, type(None)]
    assert back.bound == made.bound
    assert back.problem.origin == made.problem.origin
    assert not back.offsets.flags.writeable


def test_a_bound_of_every_kind_comes_back() -> None:
    for kind in BoundKind:
        made = Plan(problem(), make_offsets([0, 8, 0]), "s", Bound(20, kind, 1, 4), (), 0.25)
        back = loads(dumps(made).decode(), "x")
        assert isinstance(back, Plan)
        assert (back.bound, back.seconds) == (made.bound, 0.25)


def test_a_small_graph_written_by_hand() -> None:
    text = """{"format": "memplan/graph", "version": 1, "inputs": ["x"], "outputs": ["y"],
        "tensors": [{"name": "x", "nbytes": 8}, {"name": "h", "nbytes": 32},
                    {"name": "part", "nbytes": 4, "storage": "h"}, {"name": "y", "nbytes": 8}],
        "ops": [{"name": "a", "inputs": ["x"], "outputs": ["h"]},
                {"name": "b", "inputs": ["h"], "outputs": ["part"]},
                {"name": "c", "inputs": ["part"], "outputs": ["y"]}]}"""
    made = loads(text, "x")
    assert isinstance(made, Graph)
    assert made.storages == (
        Storage("x", 8, Role.INPUT),
        Storage("h", 32, Role.ACTIVATION),
        Storage("y", 8, Role.OUTPUT),
    )
    assert made.ops[0] == Op("a", "op", ("x",), ("h",))


def test_a_deep_graph_stays_compact() -> None:
    """1,500 ops as a captured 7B model has them: long names, module paths, 60 source lines."""
    sources = [
        Source(f"/site-packages/transformers/models/llama/modeling_{n % 3}.py", n, "x = f(x)" * 6)
        for n in range(60)
    ]
    n = 1500
    names = [f"scaled_dot_product_attention_{i}" for i in range(n)]
    tensors = [Tensor(name, (1, 32, 2048, 128), "bfloat16", 2**24, name) for name in names]
    weights = [
        Tensor(
            f"p_model_layers_{i}_self_attn_q_proj_weight",
            (4096, 4096),
            "bfloat16",
            2**25,
            f"p_model_layers_{i}_self_attn_q_proj_weight",
        )
        for i in range(300)
    ]
    ops = [
        Op(
            name,
            "aten.scaled_dot_product_attention.default",
            (names[i - 1],) if i else (),
            (name,),
            (),
            f"model.layers.{i // 48}.self_attn.q_proj",
            sources[i % 60],
        )
        for i, name in enumerate(names)
    ]
    storages = [
        Storage(t.name, t.nbytes, Role.CONSTANT if t.name.startswith("p_") else Role.ACTIVATION)
        for t in (*tensors, *weights)
    ]
    made = Graph(
        "llama", tuple(storages), (*tensors, *weights), tuple(ops), (), (), tuple(w.name for w in weights)
    )
    text = dumps(made)
    assert len(text) < 600_000
    assert loads(text.decode(), "x") == made


def test_thousands_of_buffers_come_back_equal_without_a_call_for_each(tmp_path: Path) -> None:
    n = 5_000
    start = np.arange(n)
    made = make_problem(start, start + 9, start + 64, names=[f"conv_{i}" for i in range(n)], alignment=64)
    write_json(made, tmp_path / "x.json")
    assert load(tmp_path / "x.json") == made
    assert calls_of(lambda: load(tmp_path / "x.json")) < n


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        loads(text, "x.json")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(value: Graph | Problem | Plan, where: str, new: str) -> str:
    """The JSON of `value` with `new`, raw JSON, for the field at the path `where` ("bound/step")."""
    document = json.loads(dumps(value))
    parts = where.split("/")
    place: Any = document
    for part in parts[:-1]:
        place = place[int(part) if part.isdigit() else part]
    place[int(parts[-1]) if parts[-1].isdigit() else parts[-1]] = "@@"
    return json.dumps(document).replace('"@@"', new)


BAD_FIELDS = [
    (problem(), "start/1", "1.0", "field start[1]: found 1.0, expected a valid integer"),
    (problem(), "start/1", "1.5", "field start[1]: found 1.5, expected a valid integer"),
    (problem(), "start/1", "true", "field start[1]: found True, expected a valid integer"),
    (problem(), "start/1", '"1"', "field start[1]: found '1', expected a valid integer"),
    (problem(), "start/1", "null", "field start[1]: found null, expected a valid integer"),
    (problem(), "start/1", "NaN", "field start[1]: found nan, expected a"),
    (problem(), "size/0", "-8", "field size[0]: found -8, expected greater than or equal to 0"),
    (problem(), "size/0", str(2**63), "field size[0]: found 9223372036854775808, expected less than"),
    (problem(), "size/0", "9" * 400, "field size[0]: found 999"),
    (problem(), "size", "[8, 12]", "column size: found 2 values, expected 3"),
    (problem(), "end/0", "0", "buffer 'a': found end 0 (half-open) with start 0"),
    (problem(), "names/1", '"a"', "buffer 'a': found the name twice"),
    (problem(), "alignment", "[0, 1, 1]", "buffer 'a': found alignment 0"),
    (problem(), "fixed/1", "3", "buffer 'b': found offset 3, expected a multiple of alignment 4"),
    (problem(), "fixed/1", "-1", "field fixed[1]: found -1, expected greater than or equal to 0"),
    (problem(), "gaps/0/buffer", "7", "gaps: found buffer 7, expected below 3"),
    (problem(), "gaps/0/end", "99", "buffer 'a': found gap 1-99"),
    (problem(), "steps", "2", "steps: found 2, expected at least 4"),
    (problem(), "colour", "1", "field colour: found an unknown field"),
    (problem(), "version", "2", "field version: found 2, expected 1"),
    (problem(), "version", '"1"', "field version: found '1', expected a valid integer"),
    (problem(), "format", '"memplan/pudding"', "field format: found 'memplan/pudding', expected"),
    (graph(), "tensors/2/nbytes", '"many"', "field tensors[2].nbytes: found 'many', expected a valid"),
    (graph(), "tensors/1/storage", '"nowhere"', "tensor 'w': found storage 'nowhere'"),
    (graph(), "ops/0/source", "9", "op 'lin': found source 9, expected below 2"),
    (graph(), "ops/1/name", '"lin"', "op 'lin': found the name twice"),
    (graph(), "ops/0/inputs", '["v", "w"]', "ops: found a cycle: lin → view → lin"),
    (graph(), "ops/0/inputs", '["y", "w"]', "ops: found a cycle: lin → view → out → lin"),
    (graph(), "ops/1/inputs", '["ghost"]', "op 'view': found tensor 'ghost'"),
    (graph(), "outputs/0", '"ghost"', "outputs: found tensor 'ghost'"),
    (plan(), "offsets", "[0]", "field offsets: found 1 offsets, expected 2, one for each buffer"),
    (plan(), "offsets/1", "-64", "field offsets[1]: found -64, expected greater than or equal to 0"),
    (plan(), "offsets/1", str(2**63 - 1), "field offsets[1]: found 9223372036854775807, expected offset"),
    (plan(), "arena_bytes", "143", "field arena_bytes: found 143, expected 144, the end of the top"),
    (plan(), "bound/kind", '"hope"', "field bound.kind: found 'hope', expected 'load'"),
    (plan(), "seconds", "NaN", "field seconds: found nan, expected a finite number"),
    (plan(), "problem/origin/graph/ops/0/kind", "7", "field problem.origin.graph.ops[0].kind: found 7"),
    (to_problem(graph(), Schedule((0, 1, 3), 5)), "origin/schedule/steps", "3", "op 'out': found step 3"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "where", "new", "message"), BAD_FIELDS)
def test_bad_fields_are_named_by_their_path(value: Graph, where: str, new: str, message: str) -> None:
    assert refusal(changed(value, where, new)).startswith(f"x.json: {message}")


@pytest.mark.parametrize(
    ("kind", "field"), [("graph", "ops"), ("problem", "start"), ("plan", "offsets"), ("plan", "problem")]
)
def test_missing_fields_are_named(kind: str, field: str) -> None:
    document = json.loads(dumps(VALUES[kind]))
    del document[field]
    assert refusal(json.dumps(document)) == f"x.json: field {field}: found nothing, expected a value"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "x.json: found broken JSON"),
        ("{}", "x.json: field format: found nothing"),
        ("[1]", "x.json: found a list, expected an object"),
        ('{"format": "memplan/graph", "version": 1}', "x.json: field tensors: found nothing"),
        (dumps(graph()).decode()[:-40], "x.json: found broken JSON"),
        ('{"a":' * 100_000, "x.json: found broken JSON"),
        ('{"format": "other", "version": 7}', "x.json: field format: found 'other'"),
    ],
)
def test_broken_documents(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize("made", [graph, problem, plan], ids=["graph", "problem", "plan"])
def test_what_we_write_is_parsed_once_and_what_others_write_in_any_order(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = dumps(made()).decode()
    fields = json.loads(text)
    turned = json.dumps({key: fields[key] for key in reversed(fields)})
    assert loads(turned, "turned") == made()
    monkeypatch.setattr(Head, "model_validate_json", None)
    assert loads(text, "text") == made()
    assert loads(json.dumps(fields, indent=2), "indented") == made()


def test_of_many_faults_one_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []

    def explain(error: ValidationError, source: str) -> InputError:
        collected.append(error.error_count())
        return json_base_explain(error, source)

    json_base_explain = json_base.explain
    monkeypatch.setattr(json_base, "explain", explain)
    text = changed(problem(), "start", f"[{'0.5,' * 10_000}1]")
    assert "field start[0]: found 0.5" in refusal(text)
    assert collected == [1]


def test_a_long_text_in_a_large_file_is_refused_before_the_file_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = changed(problem(), "name", f'"\U0001f600{"a" * 60_001}"')
    assert refusal(text) == "x.json: field name: found a longer text, expected at most 10,000 characters"
    monkeypatch.setattr(json_base, "MUCH", 1_000)
    assert refusal(text) == "x.json: found a longer text, expected at most 10,000 characters"
    # A letter of six characters in the file is one of the text.
    escaped = changed(problem(), "name", f'"\\u0041{"a" * 9_999}\U0001f600"')
    assert refusal(escaped) == "x.json: field name: found a longer text, expected at most 10,000 characters"


def test_values_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    made = make_problem([0], [1], [4], names=["a"])
    bound = lower_bound(made)
    for offsets, parameters in (([-4], ()), ([0, 4], ()), ([0], (("x", float("nan")),))):
        with pytest.raises(InputError):
            write(Plan(made, make_offsets(offsets), "s", bound, parameters), tmp_path / "x.json")
    with pytest.raises(InputError, match="not valid text"):
        write(make_problem([0], [1], [4], names=["\ud800"]), tmp_path / "x.json")
    assert not list(tmp_path.iterdir())
