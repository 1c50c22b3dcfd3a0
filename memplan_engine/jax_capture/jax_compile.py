"""`package.module:factory` → what XLA compiled of a JAX function, as a graph, beside what JAX says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.xla_dump.hlo_proto import read_parts
from memplan_engine.formats.xla_dump.xla_graph import XlaGraph
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.user_factory import call_factory, current_folder_on_path, find_factory

RETURNS = "(function, args), (function, args, kwargs) or (function, kwargs)"


class MemoryAnalysis(NamedTuple):
    """What JAX's `memory_analysis` says of a compiled function, bytes: temporaries, arguments, results, and
    of the results what is in donated arguments."""

    temporaries: int
    arguments: int
    results: int
    aliased: int


class JaxCapture(NamedTuple):
    """The graph of a compiled function, XLA's own plan of it, and what JAX says."""

    graph: Graph
    plan: Plan
    analysis: MemoryAnalysis


def capture_jax(spec: str, tell: Callable[[str], None] = lambda stage: None) -> JaxCapture:
    """Compile what the factory `spec` returns, a function and its arguments, which may be
    `jax.ShapeDtypeStruct`, for JAX's default device. Nothing is run. `tell` hears of each stage as it begins.

    Raises
    ------
    InputError: no such factory, an error in it, a wrong return value, a function that JAX cannot compile, or
        a device whose compiler says nothing of its memory.
    MissingDependencyError: jax is not installed.
    """
    tell("loading jax")
    try:
        import jax
    except ImportError:
        raise MissingDependencyError("jax", "jax", "capturing a JAX function") from None
    source = f"factory {spec}"
    with current_folder_on_path():
        function, args, kwargs = _unpack(source, call_factory(spec, find_factory(spec)))
        tell("compiling the function")
        with as_input_error(source, "", "a function that jax compiles", lines=True):
            jitted = function if hasattr(function, "lower") else jax.jit(function)
            compiled = jitted.lower(*args, **kwargs).compile()
    return captured(compiled, parse_factory(spec).function)


def captured(compiled: Any, name: str) -> JaxCapture:
    """The capture of a `jax.stages.Compiled` that errors call `name`; raises InputError as `capture_jax`."""
    found = compiled.memory_analysis()
    modules = compiled.runtime_executable().hlo_modules()
    assignment = getattr(found, "serialized_buffer_assignment_proto", b"")
    if not modules or not assignment:
        raise InputError(name, "", "no buffer assignment", "a device whose compiler tells it: the CPU")
    made = XlaGraph(read_parts(modules[0].as_serialized_hlo_module_proto(), assignment, name), name)
    analysis = MemoryAnalysis(
        found.temp_size_in_bytes,
        found.argument_size_in_bytes,
        found.output_size_in_bytes,
        found.alias_size_in_bytes,
    )
    return JaxCapture(made.graph, made.plan(), analysis)


def _unpack(source: str, built: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    parts = list(built) if isinstance(built, (tuple, list)) else [built]
    if len(parts) == 2 and isinstance(parts[1], Mapping):
        parts.insert(1, ())
    parts += [{}] * (len(parts) == 2)
    wrong = len(parts) != 3 or not callable(parts[0])
    if wrong or not isinstance(parts[1], (tuple, list)) or not isinstance(parts[2], Mapping):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise InputError(source, "return value", f"({kinds})", RETURNS)
    return parts[0], tuple(parts[1]), dict(parts[2])
