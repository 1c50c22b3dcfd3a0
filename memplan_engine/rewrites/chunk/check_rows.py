"""What the checker of chunks knows of ops: for each dimension of what they read and make a letter, by kind.

A small letter is a dimension whose rows know nothing of one another, a capital one is worked on as a whole.
Nothing here is shared with what makes the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from memplan_engine.graph import Op
from memplan_engine.op_kinds.ordered import plain_kind

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Of a dimension, the part from `low` to `high`, as shares of its size."""

    dim: int
    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class Sum:
    """What comes of a part of the rows, and has to be added to what comes of the others."""

    low: Fraction
    high: Fraction


Made = Cut | Sum | None
ROWS = "abcdefgh"
_RESHAPED = {"reshape", "flatten", "view", "unsafeview"}
FIXED = {
    "mm": "mk,kn>mn +k",
    "bmm": "bmk,bkn>bmn +k",
    "addmm": "mn,mK,Kn>mn",
    "baddbmm": "bmn,bmK,bKn>bmn",
    "nlllossforward": "nC,n>, +n",
}
_LAST = {"softmax", "logsoftmax", "softmaxbackwarddata", "logsoftmaxbackwarddata", "cat"}
_NORMS = {"layernorm", "nativelayernorm", "nativelayernormbackward"}
_BATCHED = {
    "conv1d", "conv2d", "conv3d", "convolution", "batchnorm", "nativebatchnormlegitnotraining", "groupnorm",
}  # fmt: skip
_PLANES = {
    "maxpool2d", "avgpool2d", "adaptiveavgpool2d", "maxpool2dwithindices", "upsamplenearest2d",
    "upsamplebilinear2d",
}  # fmt: skip


def made_of(op: Op, reads: Sequence[Shape], makes: Sequence[Shape], cuts: Sequence[Cut | None]) -> list[Made]:
    """What each output of `op`, whose inputs and outputs have these shapes when they are whole, is of when
    only these parts of the inputs are read; None: the whole.

    Raises
    ------
    ValueError, with what is wrong: an op that works along the dimension that is cut, one that reads other
        parts of its inputs than of the first, one of which nothing is known.
    """
    if plain_kind(op.kind) in _RESHAPED and len(reads) == 1 and cuts[0] is not None:
        return [_reshaped(cuts[0], reads[0], each) for each in makes]
    text = _spec(op, reads, makes)
    if text is None:
        raise ValueError(f"nothing is known of the rows of {op.kind}")
    body, _, sums = text.partition(" +")
    left, _, right = body.partition(">")
    given = [_fit(letters, shape) for letters, shape in zip(left.split(","), reads, strict=False)]
    if len(given) != len(reads):
        raise ValueError(f"{op.kind} with {len(reads)} inputs")
    results = [*right.split(","), *[""] * len(makes)]
    parts = {
        (letters[cut.dim], cut.low, cut.high)
        for letters, cut in zip(given, cuts, strict=True)
        if cut is not None
    }
    if len(parts) != 1:
        raise ValueError("it reads parts that are not of the same rows")
    ((letter, low, high),) = parts
    if not letter.islower():
        raise ValueError("it works along the dimension that is cut")
    if any(letters.count(letter) != (cut is not None) for letters, cut in zip(given, cuts, strict=True)):
        raise ValueError("it reads the whole of what is cut elsewhere")
    summed = Sum(low, high) if letter in sums else None
    made = (results[at][: len(shape)] for at, shape in enumerate(makes))
    return [Cut(letters.index(letter), low, high) if letter in letters else summed for letters in made]


def _reshaped(cut: Cut, read: Shape, made: Shape) -> Cut:
    """The rows that a copy in another shape has: elements keep their order, so that the dimension is the one
    that repeats after as many of them."""
    repeat = prod(read[cut.dim :])
    dims = [dim for dim in range(len(made)) if made[dim] > 1 and prod(made[dim:]) == repeat]
    if not dims:
        raise ValueError("it mixes the rows that are cut with others")
    return Cut(dims[0], cut.low, cut.high)


def _fit(letters: str, shape: Shape) -> str:
    """The letters of the last dimensions, with a point for those of one row, which all rows read."""
    own = letters[len(letters) - len(shape) :] if len(letters) >= len(shape) else "?" * len(shape)
    return "".join("." if size == 1 else letter for letter, size in zip(own, shape, strict=True))


def _spec(op: Op, reads: Sequence[Shape], makes: Sequence[Shape]) -> str | None:
    kind = plain_kind(op.kind)
    told = dict(op.arguments)
    if kind in FIXED:
        return FIXED[kind]
    count = len(makes[0]) if makes else 0
    rows = ROWS[:count]
    if kind in _LAST and "dim" in told:
        letters = _capital(rows, told["dim"])
        return f"{','.join([letters] * len(reads))}>{letters}"
    if kind in _NORMS and "normalized_shape" in told:
        return _norm(kind, reads, makes, len(told["normalized_shape"]))
    if kind in _BATCHED and not told.get("training", (0,))[0]:
        first = "a" + ROWS[1 : len(reads[0])].upper()
        others = ["X" * len(shape) for shape in reads[1:]]
        return f"{','.join([first, *others])}>a{ROWS[1:count].upper()}"
    if kind in _PLANES:
        return f"ab{'X' * (len(reads[0]) - 2)}>" + ",".join(f"ab{'X' * (len(each) - 2)}" for each in makes)
    if kind in ("sum", "mean", "amax", "amin"):
        return _reduction(kind, reads[0], told)
    return _other(kind, told, reads, rows)


def _other(kind: str, told: dict[str, tuple[int, ...]], reads: Sequence[Shape], rows: str) -> str | None:
    if kind == "linear":
        return f"{rows[:-1]}K,nK,n>{rows[:-1]}n" if len(reads) == 3 else f"{rows[:-1]}K,nK>{rows[:-1]}n"
    if kind == "matmul":
        return f"{rows[:-2]}mK,{rows[:-2]}Kn>{rows[:-2]}mn"
    if kind == "embedding":
        return f"VE,{rows[:-1]}>{rows[:-1]}E"
    if kind == "embeddingdensebackward":
        letters = ROWS[: len(reads[1])]
        return f"{letters}E,{letters}>VE +{letters}"
    if kind == "nlllossbackward":
        return "n,nC,n,>nC" if told.get("reduction") == (0,) else ",nC,n,>nC"
    if kind.startswith("scaleddotproduct") and told.get("dropout_p") == (0,):
        if kind.endswith("backward"):
            return "bhQD,bhQD,bhKD,bhKD,bhQD,bhQ>bhQD,bhKD,bhKD"
        query = "Q" if told.get("is_causal") != (0,) else "q"
        mask = f",bh{query}K" if len(reads) == 4 else ""
        return f"bh{query}D,bhKD,bhKD{mask}>bh{query}D,bh{query}"
    return f"{','.join([rows] * len(reads))}>{rows}" if kind in POINTWISE else None


def _capital(letters: str, dims: Sequence[int]) -> str:
    gone = {dim % len(letters) for dim in dims} if letters else set()
    return "".join(each.upper() if at in gone else each for at, each in enumerate(letters))


def _norm(kind: str, reads: Sequence[Shape], makes: Sequence[Shape], over: int) -> str:
    count = len(reads[0]) - over
    rows, whole = ROWS[:count], "Z" * over
    if not kind.endswith("backward"):
        weights = [whole] * (len(reads) - 1)
        return f"{','.join([rows + whole, *weights])}>{','.join([rows + whole] * len(makes))}"
    first = [rows + whole] * 4
    made = [rows + whole if len(shape) > over else whole for shape in makes]
    return f"{','.join([*first, *[whole] * (len(reads) - 4)])}>{','.join(made)} +{rows}"


def _reduction(kind: str, read: Shape, told: dict[str, tuple[int, ...]]) -> str:
    letters = ROWS[: len(read)]
    gone = {dim % len(read) for dim in told.get("dim") or range(len(read))} if read else set()
    keep = told.get("keepdim", (0,))[0]
    made = "".join("." if at in gone else each for at, each in enumerate(letters) if keep or at not in gone)
    if kind == "sum":
        return f"{letters}>{made} +{''.join(letters[at] for at in gone)}"
    return f"{_capital(letters, sorted(gone))}>{made}"


_WORDS = """
abs acos acosh add addcdiv addcmul alias asin asinh atan atan2 atanh bitwiseand bitwisenot bitwiseor
bitwisexor ceil celu clamp clampmax clampmin clone contiguous copysign cos cosh detach digamma div elu
elubackward eq erf erfc erfinv exp exp2 expm1 floor floordivide fmax fmin fmod frac ge gelu gelubackward
gt hardshrink hardsigmoid hardsigmoidbackward hardswish hardswishbackward hardtanh hardtanhbackward hypot
le leakyrelu leakyrelubackward lerp lgamma log log10 log1p log2 logaddexp logicaland logicalnot logicalor
logicalxor logit logitbackward logsigmoid lt maskedfill maximum minimum mish mishbackward mul nantonum
nativedropoutbackward ne neg negative pow reciprocal relu relu6 remainder round rsqrt rsub selu sgn
sigmoid sigmoidbackward sign silu silubackward sin sinc sinh softplus softplusbackward softshrink sqrt
square sub tan tanh tanhbackward threshold thresholdbackward to tocopy trunc where xlogy floormod divide
multiply subtract truedivide greater greaterequal less lessequal notequal
"""
POINTWISE = frozenset(_WORDS.split())
