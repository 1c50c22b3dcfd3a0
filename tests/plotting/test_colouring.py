"""What has which colour: the same in every graph, and scales of round numbers."""

import pytest

from memplan_engine import load, to_problem
from memplan_engine.graph import Op
from memplan_engine.plotting.colouring import (
    BLUE,
    CATEGORIES,
    COLOURINGS,
    MAGNITUDES,
    OTHER,
    RED,
    by_kind,
    by_lifetime,
    by_module_role,
    by_size,
)
from memplan_engine.plotting.figure_style import default_name, ink_on
from memplan_engine.problem import make_problem
from tests import ROOT
from tests.plotting.test_figures_export import contrast
from tests.support.graphs import make_graph

EXAMPLES = ROOT / "example_graphs"


def chain(*kinds, module="", size=1024):
    """One op of each kind after the other."""
    names = [f"t{i}" for i in range(len(kinds))]
    ops = [
        Op(f"op{i}", kind, tuple(names[i - 1 : i]), (names[i],), module=module)
        for i, kind in enumerate(kinds)
    ]
    return to_problem(make_graph(ops, dict.fromkeys(names, size), outputs=names[-1:]))


def colour_of(colouring, label):
    return colouring.palette[dict(colouring.legend)[label]]


@pytest.mark.parametrize("name", ["gpt2", "vit_b16", "resnet50", "bert_training_default"])
def test_an_op_kind_has_one_colour_in_every_graph(name):
    found = by_kind(to_problem(load(EXAMPLES / f"{name}.json")))
    for label, _ in found.legend:
        assert colour_of(found, label) == colour_of(by_kind(chain("aten.zzz", label, "aten.mul")), label)
    assert set(found.index.tolist()) <= {index for _, index in found.legend}


def test_kinds_of_one_model_can_be_told_apart_and_backward_is_near_forward():
    found = by_kind(
        chain("aten.addmm", "aten.mul", "aten.pow", "aten.tanh", "aten.add", "aten.tanh_backward")
    )
    assert len({colour_of(found, label) for label, _ in found.legend}) == 6
    assert colour_of(found, "aten.addmm") == CATEGORIES[BLUE]
    # The same kind as another exporter writes it.
    assert colour_of(by_kind(chain("MatMul")), "MatMul") == colour_of(by_kind(chain("aten.mm")), "aten.mm")


def test_a_module_role_has_one_colour_whatever_else_there_is():
    alone = by_module_role(chain("aten.linear", module="layers.0.mlp.up"))
    assert alone.legend == (("mlp", 0),)
    assert alone.palette[0] == CATEGORIES[BLUE]
    for name in ("gpt2", "vit_b16", "llama_7b"):
        found = by_module_role(to_problem(load(EXAMPLES / f"{name}.json")))
        assert colour_of(found, "mlp") == CATEGORIES[BLUE]
        assert colour_of(found, "attention") == CATEGORIES[RED]
    assert colour_of(by_module_role(chain("aten.eq")), "other") == OTHER


def test_the_default_is_what_is_known():
    names = {
        path: default_name(to_problem(load(EXAMPLES / path)))
        for path in ("gpt2.json", "vit_b16.json", "resnet50.json", "llama_7b.json", "teaching_view.json")
    }
    assert set(list(names.values())[:4]) == {"module role"}
    assert names["teaching_view.json"] == "op kind"
    assert default_name(make_problem([0], [1], [5])) == "size"


def test_sizes_are_on_a_scale_of_powers_of_two():
    def legend(*sizes):
        return [label for label, _ in by_size(make_problem([0] * len(sizes), [1] * len(sizes), sizes)).legend]

    assert legend(3, 5, 70) == ["≥ 2 B", "≥ 4 B", "≥ 64 B"]
    # What has a hundredth of the bytes or less is at the foot, and does not stretch the scale.
    assert legend(700, 2**12, 2**17, 2**21) == ["< 256 KiB", "≥ 2 MiB"]
    assert legend(64, *[2**12] * 900, *[2**17] * 30, 2**21) == ["< 16 KiB", "≥ 64 KiB", "≥ 1 MiB"]
    assert legend(8, 2**20, 3 * 2**20, 12 * 2**20) == ["< 2 MiB", "≥ 2 MiB", "≥ 8 MiB"]
    assert legend(0, 0) == ["≥ 0 B"]
    assert legend() == []


def test_a_scale_reaches_from_the_darkest_to_the_lightest():
    found = by_lifetime(make_problem([0, 0, 0], [1, 3, 900], [1, 1, 1]))
    assert found.legend == (("≥ 1 step", 0), ("≥ 100 steps", 2))
    found = by_lifetime(make_problem([0, 0], [2, 3], [1, 1]))
    assert found.legend == (("≥ 2 steps", 0), ("≥ 3 steps", 1))
    found = by_lifetime(make_problem([0, 0, 0], [1, 3, 12], [1, 1, 1]))
    assert found.legend == (("≥ 1 step", 0), ("≥ 2 steps", 1), ("≥ 10 steps", 3))
    assert (found.palette[0], found.palette[-1]) == (MAGNITUDES[0], MAGNITUDES[-1])


def test_words_can_be_read_on_every_colour():
    gpt2 = to_problem(load(EXAMPLES / "bert_training_default.json"))
    for colouring in COLOURINGS.values():
        for pair in colouring(gpt2).palette:
            for colour in pair:
                assert contrast(colour, ink_on(colour)) >= 4.5
