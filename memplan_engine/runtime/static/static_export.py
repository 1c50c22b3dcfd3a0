"""A model exported for a static runtime: with plain sizes, or dynamic ones that are plain in each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.runtime.program import (
    Program,
    check_call,
    load_program,
    program_and_inputs,
    program_from_module,
)
from memplan_engine.runtime.signature import Expected, call_form, check_inputs, flatten_call
from memplan_engine.runtime.static.static_sizes import Symbols
from memplan_engine.runtime.static.static_specialise import specialise
from memplan_engine.torch_capture.capture_module import dynamic_shapes_of, exporting, fake_inputs
from memplan_engine.torch_capture.torch_exporting import export_as_eager
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode
from memplan_engine.torch_capture.torch_graph import plain_operators

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def call_of(
    inputs: Sequence[Any] | Mapping[str, Any], kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`inputs` as positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(kwargs or {})}
    if not isinstance(inputs, (tuple, list)) or not isinstance(kwargs or {}, Mapping):
        found = f"{type(inputs).__name__} and {type(kwargs).__name__}"
        raise InputError("static runtime", "inputs", found, "a tuple of arguments or a dict of them by name")
    return tuple(inputs), dict(kwargs or {})


def returned(program: Program, values: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """What `forward` returns, of the flat outputs `values`."""
    if program.written.count(None) != len(program.written):
        return program.outputs(values, [*program.state, *leaves])
    if program.out_spec.is_leaf():
        return values[0]
    return pytree.tree_unflatten(values, program.out_spec)


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A captured model. `program` is that of the example inputs; `values` are the flat inputs as captured
    (fake tensors, with symbolic sizes where `symbols` has any, and plain values). Where all arguments are
    tensors, `plain` is how many there are, if all are given by place, and `named` are their names (`names`
    the same as a set), if all are given by name."""

    program: Program
    values: tuple[Any, ...]
    symbols: Symbols
    plain: int | None
    named: tuple[str, ...]
    names: frozenset[str]

    @property
    def name(self) -> str:
        """The model's."""
        return self.program.name

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call. Raises InputError for one of another form."""
        # The usual calls, without a walk through nested forms.
        if self.plain is not None and not kwargs and len(args) == self.plain == _count(args):
            return list(args)
        if (
            self.named
            and not args
            and kwargs.keys() == self.names
            and len(self.named) == _count(kwargs.values())
        ):
            return [kwargs[name] for name in self.named]
        return flatten_call(self.program.form, self.name, args, kwargs)

    def specialised(self, leaves: Sequence[Any]) -> Program:
        """The program for inputs of the sizes of `leaves`, in which all sizes are plain numbers and what
        depends on no input or weight is worked out already: further constants of its `state`.

        Raises
        ------
        InputError: inputs that `forward`, as it was captured, would not take; sizes that depend on the data.
        """
        expected = self._expected(leaves)
        check_inputs(expected, leaves, self.name)
        program = self.program
        count = len(program.state)
        flat = [*program.state, *leaves]
        found = specialise(program.module, flat, count, self.name)
        whole = [*program.state, *found.constants, *leaves]
        count += len(found.constants)
        made = program_from_module(found.module, whole, state=count, name=self.name, graph=found.graph)
        return replace(
            made, expected=expected, written=program.written, form=program.form, out_spec=program.out_spec
        )

    def _expected(self, leaves: Sequence[Any]) -> tuple[Expected, ...]:
        """What each input must be, given the sizes that the dynamic dimensions have here."""
        if not self.symbols.ranges:
            return self.program.expected
        names = [one.name for one in self.program.expected]
        numbers = self.symbols.solve(names, self.values, leaves, self.name)
        return tuple(
            Expected(
                name,
                self.symbols.numbers(value.shape, numbers),
                value.dtype,
                value.device,
                self.symbols.numbers(value.stride(), numbers),
            )
            if isinstance(value, torch.Tensor)
            else Expected(name, value=value)
            for name, value in zip(names, self.values, strict=True)
        )


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> Export:
    """Export `model(*args, **kwargs)`; `dynamic_shapes` as `capture` takes them.

    Raises
    ------
    InputError: as `load_program` does; a dimension that the model does not leave free.
    """
    if dynamic_shapes is None:
        program = load_program(model, args, kwargs, name=name)
        nodes = program.module.graph.find_nodes(op="placeholder")[len(program.state) :]
        return _export(program, tuple(node.meta.get("val") for node in nodes), Symbols({}))
    label = name or type(model).__name__
    check_call(model, args, kwargs, label)
    shapes = dynamic_shapes_of(dynamic_shapes, model, args, kwargs, label)
    with exporting(label, dynamic=True), torch.no_grad():
        # Dataclasses among the inputs are made known to torch.export on the way.
        fake_inputs((list(args), dict(kwargs)), FakeTwins(fake_mode()))
        # No values of the example inputs: other calls bring other ones, and other sizes.
        exported, _ = export_as_eager(
            model,
            tuple(args),
            dict(kwargs),
            ((), {}),
            label,
            dynamic_shapes=shapes,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        return _dynamic(plain_operators(exported), model, label)


def _dynamic(exported: ExportedProgram, model: torch.nn.Module, name: str) -> Export:
    """The Export of a program with symbols. Its `program` can be called only once it is specialised; its
    Graph is a stub."""
    form = call_form(model, exported.call_spec.in_spec)
    program, given = program_and_inputs(exported, Graph(name, (), (), (), (), (), ()), name, form)
    ranges = {symbol: (bounds.lower, bounds.upper) for symbol, bounds in exported.range_constraints.items()}
    return _export(program, given, Symbols(ranges))


def _export(program: Program, values: tuple[Any, ...], symbols: Symbols) -> Export:
    positional, keywords = program.form.spec.children()
    tensors = _count(values) == len(values)
    flat = tensors and all(one.is_leaf() for one in (*positional.children(), *keywords.children()))
    names = tuple(map(str, keywords.context or ()))
    plain = positional.num_children if flat and not names else None
    named = names if flat and not positional.num_children else ()
    return Export(program, values, symbols, plain, named, frozenset(names))


def _count(values: Iterable[Any]) -> int:
    """How many of `values` are tensors."""
    return sum(1 for value in values if isinstance(value, torch.Tensor))
