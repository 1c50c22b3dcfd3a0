"""What is known of op kinds by name: which draw random numbers, which are there for an effect.

Facts only; what makes orders and schedules and what checks them both go by them.
"""

from __future__ import annotations

from functools import cache

from memplan_engine.graph import Graph, Op
from memplan_engine.op_kinds.generators import is_of_generator, is_of_own_code

_RANDOM = """
alphadropout bernoulli binomial cauchy dropout efficientattentionforward exponential featurealphadropout
featuredropout flashattentionforward fractionalmaxpool2d fractionalmaxpool3d geometric lognormal
multinomial nativedropout normal normalfunctional philoxrand poisson rand randint randintlike randlike
randn randnlike random randomnormal randomnormallike randomuniform randomuniformlike randperm rrelu
rreluwithnoise sampledirichlet scaleddotproductattention scaleddotproductcudnnattention
scaleddotproductefficientattention scaleddotproductflashattention standardgamma uniform
"""

RANDOM = frozenset(_RANDOM.split())
"""Ops that take from a generator, by their plain names. Attention does so when it drops out, which a graph
does not tell: it is taken to."""

HARMLESS = frozenset({"asserttensormetadata"})
"""Ops that make nothing and look at nothing but metadata: whenever they run they say the same."""


ONCE = "memplan.once"
"""The kind of an op of which nothing more is known than that it runs once, in its place among its like: what
comes from outside while a graph runs, and operators of which nobody knows whether they draw."""


def draws(op: Op, views: bool) -> bool:
    """Whether `op` takes random numbers, or has to be taken to; one whose outputs are all `views` of its
    inputs and that writes nothing, such as a dropout that is off, does not. What keeps the state of the
    generator, or puts it back, has its place among those that do."""
    if op.kind == ONCE or is_of_generator(op.kind) or is_of_own_code(op.kind):
        return True
    return plain_kind(op.kind) in RANDOM and not (views and not op.mutates)


def drawing_ops(graph: Graph) -> frozenset[str]:
    """The ops of `graph` that draw, or have to be taken to, by name."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    return frozenset(
        op.name
        for op in graph.ops
        if draws(op, {home[name] for name in op.outputs} <= {home[name] for name in op.inputs})
    )


def has_effect(op: Op) -> bool:
    """Whether `op` is there for something that no tensor shows: it makes nothing and writes nothing."""
    return not op.outputs and not op.mutates and plain_kind(op.kind) not in HARMLESS


@cache
def plain_kind(kind: str) -> str:
    """`kind` without library, overload, case and underscores: "aten.leaky_relu.default" → "leakyrelu"."""
    name = kind.removeprefix("torch.ops.")
    for library in ("aten.", "prims.", "onnx."):
        if name.startswith(library):
            name = name[len(library) :].split(".")[0]
    return name.replace("_", "").lower()
