"""A graph diffed with its rewritten self: which ops moved, are written in place, joined, let go."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from memplan_engine import diff, load, make_plan
from memplan_engine.diffing.rewritten import Rewrote, rewritten_ops
from memplan_engine.preparation import Preparation, prepare, prepared_reuse
from memplan_engine.reporters.diff_markdown import diff_markdown
from memplan_engine.reporters.diff_tables import diff_summary
from memplan_engine.reporters.diff_words import rewrite_sentence, rewritten_of

EXAMPLES = Path(__file__).parents[2] / "example_graphs"


def both(name: str, how: Preparation):
    graph = load(EXAMPLES / name)
    return [make_plan(prepare(graph, each), "greedy_by_size") for each in (Preparation(), how)]


def counts(name: str, how: Preparation) -> Counter:
    return Counter(each.what for each in rewritten_ops(*both(name, how)))


def test_the_ops_of_the_teaching_graph_that_moved_by_hand() -> None:
    """a b c d e f g h becomes a f g b c d e h: f and g have moved, and nothing else."""
    rows = rewritten_ops(*both("teaching_order.json", Preparation(reorder=True)))
    assert [(row.op.name, row.what, row.before, row.after, row.nbytes) for row in rows] == [
        ("f", Rewrote.MOVED, 5, 1, 6144),
        ("g", Rewrote.MOVED, 6, 2, 2048),
    ]


def test_as_many_as_the_rewrites_say() -> None:
    how = Preparation(in_place=True, concat=True)
    reused = prepared_reuse(load(EXAMPLES / "squeezenet.onnx"), how)
    assert counts("squeezenet.onnx", how) == {
        Rewrote.IN_PLACE: len(reused.in_place),
        Rewrote.JOINED: len({each.op for each in reused.concats}),
    }
    assert counts("gpt2.json", Preparation(in_place=True)) == {Rewrote.IN_PLACE: 98}
    freed = counts("gpt2_training_step.json", Preparation(early_updates=True))
    assert set(freed) == {Rewrote.MOVED, Rewrote.RETURNED_NOT}
    graph = load(EXAMPLES / "gpt2_training_step.json")
    after = prepared_reuse(graph, Preparation(early_updates=True)).graph
    assert freed[Rewrote.RETURNED_NOT] == len(graph.outputs) - len(after.outputs) > 0


def test_nothing_is_rewritten_in_the_same_graph_nor_in_another_one() -> None:
    plans = both("gpt2.json", Preparation())
    assert rewritten_ops(*plans) == ()
    other = make_plan(load(EXAMPLES / "bert_base.json"), "greedy_by_size")
    assert rewritten_ops(plans[0], other) == ()
    assert rewritten_ops(make_plan(load(EXAMPLES / "teaching_gaps.csv"), "naive"), plans[0]) == ()


def test_words_table_and_json_say_it() -> None:
    compared = diff(*both("teaching_order.json", Preparation(reorder=True)))
    told = "the same 8 ops, rewritten: 2 moved"
    assert rewrite_sentence(compared, rewritten_of(compared)) == told
    assert told[1:] in diff_markdown(compared)
    assert [(each["what"], each["op"]) for each in diff_summary(compared)["rewritten"]] == [
        ("moved", "f"),
        ("moved", "g"),
    ]


def test_the_command_line_diffs_a_graph_with_what_fit_wrote(memplan, tmp_path: Path) -> None:
    source, plan = EXAMPLES / "teaching_order.json", tmp_path / "plan.json"
    assert memplan("fit", source, "--only", "reorder", "--save-plan", plan)[0] == 0
    shown = memplan("diff", source, plan)[1]
    assert "The same 8 ops, rewritten: 2 moved." in " ".join(shown.split())
    assert "what the rewrite did, by op" in shown
    assert "5 → 1" in shown
    values = json.loads(memplan("diff", source, plan, "--json")[1])
    assert values["rewritten"][0] == {
        "what": "moved", "op": "f", "kind": "linear", "base_step": 5, "head_step": 1, "tensor": "f",
        "bytes": 6144, "source": "",
    }  # fmt: skip
