"""Tables: every one that the page has, whole in a pipe, and at 80 columns without a broken number or path."""

from __future__ import annotations

import json

import pytest

from memplan_engine.cli.output import as_text
from memplan_engine.reporters.rich_tables import in_graph, make_table, modules, numbers, paths
from memplan_engine.units import shorten_path
from tests import ROOT

GPT2 = str(ROOT / "example_graphs" / "gpt2.json")
TRAINING = [str(ROOT / "example_graphs" / f"bert_training_{name}.json") for name in ("default", "min_cut")]
ATTENTION = [str(ROOT / "example_graphs" / f"diff_attention_{side}.json") for side in ("base", "head")]
SOURCE = "site-packages/transformers/models/gpt2/modeling_gpt2.py:282"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (59, SOURCE),
        (58, "…/transformers/models/gpt2/modeling_gpt2.py:282"),
        (27, "…/gpt2/modeling_gpt2.py:282"),
        (22, "…/modeling_gpt2.py:282"),
        (20, "modeling_gpt2.py:282"),
        (12, "…gpt2.py:282"),
    ],
)
def test_a_path_loses_its_first_folders_and_keeps_its_line(width, shown):
    assert shorten_path(SOURCE, width) == shown
    assert len(shown) <= width


def test_at_80_columns_paths_are_shortened_and_numbers_stay_whole():
    columns = ("buffer", *numbers("peak live bytes", "with workspace"), *paths("source"))
    row = ("a_buffer_with_a_name_of_some_length", "99.66 MiB (104,499,200 B)", "1,234,567", SOURCE)
    wide, narrow = (as_text([make_table(columns, [row], "a title")], width) for width in (200, 80))
    assert all(cell in wide for cell in row)
    lines = narrow.splitlines()
    assert lines[0] == "a title"
    assert max(map(len, lines)) <= 80
    for whole in ("99.66 MiB", "(104,499,200 B)", "1,234,567", "modeling_gpt2.py:282"):
        assert any(whole in line for line in lines), narrow
    assert SOURCE not in narrow


def test_where_there_is_little_room_names_in_the_graph_go_first_then_modules():
    columns = ("buffer", *in_graph(), *numbers("size"), *modules("module"), *paths("source"))
    row = ("h.0.mlp.c_fc · addmm", "embedding_dense_backward_1", "12 MiB", "transformer.h.0.mlp", SOURCE)
    heads = {}
    for width in (200, 70, 60, 50):
        text = as_text([make_table(columns, [row])], width)
        heads[width] = [name for name in ("in graph", "module", "source") if name in text]
        assert "12 MiB" in text
    assert heads == {
        200: ["in graph", "module", "source"], 70: ["in graph", "module", "source"],
        60: ["module", "source"], 50: ["source"],
    }  # fmt: skip


def test_all_buffers_as_a_table_and_for_machines(memplan, tmp_path):
    code, out, err = memplan("buffers", GPT2)
    assert (code, err) == (0, "")
    assert out.startswith("gpt2: 217 buffers by auto\n")
    row = next(line for line in out.splitlines() if "addmm_2 " in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == [
        "h.0.mlp.c_fc · addmm", "addmm_2", "12 MiB", "0", "40–45",
        "aten.addmm", "transformer.h.0.mlp.c_fc", "transformers/pytorch_utils.py:119",
    ]  # fmt: skip
    assert "and 192 more" in out
    found = json.loads(memplan("buffers", GPT2, "--json", "--sort", "start")[1])["buffers"]
    assert len(found) == 217
    assert [each["start"] for each in found] == sorted(each["start"] for each in found)
    assert set(found[0]) >= {"name", "label", "bytes", "offset", "start", "end", "kind", "module", "source"}


@pytest.mark.parametrize(
    ("arguments", "cells"),
    [
        (("values", GPT2), ("wte · embedding", "embedding")),
        (("reuse", GPT2), ("h.0.mlp.act · add", "add_3")),
        (("layout", GPT2), ("arena", "h.0.mlp.act · mul.3", "mul_2")),
        (("replay", GPT2), ("h.0.mlp.c_fc · addmm", "addmm_2")),
        (("phases", TRAINING[0]), ("encoder.layer.0.intermediate.dense · addmm", "addmm_4")),
        (("what-if", GPT2, "--capacity", "45MiB"), ("h.0.mlp.act · mul.2", "mul_1")),
        (("plan", GPT2, "--capacity", "45MiB"), ("h.0.mlp.act · mul.2", "mul_1")),
        (("diff", *ATTENTION), ("h.0.attn · mul", "mul")),
        (("diff", *ATTENTION), ("add.2", "add_1")),
    ],
)
def test_the_module_stands_first_and_the_name_in_the_graph_beside_it(memplan, arguments, cells):
    rows = [line.strip("│").split("│") for line in memplan(*arguments)[1].splitlines()]
    shown = {tuple(cell.strip() for cell in row) for row in rows}
    assert any(cells == row[at : at + len(cells)] for row in shown for at in (0, 1, 3))


def test_a_finished_plan_is_shown_as_it_is_unless_a_strategy_is_asked_for(memplan):
    memplan("plan", "list.csv", "--strategy", "naive", "-o", "naive.json")
    assert json.loads(memplan("buffers", "naive.json", "--json")[1])["arena_bytes"] == 270
    assert memplan("layout", "naive.json")[1].startswith("270 B total\n")
    assert (
        json.loads(memplan("buffers", "naive.json", "--strategy", "auto", "--json")[1])["arena_bytes"] == 170
    )
    code, _, err = memplan("buffers", "naive.json", "--alignment", "64")
    assert code == 2
    assert "a finished plan stays as it is unless a --strategy is asked for" in err


def test_shared_objects_have_a_table_of_their_own(memplan):
    code, out, _ = memplan("buffers", "list.csv", "--strategy", "shared_objects_by_size")
    assert code == 0
    assert "in time order" in out.split("shared objects")[1]
    found = json.loads(memplan("buffers", "list.csv", "--strategy", "shared_objects_by_size", "--json")[1])
    assert sorted(name for each in found["objects"] for name in each["buffers"]) == ["a", "b", "c"]


def test_a_training_graph_by_phase_and_beside_another_partition(memplan):
    code, out, _ = memplan("phases", TRAINING[0])
    assert code == 0
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines()]
    assert ["forward", "244", "688.61 MiB", "242"] in rows
    assert ["backward", "389", "717.77 MiB", "283"] in rows
    assert "saved for backward: " in out
    code, out, _ = memplan("phases", *TRAINING)
    assert code == 0
    assert "saved by bert_training_default only: 11 storages, 195 MiB" in out
    found = json.loads(memplan("phases", *TRAINING, "--json")[1])
    assert found["difference"]["min_cut"]["saved_bytes"] < found["saved_bytes"]


def test_phases_of_a_graph_without_any(memplan):
    code, _, err = memplan("phases", GPT2)
    assert code == 2
    assert err == (
        "memplan: gpt2.json: found ops without phases, expected a training graph, whose ops have phases\n"
    )
