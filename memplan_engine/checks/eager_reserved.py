"""What PyTorch's caching allocator reserves in an eager run of a model, predicted without running it."""

from __future__ import annotations

from memplan_engine.allocator.answers import three_answers
from memplan_engine.torch_capture.given_model import GivenModel
from memplan_engine.torch_capture.training.torch_recipe import Recipe

RECIPE = tuple(Recipe.__dataclass_fields__)


def eager_reserved(given: GivenModel) -> int:
    """The most bytes that the allocator holds, under its own settings, while the model runs on fake tensors.

    Raises
    ------
    InputError: a graph, which says nothing of an eager run; what `observe_fake` and a factory raise.
    """
    built = given.built()
    # Here, not above: it needs torch, which somebody's graph does not.
    from memplan_engine.runtime.recorder.fake_run import observe_fake

    asked = {name: value for name, value in given.options.items() if name in RECIPE}
    recipe = built.recipe(asked) if given.training else None
    seen = observe_fake(built.model, built.args, built.kwargs, recipe=recipe, name=built.name)
    return three_answers(seen).reserved[1]
