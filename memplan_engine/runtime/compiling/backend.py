"""The backend `memplan` of `torch.compile`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._functorch import aot_autograd as aot_module
from torch._functorch._aot_autograd import graph_capture
from torch._guards import CompileContext
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.reuse.transform import reuse
from memplan_engine.runtime.compiling.compile_options import CompileOptions, read_options
from memplan_engine.runtime.compiling.compiled_graphs import CompiledGraph, note_compiled
from memplan_engine.runtime.compiling.joint_halves import check_plain, cut, peak_of_halves, saved_bytes_of
from memplan_engine.runtime.compiling.op_schedule import OpSchedule, schedule_ops, with_unknown_once
from memplan_engine.runtime.compiling.random_ops import as_eager_draws, drawing_nodes
from memplan_engine.runtime.program import program_from_module
from memplan_engine.runtime.slab.fitted_program import fitted_program
from memplan_engine.torch_capture.torch_fake import patched, quiet
from memplan_engine.torch_capture.torch_run import brief
from memplan_engine.torch_capture.torch_source import source_of
from memplan_engine.units import exact

FIXED = "a model of fixed sizes: torch.compile(…, dynamic=False)"
CHECKPOINTS = (
    "its checkpoints (torch.utils.checkpoint) are not followed: a capacity or a budget says what runs again"
)
log = logging.getLogger(__name__)


def memplan_backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="memplan", options={…})` runs instead of Dynamo's graph `module`:
    the same kernels on the same values as in eager mode, in an order with fewer live bytes, written in place
    where that is proved to change nothing, and, where a `capacity` or `budget` asks for it, with ops that run
    again instead of having their results kept.

    What cannot be made so runs as Dynamo gave it; a warning says why, and `compiled_graphs` has it.

    Raises
    ------
    OptionError: options that cannot be read; `read_options`.
    """
    asked = read_options(options)
    compilation = _Compilation(asked, _name(module))
    try:
        _check_inputs(compilation.name, inputs)
        with _as_eager():
            compiled: Callable[..., Any] = compilation.compile(module, inputs)
    except TensorifyScalarRestartAnalysis:
        # Dynamo's own way of asking for the graph once more.
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, MemplanError) else brief(error)
        compilation.graphs = [CompiledGraph(compilation.name, reason=reason)]
        log.warning("%s: runs as it is: %s", compilation.name, reason)
        compiled = module.forward
    for graph in compilation.graphs:
        note_compiled(graph)
        if asked.on_report is not None:
            asked.on_report(graph)
    return compiled


@dataclass(slots=True)
class _Compilation:
    """One graph of Dynamo's on its way."""

    options: CompileOptions
    name: str
    graphs: list[CompiledGraph] = field(default_factory=list)

    def compile(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiler = aot_autograd(
            fw_compiler=boxed_nop,
            bw_compiler=boxed_nop,
            inference_compiler=self.infer,
            partition_fn=self.partition,
            decompositions=as_eager_draws(),
        )
        compiled: Callable[..., Any] = compiler(module, inputs)
        return compiled

    def infer(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        """What runs the graph of an inference."""
        with _aside():
            check_plain(module, self.name)
            values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
            program = program_from_module(module, values, name=self.name)
            schedule = schedule_ops(
                with_unknown_once(program.graph, drawing_nodes(module)), self.options, in_place=True
            )
            program = fitted_program(program, reuse(schedule.graph, concat=False).graph)
            found = self.report(schedule, peak_after=peak_in_order(program.graph))
        self.tell(found)
        return boxed_nop(program.module, list(inputs))

    def partition(
        self, joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[GraphModule, GraphModule]:
        """The forward and the backward graph of a training pass, as AOTAutograd asks for them."""
        with _aside():
            joint.graph.eliminate_dead_code()
            asked = self.options.capacity or self.options.budget
            if not asked and any(node.meta.get("recompute") for node in joint.graph.nodes):
                log.warning("%s: %s", self.name, CHECKPOINTS)
            forward, backward, schedule = cut(joint, num_fwd_outputs, self.options, self.name)
            forward, backward = (written_in_place(each, self.name) for each in (forward, backward))
            peak = peak_of_halves(forward, backward, num_fwd_outputs, self.name)
            saved = saved_bytes_of(forward, num_fwd_outputs)
            found = self.report(schedule, training=True, peak_after=peak, saved_bytes=saved)
        self.tell(found)
        return forward, backward

    def report(self, schedule: OpSchedule, **more: Any) -> CompiledGraph:
        """What there is to be told of `schedule`, and `more` of the graph that follows it."""
        return CompiledGraph(
            self.name,
            ops=len(schedule.graph.ops),
            peak_before=schedule.before,
            again=schedule.again,
            extra_seconds=schedule.extra_seconds,
            seconds=schedule.seconds,
            capacity=schedule.capacity,
            least_bytes=schedule.least_bytes,
            **more,
        )

    def tell(self, graph: CompiledGraph) -> None:
        """Note what became of `graph`, and warn of a capacity that it does not keep to."""
        self.graphs.append(graph)
        if not graph.is_within and graph.capacity is not None:
            needed = f", and every schedule needs {exact(graph.least_bytes)}" if graph.least_bytes else ""
            log.warning("%s; the capacity is %s%s", graph, exact(graph.capacity), needed)


def written_in_place(module: GraphModule, name: str) -> GraphModule:
    """`module` with ops that write over what nobody needs any more: what it makes itself and does not
    return. Each write is checked."""
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    program = program_from_module(module, values, name=name)
    return fitted_program(program, reuse(program.graph, concat=False).graph).module


def _name(module: GraphModule) -> str:
    """Dynamo's compile id of the graph, and the line where it begins in the user's code."""
    compiled = CompileContext.current_compile_id()
    sources = (source_of(node.meta.get("stack_trace")) for node in module.graph.nodes)
    line = next((source for source in sources if source is not None), None)
    return f"graph {compiled or '?'}" + (f" ({line})" if line else "")


def _check_inputs(name: str, inputs: Sequence[Any]) -> None:
    """Raise InputError for sizes that are not fixed and for tensors that are made of others."""
    for value in inputs:
        sizes = [value, *(value.shape if isinstance(value, torch.Tensor) else ())]
        if symbol := next((size for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat)), None):
            raise InputError(name, "inputs", f"a size that may change, {symbol}", FIXED)
        if hasattr(value, "__tensor_flatten__"):
            raise InputError(name, "inputs", f"a {type(value).__name__}", "plain tensors")


@contextmanager
def _aside() -> Iterator[None]:
    """For what looks at a graph while AOTAutograd, and maybe somebody else, listens to all operators."""
    with _disable_current_modes(), quiet():
        yield


@contextmanager
def _as_eager() -> Iterator[None]:
    """With AOTAutograd tracing what the dispatcher runs in eager mode. Torch has decompositions in Python for
    some operators (dropout, matmul, interpolate and others), for the sake of symbolic sizes; their kernels
    give other last digits, and hold other bytes."""
    name, nothing = "enable_python_dispatcher", nullcontext
    with patched((aot_module, name, nothing), (graph_capture, name, nothing)):
        yield
