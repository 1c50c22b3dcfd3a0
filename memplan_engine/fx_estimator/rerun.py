"""A re-run of an fx graph under fake tensors: what each node's value is, and which storages it shows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.torch_fake import FakeTwins, concrete, fake_mode, quiet, tensors_of
from memplan_engine.torch_capture.torch_kernels import as_on_cpu
from memplan_engine.torch_capture.torch_run import brief, fresh, is_higher_order

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, Node


@dataclass(slots=True)
class Rerun:
    """Values and storages of a run. Everything is kept alive, so that no storage is seen twice.

    values: node → what it gave.
    shown: node → identities of the storages in that value when it was made, each once, in order.
    nbytes: identity → bytes of the storage.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    shown: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    kept: list[torch.UntypedStorage] = field(default_factory=list)

    def note(self, node: Node, value: Any) -> None:
        """Take in what `node` gave."""
        storages = [leaf.untyped_storage() for leaf in tensors_of(value)]
        self.values[node] = value
        self.kept += storages
        self.shown[node] = tuple(dict.fromkeys(storage._cdata for storage in storages))
        self.nbytes |= {storage._cdata: concrete(storage.nbytes()) for storage in storages}


def rerun(graph: Graph, source: str, handed: Mapping[str, Any] | None = None) -> Rerun:
    """Run `graph` under fake tensors. A placeholder takes the value of its name in `handed`, else its
    `meta["val"]`; tensors that share a storage there share one here. Symbolic sizes take their hints.

    Raises
    ------
    InputError: a placeholder without a value, a node that fake tensors cannot run, a size that depends on
        the data.
    """
    import torch

    mode = fake_mode()
    twins = FakeTwins(mode)
    done = Rerun()

    class Interpreter(torch.fx.Interpreter):
        """Notes what each node gives, and says which node fails."""

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            """As ever, in the storages that CPU kernels allocate."""
            return as_on_cpu(target, super().call_function(target, args, kwargs), args, kwargs)

        def run_node(self, n: Node) -> Any:
            if n.op == "placeholder":
                value = _placeholder(n, source, handed or {}, twins)
            else:
                try:
                    with mode if n.op != "get_attr" else nullcontext():
                        value = super().run_node(n)
                except Exception as error:
                    found, expected = f"{n.target}: {brief(error)}", "an op that fake tensors can run"
                    raise InputError(source, f"node {n.name}", found, expected) from error
                if n.op == "get_attr":
                    value = twins.twin(value)
                elif is_higher_order(n):
                    value = fresh(value)
            try:
                done.note(n, value)
            except InputError as error:
                raise InputError(source, f"node {n.name}", error.found, error.expected) from None
            return value

    module = graph.owning_module or torch.nn.Module()
    interpreter = Interpreter(module, garbage_collect_values=False, graph=graph)
    interpreter.extra_traceback = False
    with torch.no_grad(), quiet():
        interpreter.run(enable_io_processing=False)
    return done


def _placeholder(node: Node, source: str, handed: Mapping[str, Any], twins: FakeTwins) -> Any:
    if node.name not in handed and "val" not in node.meta:
        raise InputError(source, f"node {node.name}", "no meta['val']", "a graph captured with fake values")
    value = handed[node.name] if node.name in handed else node.meta["val"]
    try:
        return twins.twin(value)
    except InputError as error:
        raise InputError(source, f"node {node.name}", error.found, error.expected) from None
