"""What is known of op kinds by name: which draw random numbers, which are there for an effect.

Facts only; what makes orders and schedules and what checks them both go by them.
"""

from __future__ import annotations

from functools import cache

from memplan_engine.graph import Op

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


def draws(op: Op, views: bool) -> bool:
    """Whether `op` takes random numbers; one whose outputs are all `views` of its inputs and that writes
    nothing, such as a dropout that is off, does not."""
    return plain_kind(op.kind) in RANDOM and not (views and not op.mutates)


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
