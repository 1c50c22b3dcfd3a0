"""What a manifest says, and the one line for what it says wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memplan_engine.errors import MemplanError
from memplan_engine.preparation import Preparation
from memplan_engine.zoo.manifest import read_zoo
from memplan_engine.zoo.zoo_values import Manifest

WHOLE = """
project = "shop"
capacity = "2GiB"
strategies = ["auto", "naive"]
exclude = [{ batch = 8, dtype = ["bfloat16", "float16"] }]
[axes]
batch = [1, 8]
dtype = ["float32", "bfloat16"]
[options]
alignment = 512
[[models]]
name = "ranker"
factory = "nets.py:ranker(layers=4, batch=2)"
[[models]]
name = "trained"
factory = "pkg.nets:ranker"
training = "step"
axes = { dtype = [], optimizer = ["sgd", "adamw"], clip_grad_norm = [1.0] }
exclude = [{ batch = 1, optimizer = "adamw" }]
strategies = ["auto"]
options = { in_place = true }
"""


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(text: str) -> Manifest:
        path = tmp_path / "zoo.toml"
        path.write_text(text)
        return read_zoo(path)

    return read


def test_each_model_has_a_variant_for_each_combination_of_its_axes(read: Any) -> None:
    manifest = read(WHOLE)
    assert (manifest.project, manifest.capacity, manifest.device) == ("shop", 2 << 30, "")
    first = manifest.variants[:3]
    assert [each.text for each in first] == [
        "batch=1, dtype=float32",
        "batch=1, dtype=bfloat16",
        "batch=8, dtype=float32",
    ]
    assert [each.origin.factory for each in first] == [
        f"nets.py:ranker(layers=4, batch={batch}, dtype={dtype!r})"
        for batch, dtype in ((1, "float32"), (1, "bfloat16"), (8, "float32"))
    ]
    assert {each.strategies for each in first} == {("auto", "naive")}
    assert {each.how for each in first} == {Preparation(alignment=512)}


def test_a_model_has_axes_exclusions_strategies_and_options_of_its_own(read: Any) -> None:
    rest = read(WHOLE).variants[3:]
    assert [each.label for each in rest] == [
        "trained (batch=1, optimizer=sgd, clip_grad_norm=1.0)",
        "trained (batch=8, optimizer=sgd, clip_grad_norm=1.0)",
        "trained (batch=8, optimizer=adamw, clip_grad_norm=1.0)",
    ]
    # An axis that is called as a key of the model sets that, and is no argument.
    assert [each.origin.factory for each in rest] == [
        f"pkg.nets:ranker(batch={batch})" for batch in (1, 8, 8)
    ]
    assert rest[2].origin.training == "step"
    assert rest[2].origin.options == (("optimizer", "adamw"), ("clip_grad_norm", 1.0))
    assert rest[0].strategies == ("auto",)
    assert rest[0].how == Preparation(alignment=512, in_place=True)


def test_files_take_symbols_and_scripts_arguments(read: Any, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text("{}")
    (tmp_path / "train.py").write_text("")
    manifest = read(
        """
        capacity = "h200"
        [[models]]
        name = "encoder"
        file = "graph.json"
        axes = { seq = [128, 256] }
        [[models]]
        name = "parallel"
        script = "train.py"
        arguments = ["--tp", "{tp}", "--ranks={world}", "--plain"]
        axes = { tp = [1, 2], world = [2, 4] }
        exclude = [{ tp = 1, world = 4 }]
        """
    )
    encoder, parallel = manifest.variants[:2], manifest.variants[2:]
    assert manifest.device == "h200"
    assert manifest.capacity is not None
    assert manifest.capacity > 130 << 30
    assert [each.origin.symbols for each in encoder] == [(("seq", 128),), (("seq", 256),)]
    assert [(each.origin.world, each.origin.arguments) for each in parallel] == [
        (2, ("--tp", "1", "--ranks=2", "--plain")),
        (2, ("--tp", "2", "--ranks=2", "--plain")),
        (4, ("--tp", "2", "--ranks=4", "--plain")),
    ]
    assert {each.device for each in parallel} == {"h200"}


MODEL = '[[models]]\nname = "m"\nfactory = "n.py:f"\n'
WRONG = {
    "models = 3": ("key models", "3"),
    "x = [": ("", "at end of document"),
    "speed = 3\n" + MODEL: ("key speed", "one of project, capacity"),
    MODEL + "speed = 3": ("key models[0].speed", "one of name, factory"),
    MODEL + MODEL: ("key models[1].name", "'m' twice"),
    '[[models]]\nname = "m"': ("table models[0] (m)", "neither factory, file nor script"),
    MODEL + 'file = "g.json"': ("table models[0] (m)", "factory and file"),
    '[[models]]\nname = "m"\nfile = "g.json"': ("key models[0].file", "no such file"),
    '[[models]]\nname = "m"\nfactory = "n.py"': ("key models[0].factory", "package.module:function"),
    'capacity = "much"\n' + MODEL: ("key capacity", "or a device: "),
    'strategies = ["fast"]\n' + MODEL: ("key strategies", "'fast'"),
    "strategies = []\n" + MODEL: ("key strategies", "at least 1 item"),
    MODEL + "axes = { batch = 8 }": ("key models[0].axes.batch", "valid list"),
    MODEL + "axes = { batch = [[8]] }": ("key models[0].axes.batch[0]", "a list"),
    MODEL + "exclude = [{ batch = 8 }]": ("key models[0].exclude[0].batch", "no axis of that name"),
    MODEL + "axes = { b = [1] }\nexclude = [{ b = 1 }]": ("key models[0].exclude", "no variant"),
    MODEL + "options = { fast = true }": ("key models[0].options.fast", "one of alignment"),
    MODEL + 'options = { in_place = "maybe" }': ("key models[0].options.in_place", "a valid boolean"),
    MODEL + 'training = "fast"': ("key models[0].training", "'step' or 'joint'"),
    MODEL + 'axes = { training = ["fast"] }': ("key models[0].axes.training", "'step' or 'joint'"),
    MODEL + 'optimizer = "sgd"': ("key models[0].optimizer", 'training = "step"'),
    MODEL + "world = 8": ("key models[0].world", "no world of a factory"),
    MODEL + f"axes = {{ a = {list(range(400))}, b = {list(range(400))} }}": ("key models[0].axes", "100,000"),
    "": ("key models", "nothing"),
}


@pytest.mark.parametrize("text", WRONG, ids=[place for place, _ in WRONG.values()])
def test_what_is_wrong_is_told_with_its_file_and_key(read: Any, text: str) -> None:
    place, words = WRONG[text]
    with pytest.raises(MemplanError) as caught:
        read(text)
    told = str(caught.value)
    assert "zoo.toml: " + place in told
    assert words in told
    assert "\n" not in told


SCRIPT = '[[models]]\nname = "m"\nscript = "zoo.toml"\n'
WRONG_ARGUMENTS = {
    SCRIPT + 'arguments = ["{tp}"]': "{tp} in arguments",
    SCRIPT + "axes = { tp = [1] }": "an axis that no argument has",
    SCRIPT + 'arguments = ["{tp"]\naxes = { tp = [1] }': "'{tp'",
    SCRIPT + 'arguments = ["{tp!r}"]\naxes = { tp = [1] }': "names of axes in braces",
    SCRIPT + 'arguments = ["{tp.real}"]\naxes = { tp = [1] }': "names of axes in braces",
    '[[models]]\nname = "m"\nfile = "zoo.toml"\naxes = { seq = ["a"] }': "whole numbers",
}


@pytest.mark.parametrize("text", WRONG_ARGUMENTS)
def test_axes_and_arguments_have_the_same_names(read: Any, text: str) -> None:
    with pytest.raises(MemplanError, match="key models") as caught:
        read(text)
    assert WRONG_ARGUMENTS[text] in str(caught.value)


def test_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MemplanError, match="No such file"):
        read_zoo(tmp_path / "none.toml")
