"""Saved exported programs: the graph of the live module again, weights left alone, and hostile files."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.graph import Role, storage_bytes
from memplan_engine.lifetimes import to_problem
from memplan_engine.symbolic.symbolic_problem import symbolic_problem
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.pt2_reader import Pt2Importer
from memplan_engine.torch_capture.torch_graph import graph_from_exported

IMPORTER = Pt2Importer()


class Net(nn.Module):
    """Tied weights, buffers of both kinds, a plain constant, in-place ops, views, several outputs, and a
    branch."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("passing", torch.ones(4), persistent=False)
        self.plain = torch.ones(4)

    def forward(self, x, scale: int = 3):
        y = (self.a(x) + self.b(x)).relu_() * scale + self.passing + self.plain + torch.tensor([1.0])
        self.kept.add_(1)  # type: ignore[operator]
        left, right = torch.split(y, 2, dim=1)
        return left + right, torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)), y.t()


def load(path):
    return IMPORTER.load(path, ImportOptions())


def recognised(path):
    with path.open("rb") as file:
        return IMPORTER.recognises(file.read(4096), path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "net.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(Net(), (torch.ones(5, 4),), strict=False), path)
    return path


def rewrite(saved, path, change, compression=zipfile.ZIP_STORED):
    """A copy of the zip `saved` in which `change(name, data)` has replaced the members' data; None drops
    one."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return path


def with_model(saved, path, change):
    """A copy of `saved` whose graph's JSON `change` has edited."""

    def edit(name, data):
        if not name.endswith("/models/model.json"):
            return data
        model = json.loads(data)
        change(model)
        return json.dumps(model)

    return rewrite(saved, path, edit)


def test_the_graph_is_that_of_the_live_module(saved):
    assert load(saved) == capture(Net(), (torch.ones(5, 4),), name="net")
    assert storage_bytes(load(saved), Role.CONSTANT) == 4 * (16 + 4 + 4 + 4 + 4 + 4 + 1)


def test_a_transformer_in_functional_form(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=16)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.zeros(1, 12, dtype=torch.long)
    with torch.no_grad():
        exported = torch.export.export(model, (ids,), {"use_cache": False}, strict=False)
    exported = exported.run_decompositions({})
    torch.export.save(exported, tmp_path / "gpt2.pt2")
    assert load(tmp_path / "gpt2.pt2") == graph_from_exported(exported, "gpt2")


class Calls(nn.Module):
    """A module whose forward is `function` of it and its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.fc = nn.Linear(64, 512)

    def forward(self, x):
        return self.function(self, x)


def looped(_, x):
    def body(step, state):
        return step + 1, torch.cond(state.sum() > 0, lambda v: v.cos() * 2, lambda v: v.clone(), (state,))

    return while_loop(lambda step, state: step < 3, body, (torch.zeros((), dtype=torch.int64), x))[1]


def scanned(_, x):
    return scan(lambda carry, row: (carry + row, carry * 2), torch.zeros(4), x, dim=0)[1]


def mapped(_, x):
    return map_rows(lambda row: row.sin().cos(), x)


def attended(_, x):
    parts = x.view(x.shape[0], 1, 8, 8)
    return flex_attention(parts, parts, parts)


@pytest.mark.parametrize("function", [looped, scanned, mapped])
def test_what_is_inside_loops_is_that_of_the_live_module(function, tmp_path):
    model = Calls(function)
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (torch.ones(5, 4),), strict=False), tmp_path / "it.pt2")
    graph = load(tmp_path / "it.pt2")
    assert any(op.within for op in graph.ops)
    assert graph == capture(model, (torch.ones(5, 4),), name="it")


def test_what_is_inside_a_branch_has_formulas(tmp_path):
    """The wide branch holds two results of 512 numbers a row, next to a condition of 1 byte."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.fc(v).relu().sum(1), lambda v: v.sum(1), (x,))

    model = Calls(forward)
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        exported = torch.export.export(
            model, (torch.ones(6, 64),), dynamic_shapes=({0: batch},), strict=False
        )
        torch.export.save(exported, tmp_path / "wide.pt2")
    problem = symbolic_problem(load(tmp_path / "wide.pt2"))
    for size in (2, 6, 64):
        assert find_peak(problem.at({"s0": size})).nbytes == 2 * 4 * 512 * size + 1


@pytest.mark.parametrize("function", [mapped, attended])
def test_formulas_inside_an_op_give_what_is_captured_at_other_sizes(function, tmp_path):
    model, batch = Calls(function), torch.export.Dim("batch", min=3, max=64)
    with torch.no_grad():
        exported = torch.export.export(
            model, (torch.ones(6, 64),), dynamic_shapes=({0: batch},), strict=False
        )
    problem = symbolic_problem(graph_from_exported(exported, "it")).at({"batch": 9})
    fixed = to_problem(capture(model, (torch.ones(9, 64),), name="it"))
    rows = [list(zip(p.names, p.start, p.end, p.size, strict=True)) for p in (problem, fixed)]
    assert rows[0] == rows[1]
    if function is mapped:
        # All rows of the cosine, and what they are stacked into.
        assert find_peak(problem).nbytes == 2 * 9 * 64 * 4


def test_a_program_with_vmap_says_how_to_save_it(tmp_path):
    model = Calls(lambda _, x: torch.vmap(lambda row: row.sin().sum())(x) * 2)
    exported = torch.export.export(model, (torch.ones(5, 4),), strict=False)
    torch.export.save(exported, tmp_path / "it.pt2")
    assert "a program without vmap, as exported.run_decompositions({}) returns it" in error_of(
        tmp_path / "it.pt2"
    )
    torch.export.save(exported.run_decompositions({}), tmp_path / "it.pt2")
    assert load(tmp_path / "it.pt2") == capture(model, (torch.ones(5, 4),), name="it")


def test_weights_of_the_meta_device_are_not_taken_for_one(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).to("meta")
    exported = torch.export.export(model, (torch.ones(2, 4, device="meta"),), strict=False)
    torch.export.save(exported, tmp_path / "meta.pt2")
    assert load(tmp_path / "meta.pt2") == graph_from_exported(exported, "meta")


def test_dynamic_shapes_take_the_values_of_the_example(tmp_path):
    class Double(nn.Module):
        def forward(self, x):
            return torch.zeros(x.shape[0] * 2 + 1) + x.sum()

    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(Double(), (torch.ones(6, 4),), dynamic_shapes=({0: batch},), strict=False)
    torch.export.save(exported, tmp_path / "double.pt2")
    graph = load(tmp_path / "double.pt2")
    assert {storage.name: storage.nbytes for storage in graph.storages}["zeros"] == 52
    # A file has lost the names of its Dims.
    live = graph_from_exported(exported, "double")
    assert {s.name: s.formula.replace("batch", "s0") for s in live.storages} == {
        s.name: s.formula for s in graph.storages
    }
    assert [(s.low, s.high, s.hint) for s in graph.symbols] == [(2, 64, 6)]


def test_weights_are_neither_read_nor_needed(saved, tmp_path):
    def garble(name, data):
        if "config" in name or not ("/data/weights/" in name or "/sample_inputs/" in name):
            return data
        return None if name.endswith("weight_1") else b"\x80garbage"

    assert load(rewrite(saved, tmp_path / "net.pt2", garble)) == load(saved)


def test_a_program_without_payload_tables_takes_sizes_from_its_graph(saved, tmp_path):
    with zipfile.ZipFile(saved) as archive:
        model = archive.read("net/models/model.json")
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("version", "8.1")
        archive.writestr("serialized_exported_program.json", model)
    graph = load(tmp_path / "old.pt2")
    assert graph.ops == load(saved).ops
    assert recognised(tmp_path / "old.pt2")


def test_megabytes_of_weights_stay_on_disk(saved, tmp_path):
    """Counts Python's allocations. A torch tensor would need a record that the tests above remove."""
    model = nn.Linear(2000, 2000, bias=False)
    path = tmp_path / "large.pt2"
    torch.export.save(torch.export.export(model, (torch.ones(1, 2000),), strict=False), path)
    load(saved)  # What torch imports and caches at the first program is allocated here.
    tracemalloc.start()
    try:
        graph = load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert storage_bytes(graph, Role.CONSTANT) == 16_000_000
    assert peak < 4_000_000


def test_recognises_programs_by_content(saved, tmp_path):
    renamed = tmp_path / "net.bin"
    renamed.write_bytes(saved.read_bytes())
    assert recognised(renamed)
    cut = tmp_path / "cut.bin"
    cut.write_bytes(saved.read_bytes()[:3000])
    assert recognised(cut)
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a/b.txt", "text")
    assert not recognised(other)
    text = tmp_path / "text.pt2"
    text.write_text("id,lower,upper,size\n")
    assert not recognised(text)


def error_of(path):
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(path.name)
    assert "\n" not in message
    return message


def test_damaged_files(saved, tmp_path):
    bad = tmp_path / "bad.pt2"
    whole = saved.read_bytes()
    for data in (whole[: len(whole) // 2], b"PK\x03\x04" + bytes(range(256)) * 40, b"", b"PK"):
        bad.write_bytes(data)
        assert "damaged zip" in error_of(bad)
    with zipfile.ZipFile(saved) as archive:
        at = archive.getinfo("net/models/model.json").header_offset + 200
    bad.write_bytes(whole[:at] + b"#" * 50 + whole[at + 50 :])
    assert "damaged zip (Bad CRC-32" in error_of(bad)
    assert "No such file" in error_of(tmp_path / "missing.pt2")


def test_zips_of_something_else(saved, tmp_path):
    path = tmp_path / "bad.pt2"
    rewrite(saved, path, lambda name, data: None if "/models/" in name else data)
    assert "a zip without models/*.json" in error_of(path)
    rewrite(saved, path, lambda name, data: b"{" if "/models/" in name else data)
    assert "broken JSON" in error_of(path)
    rewrite(saved, path, lambda name, data: b"[" * 200_000 if "/models/" in name else data)
    assert "broken JSON" in error_of(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/models/one.json", "{}")
        archive.writestr("p/models/two.json", "{}")
    assert 'found 2 programs, expected one, or one called "model"' in error_of(path)


def test_a_zip_bomb_is_not_inflated(saved, tmp_path):
    def bomb(name, data):
        return b" " * 2**24 if "/models/" in name else data

    message = error_of(rewrite(saved, tmp_path / "bomb.pt2", bomb, zipfile.ZIP_DEFLATED))
    assert "16,777,216 bytes packed into" in message


def test_a_member_that_claims_to_be_huge(saved, tmp_path):
    path = tmp_path / "huge.pt2"
    data = bytearray(saved.read_bytes())
    entry = data.rindex(b"net/models/model.json") - 46
    data[entry + 20 : entry + 28] = (2**30 + 1).to_bytes(4, "little") * 2
    path.write_bytes(data)
    assert "1,073,741,825 bytes, expected at most 536,870,912" in error_of(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["schema_version"].update(major=7), "schema_version: found 7 (saved by torch 2."),
        (lambda m: m.pop("schema_version"), "schema_version: found None"),
        (lambda m: m.pop("graph_module"), "found KeyError: 'graph_module'"),
        (lambda m: m["graph_module"]["graph"].update(nodes=7), "a program that torch can decode"),
        (lambda m: m["graph_module"]["graph"]["tensor_values"].clear(), "a program that torch can decode"),
    ],
)
def test_programs_that_do_not_decode(saved, tmp_path, change, message):
    assert message in error_of(with_model(saved, tmp_path / "bad.pt2", change))


def first_node(model):
    return model["graph_module"]["graph"]["nodes"][0]


def canary(model, where):
    """Put code that would leave a mark if it were run into one place of a program."""
    code = "__import__('pathlib').Path('mark').touch()"
    if where == "expression":
        model["graph_module"]["graph"]["sym_int_values"]["s"] = {"as_expr": {"expr_str": code, "hint": None}}
        model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": code}}
    elif where == "expressions in a list":
        model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": [code]}}
    elif where == "operator":
        first_node(model).update(
            target="torch.os.system", inputs=[{"name": "", "arg": {"as_string": "touch mark"}, "kind": 1}]
        )
    elif where == "builtin":
        first_node(model)["target"] = "torch.ops.aten.from_file.default"
    else:
        name = f"x):\n  pass\n{code}\ndef g(y"
        text = json.dumps(model).replace('{"name": "x"}', json.dumps({"name": name}))
        model.clear()
        model.update(json.loads(text))
        values = model["graph_module"]["graph"]["tensor_values"]
        values[name] = values.pop("x")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("expression", "expected an arithmetic expression of symbols"),
        ("expressions in a list", "expected an arithmetic expression of symbols"),
        ("operator", "found the operator 'torch.os.system'"),
        ("builtin", "found the operator 'torch.ops.aten.from_file.default'"),
        ("name", "expected an identifier"),
    ],
)
def test_no_code_in_a_file_is_run(saved, tmp_path, monkeypatch, where, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(with_model(saved, tmp_path / "evil.pt2", lambda model: canary(model, where)))
    assert not Path("mark").exists()


@pytest.mark.parametrize(
    "text", ["9**9**9", "Pow(Integer(9), Integer(99999999))", "s0.__class__", "f(s0)", ""]
)
def test_expressions_that_are_no_sizes(saved, tmp_path, text):
    def change(model):
        sizes = model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": text, "hint": None}}

    assert "expr_str" in error_of(with_model(saved, tmp_path / "bad.pt2", change))
