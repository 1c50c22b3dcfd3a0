"""Lay out the insides of torch's operators that call graphs: `cond`, `while_loop`, `scan`, `map` and
`flex_attention`.

Each is laid out as torch's eager implementation runs it: its ops come before the operator itself, and what it
keeps meanwhile is allocated by ops of their own. Of a loop the fullest turn is laid out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan_engine.graph import Op
from memplan_engine.torch_capture.torch_fake import concrete, patched
from memplan_engine.torch_capture.torch_run import (
    LayOut,
    Run,
    Slot,
    is_arithmetic_on_sizes,
    kind_of,
    labels,
)

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator in a run: `args` are its arguments, `results` what it gives."""

    run: Run
    name: str
    args: Slot
    results: Slot

    def argument(self, place: int) -> list[Slot]:
        """Return the parts of the argument at `place`, which is a list or a tuple."""
        return parts_of(Slot(self.args.value[place], self.args.names[place]))

    def graph(self, place: int, inputs: Sequence[Slot], branch: str, prefix: str = "") -> list[Slot]:
        """Run the graph at `place` on `inputs` as ops inside `branch`; return its results."""
        return self.module(self.args.value[place], inputs, branch, prefix)

    def module(
        self, module: GraphModule, inputs: Sequence[Slot], branch: str, prefix: str = ""
    ) -> list[Slot]:
        """Run `module` on `inputs` as ops inside `branch`; return its results."""
        with self.run.inside(self.name, branch):
            return parts_of(self.run.call(module, list(inputs), f"{self.name}.{prefix or branch}."))

    def op(
        self,
        label: str,
        kind: str,
        make: Callable[[], Any],
        reads: Sequence[Slot] = (),
        writes: Sequence[Slot] = (),
        branch: str = "body",
    ) -> list[Slot]:
        """Add an op inside `branch` that makes what `make` gives; return its results."""
        with self.run.mode:
            value = make()
        slot = self.run.keep(f"{self.name}.{label}", value)
        with self.run.inside(self.name, branch):
            self.run.add(
                Op(
                    f"{self.name}.{label}",
                    kind,
                    inputs=names_of((*reads, *writes)),
                    outputs=tuple(labels(slot.names)),
                    mutates=names_of(writes),
                )
            )
        return parts_of(slot)


@dataclass(frozen=True, slots=True)
class Laid:
    """A call laid out: `branches` has the results of each branch, which become those of the call; `held` are
    tensors that the call keeps until it ends."""

    branches: Sequence[Sequence[Slot]]
    held: Sequence[Slot] = ()


def cond(call: Call) -> Laid:
    """Lay out both branches."""
    operands = call.argument(3)
    return Laid([call.graph(place, operands, branch) for place, branch in ((1, "true"), (2, "false"))])


def while_loop(call: Call) -> Laid:
    """Lay out a turn that is not the first: the values before it are results of the one before."""
    import torch

    carried, others = call.argument(2), call.argument(3)
    given = tensors([slot.value for slot in parts_of(call.results)])

    def turn_before() -> list[torch.Tensor]:
        return [*(torch.empty_like(each) for each in given), torch.empty((), dtype=torch.bool)]

    *made, went_on = call.op("carried", "loop.carried", turn_before)
    fresh = iter(made)
    state = [next(fresh) if isinstance(slot.value, torch.Tensor) else slot for slot in carried]
    goes_on = call.graph(0, (*state, *others), "body", "cond")
    # The answer before is held until this one is there.
    call.run.hold(names_of([went_on]), call.run.ops[-1].name)
    results = call.graph(1, (*state, *others), "body")
    _resemble(call, state, results)
    return Laid([results], (*goes_on, *state))


def scan(call: Call) -> Laid:
    """Lay out a turn from the third on: results of the first and the second one are still held."""
    import torch

    carried, rows, others = call.argument(1), call.argument(2), call.argument(3)
    results = parts_of(call.results)
    carries, outs = results[: len(carried)], results[len(carried) :]
    turns = concrete(rows[0].value.shape[0]) if rows else 0
    if turns < 1:
        return Laid(())

    def row(slot: Slot) -> torch.Tensor:
        made: torch.Tensor = slot.value.new_empty(slot.value.shape[1:])
        return made

    def turn() -> list[Slot]:
        return call.graph(0, (*carried, *_first_of(call, rows), *others), "body")

    if turns > 1:
        first = call.op("first", "loop.first", lambda: [row(slot) for slot in outs])
        carried = call.op("carried", "loop.carried", lambda: [torch.empty_like(s.value) for s in carries])
    else:
        given = turn()
        first = given[len(carries) :]
    stacked = call.op("outs", "aten.empty", lambda: [slot.value.detach() for slot in outs])
    places = call.op(
        "places",
        "aten.ones_like",
        lambda: [torch.ones_like(row(slot), dtype=torch.int64).unsqueeze(0) for slot in outs],
    )
    if turns > 1:
        before = (
            call.op("previous", "loop.carried", lambda: [row(slot) for slot in outs]) if turns > 2 else []
        )
        given = turn()
        _resemble(call, carried, given)
        for held in (first, before):
            _resemble(call, held, given[len(carries) :])
        call.op("turn", "loop.turn", lambda: (), (*carried, *before, *given))
    for number, (slot, place, target) in enumerate(zip(given[len(carries) :], places, stacked, strict=True)):
        at = call.op(f"at_{number}", "aten.mul", partial(torch.mul, place.value, 0), [place])
        call.op(f"store_{number}", "aten.scatter_", lambda: (), (*at, slot), [target])
    return Laid([given[: len(carries)]], (*first, *places))


def map_rows(call: Call) -> Laid:
    """Lay out the last turn, in which the results of all others are held, to be stacked."""
    import torch

    rows, others = call.argument(1), call.argument(2)
    turns, first = rows[0].value.shape[0], len(call.run.ops)
    last = call.graph(0, (*_first_of(call, rows), *others), "body")
    made = {call.run.storages[name]: name for name in names_of(last) if call.run.is_made(name)}

    def most() -> list[torch.Tensor]:
        sizes = [(turns - 1) * call.run.nbytes(name) for name in made.values()]
        return [torch.empty(size, dtype=torch.uint8) for size in sizes]

    before = call.op("rows", "loop.rows", most)
    # They are there when the last turn begins.
    call.run.ops.insert(first, call.run.ops.pop())
    return Laid((), (*before, *last))


def _resemble(call: Call, held: Sequence[Slot], results: Sequence[Slot]) -> None:
    """Give what is held of other turns storages as those of the results of this one."""
    pairs = [
        (one.names, other.names)
        for one, other in zip(held, results, strict=False)
        if isinstance(one.names, str) and isinstance(other.names, str)
    ]
    call.run.resemble([one for one, _ in pairs], [other for _, other in pairs])


def _first_of(call: Call, rows: Sequence[Slot]) -> list[Slot]:
    """Return the first row of each of `rows`, which are views."""
    return [
        each
        for number, slot in enumerate(rows)
        for each in call.op(f"row_{number}", "aten.select", partial(slot.value.select, 0, 0), [slot])
    ]


def flex_attention(call: Call) -> Laid:
    """Lay out attention as eager mode runs it, which makes all scores."""
    import torch
    from torch._higher_order_ops.flex_attention import sdpa_dense
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    from memplan_engine.torch_capture.torch_storages import safe_softmax

    leaves, form = pytree.tree_flatten(call.args.value)
    names = pytree.tree_leaves(call.args.names, is_leaf=lambda leaf: leaf is None)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def attend(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        with patched((torch, "_safe_softmax", safe_softmax)):
            return sdpa_dense(*pytree.tree_unflatten(filled, form))

    inputs = [Slot(leaves[place], names[place]) for place in places]
    given = [slot.value for slot in inputs]
    with call.run.mode:
        module = make_fx(attend)(*given)
    _name_by_kind(module)
    first = len(call.run.ops)
    results = call.module(module, inputs, "body")
    _hold_as_python_does(call.run, first, partial(attend, *given), given)
    return Laid([results])


def _name_by_kind(module: GraphModule) -> None:
    """Name the nodes of `module` that give tensors by their kinds and numbers of these alone: where sizes are
    symbolic, nodes that compute sizes are among them, and tensors have the same names with and without."""
    seen: Counter[str] = Counter()
    for node in (each for each in module.graph.nodes if each.op == "call_function"):
        kind = "size" if is_arithmetic_on_sizes(node) else kind_of(node).split(".")[-1]
        number = seen[kind]
        seen[kind] += 1
        node.name = f"{kind}_{number}" if number else kind


def _hold_as_python_does(run: Run, first: int, function: Callable[[], Any], arguments: Any) -> None:
    """Hold what the ops from `first` on make as long as `function`, which they are of, has names for it."""
    # Here, not above: it needs torch.
    from memplan_engine.torch_capture.torch_storages import Lives

    lives = Lives()
    with run.mode:
        lives.watch(function, arguments)
    ops = run.ops[first:]
    # A constant is traced as a copy of itself.
    if [op.kind.replace(".lift_fresh_copy", ".lift_fresh") for op in ops] == [
        kind.replace("::", ".") for kind in lives.kinds
    ]:
        for made, result, freed in lives.spans:
            run.hold(ops[made].outputs[result : result + 1], ops[freed].name)


def _laid_out(
    lay_out: Callable[[Call], Laid], run: Run, name: str, args: Slot, results: Slot
) -> tuple[str, ...]:
    """Add the ops inside the operator `name` to `run`; return what it reads next to its arguments. `results`
    get the storages of what the branches give."""
    laid = lay_out(Call(run, name, args, results))
    for number, branch in enumerate(laid.branches):
        taken: dict[int, int] = {}
        for given, result in zip(branch, parts_of(results), strict=False):
            if not (
                isinstance(given.names, str) and isinstance(result.names, str) and run.is_made(given.names)
            ):
                continue
            home = run.storages[result.names]
            if taken.setdefault(home, run.storages[given.names]) == run.storages[given.names]:
                run.share(given.names, result.names, is_first=number == 0)
    # Of several branches only the last one's results are there when all have been run through.
    return names_of((*laid.held, *(laid.branches[-1] if laid.branches else ())))


INSIDES: dict[str, LayOut] = {
    "cond": partial(_laid_out, cond),
    "while_loop": partial(_laid_out, while_loop),
    "scan": partial(_laid_out, scan),
    "map_impl": partial(_laid_out, map_rows),
    "flex_attention": partial(_laid_out, flex_attention),
}
"""Operators by name → what adds the ops inside to a run."""


def parts_of(slot: Slot) -> list[Slot]:
    """Return the parts of a slot that holds a list or a tuple; a lone value is its own part."""
    if not isinstance(slot.value, (tuple, list)):
        return [slot]
    names = slot.names or [None] * len(slot.value)
    return [Slot(value, name) for value, name in zip(slot.value, names, strict=True)]


def names_of(slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return the tensors in `slots`, each once."""
    return tuple(dict.fromkeys(name for slot in slots for name in labels(slot.names)))


def tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return those of `values` that are tensors."""
    import torch

    return [value for value in values if isinstance(value, torch.Tensor)]
