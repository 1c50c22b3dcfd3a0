"""What is known of op kinds by name: which are elementwise, which join tensors, which give other layouts.

Facts only. Kinds are spelled as their sources do: `aten.add`, `aten.add.Tensor`, ONNX `LeakyRelu`, TFLite
`HARD_SWISH`, plain `relu`; case, underscores and overloads make no difference, but for a few ONNX names.
"""

from __future__ import annotations

from memplan_engine.op_kinds.ordered import plain_kind as plain_kind

_UNARY = """
abs acos acosh asin asinh atan atanh bitwisenot ceil celu clamp clampmax clampmin clip cos cosh deg2rad
digamma dropout elu erf erfc erfinv exp exp2 expm1 floor frac gelu hardshrink hardsigmoid hardswish hardtanh
leakyrelu lgamma log log10 log1p log2 logicalnot logistic logit logsigmoid mish nantonum neg negative
not positive quickgelu rad2deg reciprocal relu relu6 relu0to1 relun1to1 round rsqrt selu sgn sigmoid sign
silu sin sinc sinh softplus softshrink softsign sqrt square swish tan tanh thresholdedrelu threshold
trunc
"""

_OF_SEVERAL = """
add addcdiv addcmul and atan2 bitshift bitwiseand bitwiseor bitwisexor copysign div divide eq equal
floordiv floormod fmax
fmin fmod ge greater greaterequal greaterorequal gt hypot le lerp less lessequal lessorequal logaddexp
logicaland logicalor logicalxor lt maskedfill maximum minimum mod mul multiply ne notequal pow prelu
or remainder rsub squareddifference sub subtract truedivide where xlogy xor
"""

_BACKWARD = """
elubackward gelubackward hardsigmoidbackward hardswishbackward hardtanhbackward leakyrelubackward
logitbackward mishbackward nativedropoutbackward sigmoidbackward silubackward softplusbackward
tanhbackward thresholdbackward
"""

ELEMENTWISE = frozenset(f"{_UNARY} {_OF_SEVERAL} {_BACKWARD}".split())
"""Ops whose output's element i depends on element i of every input of the same shape, and on nothing else
of that input: it may be read, worked on and written back."""

_SEVERAL = frozenset(_OF_SEVERAL.split())

_WITHOUT_IN_PLACE_FORM = """
equal fmax fmin hardshrink hardswishbackward logaddexp logsigmoid maximum minimum mishbackward
nativedropoutbackward positive prelu rsub softplus softshrink where
"""

_OUT_OF_PLACE_ONLY = frozenset(_WITHOUT_IN_PLACE_FORM.split())
"""Elementwise in PyTorch, and without a form that works in place."""

_ELEMENTWISE_IN_ONNX = frozenset({"Max", "Mean", "Min", "Sum"})
"""Elementwise over several inputs in ONNX; the same words reduce a tensor elsewhere."""

_CONCAT = frozenset({"cat", "concat", "concatenate", "concatenation", "concatv2"})

_MOVING = """
asstrided broadcastto chunk diagonal expand expandas mt movedim moveaxis narrow numpyt permute select
slice split splitwithsizes splitwithsizescopy swapaxes swapdims t transpose unbind unfold
"""

REORDERING = frozenset(_MOVING.split())
"""Views whose elements do not lie one after another from their own first byte, unless strides say so."""


def is_elementwise(kind: str) -> bool:
    """Whether every element of the output depends on that element of the inputs alone."""
    return kind in _ELEMENTWISE_IN_ONNX or plain_kind(kind) in ELEMENTWISE


def has_in_place_form(kind: str) -> bool:
    """Whether PyTorch has an op of this elementwise kind that works in place, such as `relu_`: with that it
    needs no out variant to write over its input."""
    return kind.startswith("aten.") and is_elementwise(kind) and plain_kind(kind) not in _OUT_OF_PLACE_ONLY


def takes_several(kind: str) -> bool:
    """Whether an elementwise op of this kind works on more than one tensor or number: `add`, not `tanh`."""
    return plain_kind(kind) in _SEVERAL


def is_concat(kind: str) -> bool:
    """Whether the output is the inputs one behind the other along one axis."""
    return plain_kind(kind) in _CONCAT
