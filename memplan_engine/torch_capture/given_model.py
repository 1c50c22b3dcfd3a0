"""A model as somebody hands it over, a module, a factory, an exported program or a graph, as a Graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_factory import (
    Built,
    build_factory,
    capture_factory,
    capture_training_factory,
)
from memplan_engine.torch_capture.torch_graph import graph_from_exported
from memplan_engine.torch_capture.training.torch_recipe import Recipe
from memplan_engine.torch_capture.training.torch_step import capture_step

KINDS = (
    "a torch.nn.Module with its inputs, a factory (a function or 'package.module:function'), "
    "a torch.export.ExportedProgram or a Graph"
)


@dataclass(frozen=True, slots=True)
class GivenModel:
    """`model` is one of KINDS, `args` and `kwargs` are the example inputs of a module. `training` asks for a
    whole training step. `options` are those of the function that captures it: `capture`, `capture_step`,
    `capture_factory` or `capture_training_factory`."""

    model: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    training: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.model if isinstance(self.model, str) else type(self.model).__name__

    def graph(self) -> Graph:
        """It as a graph.

        Raises
        ------
        InputError: none of KINDS; inputs or options for what takes none; what the capture raises.
        """
        if isinstance(self.model, Graph):
            self._refuse_inputs(trained=self.training or bool(self.options))
            return self.model
        if self.is_module:
            take = capture_step if self.training else capture
            self._check_options(take)
            return take(self.model, self.args, self.kwargs, **self.options)
        if self.is_exported:
            self._refuse_inputs(trained=self.training or bool(self.options))
            return graph_from_exported(self.model, self.label)
        self._refuse_inputs()
        take_factory = capture_training_factory if self.training else capture_factory
        self._check_options(take_factory)
        return take_factory(self._factory, **self.options)

    def built(self) -> Built:
        """The module with its inputs; raises InputError for what has become a graph already."""
        if isinstance(self.model, Graph) or self.is_exported:
            raise InputError(self.label, "", "a graph", "a module or a factory: an eager run is asked for")
        if self.is_module:
            return Built(self.label, self.model, tuple(self.args), dict(self.kwargs))
        return build_factory(self._factory, weights=False)

    @property
    def is_module(self) -> bool:
        """Whether it is a module, made already."""
        import torch

        return isinstance(self.model, torch.nn.Module)

    @property
    def is_exported(self) -> bool:
        """Whether it is an exported program."""
        from torch.export import ExportedProgram

        return isinstance(self.model, ExportedProgram)

    @property
    def _factory(self) -> Any:
        if isinstance(self.model, str) or (callable(self.model) and not isinstance(self.model, type)):
            return self.model
        raise InputError(self.label, "model", f"a {type(self.model).__name__}", KINDS)

    def _check_options(self, take: Callable[..., Graph]) -> None:
        """Raise InputError for options that `take` does not have; those that it passes on are of a recipe."""
        taken = inspect.signature(take).parameters.values()
        known = [each.name for each in taken if each.kind is each.KEYWORD_ONLY]
        if any(each.kind is each.VAR_KEYWORD for each in taken):
            known += Recipe.__dataclass_fields__
        if unknown := [name for name in self.options if name not in known]:
            raise InputError(self.label, "options", unknown[0], f"one of {', '.join(known)}")

    def _refuse_inputs(self, trained: bool = False) -> None:
        if self.args or self.kwargs:
            raise InputError(self.label, "inputs", "some", "none: only a module is called with inputs")
        if trained:
            found = "training" if self.training else ", ".join(self.options)
            raise InputError(self.label, "options", found, "none: it is a graph already")
