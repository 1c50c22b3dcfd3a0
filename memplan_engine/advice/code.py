"""The change of the user's code that does what a rewrite does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from memplan_engine.advice.expressions import sub_expressions
from memplan_engine.advice.values import CodeChange, OpChange
from memplan_engine.analysis.buffer_names import kind_label
from memplan_engine.analysis.tied_peaks import repeated
from memplan_engine.graph import Graph, Op, Phase, Source
from memplan_engine.rewrites.reuse.kinds import has_in_place_form, plain_kind, takes_several

BY_AUTOGRAD = "# made by autograd: in place under torch.compile or in an autograd.Function of yours"
BY_OPTIMIZER = "# made inside the optimizer: in place under torch.compile"
"""Nobody writes these calls, so that there is none to change."""
MOST_LINES = 8
"""How many lines of code a suggestion names."""
_WITH_FLAG = """
celu dropout elu hardsigmoid hardswish hardtanh leakyrelu mish relu relu6 selu silu threshold
"""
WITH_FLAG = frozenset(_WITH_FLAG.split())
"""Functions of torch.nn.functional that take `inplace=True`."""

OF_ATEN = frozenset({"logsigmoid", "rsub", "softplus", "softshrink"})
"""Kinds that only `torch.ops.aten` has with `out`."""
NAMES = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
"""Names of methods, by the plain kinds of operators such as `aten.__and__`."""

_COMMUTATIVE = "and or xor add bitwiseand bitwiseor bitwisexor logicaland logicalor logicalxor mul multiply"
COMMUTATIVE = frozenset(_COMMUTATIVE.split())


def code_changes(graph: Graph, ops: Iterable[Op], instead: Callable[[Op], str]) -> tuple[CodeChange, ...]:
    """What `instead` says to write for `ops` of `graph`, one entry for those of one line and layer pattern,
    in the order of the ops; those that it has no words for are left out."""
    lines: dict[tuple[Source | None, str], list[tuple[Op, str]]] = {}
    for op in ops:
        if text := instead(op):
            lines.setdefault((op.source, repeated(op.module)), []).append((op, text))
    expressions, place = sub_expressions(graph.ops), {op.name: at for at, op in enumerate(graph.ops)}
    changes = []
    for (source, _), written in list(lines.items())[:MOST_LINES]:
        kinds: dict[tuple[str, str], list[Op]] = {}
        for op, text in sorted(written, key=lambda pair: place[pair[0].name]):
            kinds.setdefault((op.kind, text), []).append(op)
        changed = (
            OpChange(kind, len(members), text, _told(members, expressions))
            for (kind, text), members in kinds.items()
        )
        changes.append(CodeChange(source, pattern_of(op.module for op, _ in written), tuple(changed)))
    return tuple(changes)


def _told(ops: Iterable[Op], expressions: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(expressions[op.name] for op in ops if op.name in expressions))


def pattern_of(modules: Iterable[str]) -> str:
    """The one module that there is, or what counterparts in several layers share."""
    first, *others = set(modules)
    return repeated(first) if others else first


def in_place_code(op: Op, written: str) -> str:
    """Python in which `op` writes into its input `written`, called x; "" for ops that are not torch's."""
    if not op.kind.startswith("aten."):
        return ""
    if op.phase is Phase.BACKWARD:
        return BY_AUTOGRAD
    if op.phase is Phase.OPTIMIZER and op.source is not None and ".step(" in op.source.code:
        return BY_OPTIMIZER
    plain = plain_kind(op.kind)
    name = NAMES.get(plain, kind_label(op.kind).split(".")[0])
    is_first = op.inputs[0] == written
    if plain in WITH_FLAG:
        return f"F.{name}(x, {'…, ' if plain == 'threshold' else ''}inplace=True)"
    if plain == "gelu":
        return "torch.ops.aten.gelu_(x)"
    others = "…" if takes_several(op.kind) or len(op.inputs) > 1 else ""
    if has_in_place_form(op.kind) and (is_first or plain in COMMUTATIVE):
        return f"x.{name}_({others})"
    arguments = ["x" if each == written else "…" for each in op.inputs]
    if others and arguments == ["x"]:
        arguments.append(others)
    arguments = [
        each for each, before in zip(arguments, ["", *arguments], strict=False) if each + before != "……"
    ]
    library = "torch.ops.aten" if plain in OF_ATEN else "torch"
    return f"{library}.{name}({', '.join(arguments)}, out=x)"


def concat_code(op: Op) -> str:
    """Python in which what `op` joins is made inside its result, called whole."""
    return "whole = torch.empty(…); make each part with out=whole[…]" if op.kind.startswith("aten.") else ""
