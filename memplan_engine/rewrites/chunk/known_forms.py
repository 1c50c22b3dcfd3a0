"""The form of an op, of all that are known."""

from __future__ import annotations

from memplan_engine.graph import Op, Tensor
from memplan_engine.op_kinds.ordered import draws, has_effect, plain_kind
from memplan_engine.rewrites.chunk.form_arguments import number
from memplan_engine.rewrites.chunk.forms import RULES, Form, pointwise
from memplan_engine.rewrites.chunk.layer_forms import LAYER_RULES
from memplan_engine.rewrites.reuse.kinds import is_elementwise

_ALL = {**RULES, **LAYER_RULES}
_BY_CHANNEL = frozenset({"prelu"})
"""Elementwise, with a weight that is not laid out by the last dimension."""


def form_of(op: Op, tensors: dict[str, Tensor]) -> Form | None:
    """The form of `op`; None where it is not known, where it draws random numbers or has an effect."""
    plain = plain_kind(op.kind)
    rule = _ALL.get(plain)
    if rule is None and is_elementwise(op.kind) and op.kind.startswith("aten.") and plain not in _BY_CHANNEL:
        rule = pointwise
    home = {tensors[name].storage for name in op.inputs}
    views = bool(op.outputs) and all(tensors[name].storage in home for name in op.outputs)
    drops = number(op, "dropout_p")
    if rule is None or has_effect(op) or (draws(op, views) and drops != 0):
        return None
    if plain == "contiguous" and views:
        # Of a piece, which need not be, it makes a copy.
        return None
    if op.mutates and rule is not pointwise:
        return None
    return rule(op, [tensors[each].shape for each in op.inputs], [tensors[each].shape for each in op.outputs])
