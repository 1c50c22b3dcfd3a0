"""Who is to blame for a peak: by hand, to the byte; and parts that sum to the change for any two graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from memplan_engine import Graph, Op, SolveLimits, adopt, make_plan, make_problem, to_problem
from memplan_engine.diffing.culprits import Culprit, Explanation, Fate, explain
from memplan_engine.diffing.moment import Cause
from memplan_engine.diffing.regression import Diff, diff
from memplan_engine.graph import Source
from memplan_engine.reporters.diff_culprits import story
from memplan_engine.reporters.diff_markdown import diff_markdown
from memplan_engine.reporters.diff_tables import diff_summary, diff_tables
from tests.support.graphs import graphs, make_graph


def op(line: int, name: str, *reads: str, module: str = "") -> Op:
    """`name` made from `reads` in this line of net.py."""
    return Op(
        name, name.rstrip("0123456789_"), reads or ("x",), (name,), (), module, Source("src/net.py", line)
    )


def net(*ops: Op, outputs: tuple[str, ...] = (), **sizes: int) -> Graph:
    """A graph of these ops, whose last one is returned unless `outputs` says otherwise."""
    return make_graph(ops, {"x": 8, **sizes}, inputs=("x",), outputs=outputs or ops[-1].outputs)


def compared(base: Graph, head: Graph) -> Diff:
    problems = (to_problem(graph, alignment=1) for graph in (base, head))
    return diff(*(make_plan(problem, "exact", limits=SolveLimits(nodes=100_000)) for problem in problems))


def told(base: Graph, head: Graph) -> tuple[Explanation, tuple[str, ...]]:
    """Who is to blame, and the sentences; the parts are checked to sum to the change."""
    found = compared(base, head)
    explained = explain(found)
    assert sum(culprit.nbytes for culprit in explained.culprits) + explained.elsewhere == found.demand_delta
    assert explained.delta == found.demand_delta
    return explained, story(found, explained)


def seen(culprit: Culprit) -> tuple[Cause, Fate | None, int, str, list[str]]:
    names = [held.name for held in culprit.buffers]
    return culprit.cause, culprit.fate, culprit.nbytes, str(culprit.source or ""), names


SIZES = {"a": 10, "b": 20, "c": 20, "d": 5}
#   steps      0   1   2   3        live: 10, 30, 40, 25
BASE = net(op(1, "a"), op(2, "b", "a"), op(3, "c", "b"), op(4, "d", "c"), **SIZES)


def test_a_new_reader_at_the_end_is_named_with_its_line_and_the_one_before_it():
    cat = op(9, "cat", "d", "a")
    explained, sentences = told(BASE, net(*BASE.ops, cat, **SIZES, cat=15))
    assert [seen(each) for each in explained.culprits] == [
        (Cause.LONGER, Fate.LAST_READER, 10, "src/net.py:9", ["a"])
    ]
    held = explained.culprits[0].largest
    assert (held.base_holder.op.name, held.base_holder.step) == ("b", 1)
    assert (held.head_holder.op.name, held.head_holder.step) == ("cat", 4)
    assert sentences == (
        "peak +10 B, 40 B → 50 B: +10 B because cat (net.py:9) now reads a (net.py:1) last; "
        "before, b (net.py:2) read a last",
    )


def test_several_tensors_that_one_line_reads_are_one_culprit():
    layers = [op(1, "h"), *(op(2, f"h_{n}", "h" if n == 1 else f"h_{n - 1}") for n in range(1, 7))]
    sizes = {"h": 10, **{f"h_{n}": 10 for n in range(1, 7)}}
    cat = op(21, "cat", "h_1", "h_2", "h_3", "h_4", "h_5", "h_6")
    explained, sentences = told(net(*layers, **sizes), net(*layers, cat, **sizes, cat=1))
    # At cat six of 10 bytes and its own; h_5 and h_6 were live in base's last step, too.
    assert [seen(each) for each in explained.culprits] == [
        (Cause.LONGER, Fate.LAST_READER, 40, "src/net.py:21", ["h_1", "h_2", "h_3", "h_4"]),
        (Cause.NEW, None, 1, "src/net.py:21", ["cat"]),
    ]
    assert sentences == (
        "peak +41 B, 20 B → 61 B: +40 B because cat (net.py:21) now reads 4 tensors of net.py:2 last; "
        "before, h_2 (net.py:2) read h_1 last",
        "+1 B because cat (net.py:21) is new",
    )


def test_a_tensor_that_is_returned_now_and_the_way_back():
    head = replace(BASE, outputs=("d", "a"))
    head = replace(
        head, storages=tuple(replace(s, role="output") if s.name == "a" else s for s in head.storages)
    )
    explained, sentences = told(BASE, head)
    assert [seen(each) for each in explained.culprits] == [
        (Cause.LONGER, Fate.RETURNED, 10, "src/net.py:1", ["a"])
    ]
    assert sentences == (
        "peak +10 B, 40 B → 50 B: +10 B because a (net.py:1) is now returned and so held to the end; "
        "before, b (net.py:2) read a last",
    )
    _, back = told(head, BASE)
    assert back == (
        "peak −10 B, 50 B → 40 B: −10 B because a (net.py:1) is no longer returned; b (net.py:2) now reads "
        "a last",
    )


def test_a_larger_shape_and_another_dtype():
    larger = replace(
        BASE, storages=tuple(replace(s, nbytes=s.nbytes + 7 * (s.name == "b")) for s in BASE.storages)
    )
    larger = replace(
        larger,
        tensors=tuple(replace(t, nbytes=27, shape=(27,)) if t.name == "b" else t for t in larger.tensors),
    )
    explained, sentences = told(BASE, larger)
    assert [seen(each) for each in explained.culprits] == [(Cause.LARGER, None, 7, "src/net.py:2", ["b"])]
    assert sentences == (
        "peak +7 B, 40 B → 47 B: +7 B because b (net.py:2) is larger: uint8 [20] → uint8 [27]",
    )
    wider = replace(
        larger,
        tensors=tuple(replace(t, dtype="int16", shape=(20,)) if t.name == "b" else t for t in larger.tensors),
    )
    explained, sentences = told(BASE, wider)
    assert [seen(each) for each in explained.culprits] == [(Cause.LARGER, None, 7, "src/net.py:2", ["b"])]
    assert sentences[0].endswith("+7 B because b (net.py:2) is larger: uint8 [20] → int16 [20]")


def test_a_new_op_and_an_op_that_is_gone():
    norm = op(7, "norm", "c")
    head = net(*BASE.ops[:3], norm, op(4, "d", "norm"), **SIZES, norm=30)
    explained, sentences = told(BASE, head)
    # At norm: c 20 and norm 30. Base held most at c, with b; b lives as long as it did and is not to blame.
    assert [seen(each) for each in explained.culprits] == [
        (Cause.NEW, None, 30, "src/net.py:7", ["norm"]),
        (Cause.SHORTER, Fate.STEP, -20, "src/net.py:2", ["b"]),
    ]
    assert sentences == (
        "peak +10 B, 40 B → 50 B: +30 B because norm (net.py:7) is new",
        "−20 B because b (net.py:2) is in use at step 2 (c) of base, not at step 3 (norm) of head",
    )
    explained, sentences = told(head, BASE)
    assert sentences == (
        "peak −10 B, 50 B → 40 B: −30 B because norm (net.py:7) is gone",
        "+20 B because b (net.py:2) is in use at step 2 (c) of head, not at step 3 (norm) of base",
    )


def test_another_order_of_the_same_ops():
    sizes = {"a": 30, "b": 5, "c": 30, "d": 1}
    a, b, c, d = op(1, "a"), op(2, "b", "a"), op(3, "c"), op(4, "d", "b", "c")
    explained, sentences = told(net(a, b, c, d, **sizes), net(a, c, b, d, **sizes))
    assert [seen(each) for each in explained.culprits] == [
        (Cause.LONGER, Fate.MADE, 30, "src/net.py:3", ["c"])
    ]
    assert sentences == (
        "peak +29 B, 36 B → 65 B: +30 B because c (net.py:3) is made earlier",
        "−1 B because base holds 35 B at step 1 (b) and peaks elsewhere, 36 B at step 3 (d)",
    )


def test_a_last_reader_that_runs_later():
    # At c, a is not freed yet, since b runs behind it; b itself holds less than c.
    sizes = {"a": 30, "b": 5, "c": 30, "e": 9, "d": 1}
    a, b, c, e = op(1, "a"), op(2, "b", "a"), op(3, "c"), op(5, "e", "c")
    d = op(4, "d", "b", "e")
    explained, sentences = told(net(a, b, c, e, d, **sizes), net(a, c, e, b, d, **sizes))
    assert [seen(each) for each in explained.culprits] == [
        (Cause.LONGER, Fate.FREED, 30, "src/net.py:1", ["a"]),
        (Cause.SHORTER, Fate.MADE, -5, "src/net.py:2", ["b"]),
    ]
    assert sentences == (
        "peak +25 B, 44 B → 69 B: +30 B because a (net.py:1) is freed later: its last reader, b (net.py:2), "
        "runs later",
        "−5 B because b (net.py:2) is made later",
    )


def test_packing_loss_alone_blames_the_planner_and_not_the_model():
    problem = make_problem([0, 1, 2], [2, 3, 4], [10, 20, 5], names=["a", "b", "c"])
    found = diff(adopt(problem, np.array([0, 10, 0])), adopt(problem, np.array([0, 16, 0])))
    assert story(found, explain(found)) == (
        "peak unchanged at 30 B",
        "packing loss +6 B, 0 B → 6 B: that is the planner's doing, not the model's",
    )


def test_nothing_changed():
    explained, sentences = told(BASE, BASE)
    assert (explained.culprits, explained.elsewhere, explained.second) == ((), 0, None)
    assert sentences == ("nothing changed: the peak is 40 B on both sides",)


def test_a_second_peak_that_grew_beneath_the_first_is_reported():
    # The peak, 100 bytes at big2, stays; behind it 40 bytes at e become 90 for a tensor that lives on.
    sizes = {"big1": 50, "big2": 50, "k": 5, "e": 30, "f": 30, "g": 1}
    ops = [
        op(1, "big1"),
        op(2, "big2", "big1"),
        op(3, "k", "big2"),
        op(4, "e", "k"),
        op(5, "f", "e"),
        op(6, "g", "f"),
    ]
    head = [*ops[:-1], op(6, "g", "f", "k")]
    for size in (2, 25):
        explained, sentences = told(net(*ops, **sizes | {"k": size}), net(*head, **sizes | {"k": size}))
        assert explained.delta == 0
        assert explained.second.moment.head_bytes == 60 + size
        assert explained.second.delta == size
        assert sentences == (
            "peak unchanged at 100 B",
            f"another peak grew: step 4 (f) +{size} B to {60 + size} B, {40 - size} B below the peak; "
            f"+{size} B because g (net.py:6) now reads k (net.py:3) last; before, e (net.py:4) read k last",
        )


def test_two_strangers_get_no_because():
    other = net(op(1, "q"), op(2, "r", "q"), q=1000, r=900)
    found = compared(BASE, other)
    sentences = story(found, explain(found))
    assert not found.related
    assert sentences[0].endswith("; the two have too little in common to say why")
    assert "because" not in " ".join(sentences)


def test_lists_of_buffers_say_until_when_and_no_more():
    base = make_problem([0, 1, 2], [2, 3, 4], [10, 20, 5], names=["in", "mid", "out"])
    head = make_problem([0, 1, 2], [3, 3, 4], [10, 20, 5], names=["in", "mid", "out"])
    found = diff(make_plan(base, "naive"), make_plan(head, "naive"))
    assert story(found, explain(found))[:2] == (
        "peak +5 B, 30 B → 35 B: +10 B because in is freed later: last in use at step 2, before at step 1",
        "−5 B because base holds 25 B at step 2 and peaks elsewhere, 30 B at step 1",
    )


def test_the_sentence_of_the_command_line_the_comment_and_the_json_is_one():
    found = compared(BASE, net(*BASE.ops, op(9, "cat", "d", "a"), **SIZES, cat=15))
    (sentence,) = story(found, explain(found))
    assert diff_summary(found)["explanation"]["sentences"] == [sentence]
    shown = f"P{sentence[1:]}."
    assert shown in [str(part) for part in diff_tables(found)]
    assert "**Peak +10 B, 40 B → 50 B: +10 B because cat (net.py:9) now reads a" in diff_markdown(found)
    told = diff_summary(found)["explanation"]
    assert (
        told["delta_bytes"] == sum(each["delta_bytes"] for each in told["culprits"]) + told["elsewhere_bytes"]
    )
    assert told["culprits"][0]["buffers"][0]["base_last"] == {
        "step": 1,
        "op": "b",
        "source": "src/net.py:2",
        "returned": False,
    }


@given(graphs(), graphs())
def test_the_parts_sum_to_the_change_for_any_two_graphs(base: Graph, head: Graph):
    for one, other in ((base, head), (head, base), (base, base)):
        explained, sentences = told(one, other)
        assert sentences
        second = explained.second
        if second:
            assert sum(culprit.nbytes for culprit in second.culprits) == second.delta > 0
            assert second.moment.head_bytes <= compared(one, other).head_load.peak


def branched(*ops: Op, **sizes: int) -> Graph:
    """A graph in which `cond` makes its result, 8 bytes, in one branch from the 10 bytes of `a`, and in the
    other from the last of `ops`."""
    made = Op("other", "make", (ops[-1].name if ops else "a",), ("r_false",), within=(("cond", "false"),))
    inside = (replace(each, within=(("cond", "false"),)) for each in ops)
    return make_graph(
        (
            op(1, "a"),
            Op("one", "make", ("a",), ("r_true",), within=(("cond", "true"),)),
            *inside,
            made,
            Op("cond", "cond", ("a", "r_false"), ("r",)),
            op(3, "y", "r"),
        ),
        {"x": 8, "a": 10, "r": 8, "y": 5, **sizes},
        views={"r_true": "r", "r_false": "r"},
        inputs=("x",),
        outputs=("y",),
    )


def test_a_branch_that_grew_is_to_blame_and_the_result_of_the_other_is_not_counted_in_it():
    """Live bytes are 10, 18, 18, 18, 13 in base, and 10, 18, 60, 80, 38, 18, 13 in head: the result is not
    there from the end of the first branch until the second makes it."""
    head = branched(op(2, "w1", "a"), op(2, "w2", "w1"), w1=50, w2=20)
    found = compared(branched(), head)
    assert (found.base.problem.name, found.demand_delta) == ("net", 80 - 18)
    explained, _ = told(branched(), head)
    changes = {(*(held.name for held in each.buffers),): each.nbytes for each in explained.culprits}
    assert changes == {("w1", "w2"): 70, ("r",): -8}
