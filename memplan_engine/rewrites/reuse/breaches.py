"""What the checker of reuse can find wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What holds of a graph, or of a plan, in which memory is reused soundly."""

    SAME_GRAPH = "ops, tensors and their layouts are those of the original graph"
    RANGE = "every tensor lies inside its storage"
    ALIGNMENT = "what began a storage still begins at a multiple of its alignment"
    READ = "a read finds the value that the graph means"
    RETURNED = "the outputs are there at the end"
    CALLERS = "inputs and constants are left as the graph leaves them"
    OVERWRITES = "only elementwise ops write over what they read, element by element"
    UNSAID = "an op that writes over an input says so in `mutates`"
    RACE = "no op writes what another op of the same step touches"


@dataclass(frozen=True, slots=True)
class Breach:
    """A breach of `rule` at `step` by `op` ("" for the caller) in its use of `tensor`.

    From byte `byte` of the tensor on, its place holds what `overwritten_by` put there: an op, "the caller",
    or "" for nothing at all. Where no value is lost it is the op, tensor or storage that is in the way.
    """

    rule: Rule
    step: int
    op: str
    tensor: str
    overwritten_by: str = ""
    byte: int = 0

    def __str__(self) -> str:
        who = f"op {self.op!r}" if self.op else "the caller"
        blame = f"; in the way: {self.overwritten_by}" if self.overwritten_by else ""
        if self.rule in (Rule.READ, Rule.RETURNED, Rule.CALLERS):
            blame = f"; byte {self.byte} was written by {self.overwritten_by or 'nothing'}"
        return f"step {self.step}: {who}, tensor {self.tensor!r}: broken: {self.rule}{blame}"
