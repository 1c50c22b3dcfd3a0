"""A model exported for a static runtime: with plain sizes, or with dynamic ones that each call settles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.runtime.program import (
    Program,
    exported_placeholders,
    exported_writes,
    exporting,
    load_program,
    program_from_module,
    state_names,
)
from memplan_engine.runtime.signature import Expected, call_form, check_inputs, expected_input, flatten_call
from memplan_engine.runtime.static.static_settle import settle
from memplan_engine.runtime.static.static_sizes import Symbols
from memplan_engine.torch_capture.capture_module import broken_constraints, fake_inputs
from memplan_engine.torch_capture.torch_dims import parse_dynamic, torch_dynamic_shapes
from memplan_engine.torch_capture.torch_exporting import export_as_eager
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode
from memplan_engine.torch_capture.torch_run import is_transform

if TYPE_CHECKING:
    from torch.export import ExportedProgram


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

    def settled(self, leaves: Sequence[Any]) -> Program:
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
        found = settle(program.module, flat, count, self.name)
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
    if not isinstance(model, torch.nn.Module):
        raise InputError(label, "model", f"a {type(model).__name__}", "a torch.nn.Module")
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        found = f"{type(args).__name__} and {type(kwargs).__name__}"
        raise InputError(label, "args and kwargs", found, "a tuple and a dict")
    texts = [dynamic_shapes] if isinstance(dynamic_shapes, str) else dynamic_shapes
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(text, str) for text in texts):
        dynamic_shapes = torch_dynamic_shapes(parse_dynamic(texts, label), model, args, kwargs, label)
    return _dynamic(_exported(model, args, kwargs, dynamic_shapes, label), model, label)


def _exported(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any, label: str
) -> ExportedProgram:
    try:
        with exporting(label), torch.no_grad():
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
            if any(is_transform(node) for node in exported.graph.nodes):
                exported = exported.run_decompositions({})
            return exported
    except InputError as error:
        if error.__cause__ and (reasons := broken_constraints(error.__cause__)):
            expected = "dimensions that the model leaves free"
            raise InputError(label, "dynamic_shapes", reasons, expected) from error
        raise


def _dynamic(exported: ExportedProgram, model: torch.nn.Module, name: str) -> Export:
    """The Export of a program with symbols. Its `program` can be called only when it is settled; its Graph
    is a stub."""
    placeholders, state, given = exported_placeholders(exported, name)
    call = exported.call_spec
    program = Program(
        name,
        exported.graph_module,
        _stub(name),
        state,
        placeholders,
        tuple(expected_input(one, None) for one, _ in given),
        exported_writes(exported),
        call_form(model, call.in_spec),
        call.out_spec,
        state_names(exported),
    )
    ranges = {symbol: (bounds.lower, bounds.upper) for symbol, bounds in exported.range_constraints.items()}
    return _export(program, tuple(value for _, value in given), Symbols(ranges))


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


def _stub(name: str) -> Any:
    from memplan_engine.graph import Graph

    return Graph(name, (), (), (), (), (), ())
