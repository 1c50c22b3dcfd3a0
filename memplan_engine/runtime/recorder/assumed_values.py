"""What is taken for values that a predicted run asks for and that nobody knows: losses and norms that are
written to a log, counts of right answers, checks that all went well.

Each answer is noted, with the line that asks, for `Flow.assumed`.
"""

from __future__ import annotations

import operator as python
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from memplan_engine.runtime.recorder.branches import in_while, is_own, steers_memory
from memplan_engine.runtime.recorder.checks import is_indexing, passing
from memplan_engine.runtime.recorder.unknown_count import UnknownCount, UnknownNumber
from memplan_engine.torch_capture.torch_fake import MOST_ELEMENTS
from memplan_engine.torch_capture.torch_operators import arguments_of
from memplan_engine.torch_capture.torch_source import is_users, portable_path
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_generators import on_real_tensors
from memplan_engine.torch_capture.training.torch_origins import who_asks
from memplan_engine.torch_capture.training.torch_values import KnownValues

NUMBER = torch.ops.aten._local_scalar_dense.default
SCALER, LBFGS, INIT = "torch/amp/grad_scaler.py", "torch/optim/lbfgs.py", "torch/nn/init.py"
"""Where torch itself asks for values whose answers do not depend on the model."""
GENERATION = "transformers/generation/"
"""Where `generate` asks whether the last token ends its sequence: no, so that it makes all that it may."""
PROMPTS = ("generate", "_get_logits_processor")
"""The functions there that ask before the first token, of padding and negative tokens in the prompt: none."""
NOT_FINITE = ("aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    f"aten::{name}": getattr(python, name) for name in ("lt", "gt", "le", "ge", "eq", "ne")
}
CHOICES = ("aten::topk", "aten::argmax", "aten::max.dim")
"""Operators that choose places along a dimension."""
MOST_CHOICES = 1024
"""A model that chooses among no more routes its tokens to experts."""
ONE = 1.0
"""What a loss or a norm is taken as."""
LINE_SEARCH = (
    "the first point of each line search of LBFGS as good enough: where values have it try others, it holds "
    "copies of the gradient beside, and the peak is as much higher"
)
"""What is said of a run whose peak depends on values that nobody knows."""


class Assumed:
    """Answers for values that are not known, each noted once: a loss or a norm is taken as 1, all numbers as
    finite, what torch checks by itself as passed. `boundary` is the function of ours that called the user's
    code."""

    def __init__(self, boundary: CodeType) -> None:
        self.boundary = boundary
        self.within_model: Callable[[], bool] = lambda: False
        """Whether a module runs: a model that branches on what it computes is refused."""
        self._drawn: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self.notes: dict[str, None] = {}
        self.doubts: set[str] = set()
        """Notes with which a real run may hold something else; those of values that nothing asks for
        included."""
        self._searches = 0

    def answer(self, operator: Any, args: Any, known: KnownValues) -> Any:
        """Return what `operator` says of the values of `args`, or None to refuse it."""
        if operator is not NUMBER or args[0].numel() != 1:
            return None
        if args[0].dtype is torch.bool:
            if self._asker(sys._getframe(1)) == INIT:
                # Whether a number that was drawn has to be drawn again: how many are drawn depends on it.
                known.generators.lose_global()
                return False
            passes = passing(sys._getframe(1))
            if passes is None and self._asks_of_prompts(sys._getframe(1)):
                self.note("prompts of `generate` as without padding")
                return False
            if passes is not None:
                self.note(f"what is checked {who_asks()} as right")
            return passes
        asker = self._asker(sys._getframe(1))
        if not args[0].dtype.is_floating_point:
            if not is_indexing(sys._getframe(1)):
                return None
            # All parts that `x[i]` may be are of one size.
            known.takes_a_part = True
            return 0
        if asker == SCALER:
            # Whether a gradient is infinite: or no step would be taken.
            return 0.0
        if asker == LBFGS:
            # A loss that is less each time, and never the bound of a first step.
            self._searches += 1
            return ONE / (1 + self._searches)
        self.note(f"the value of a tensor of shape {tuple(args[0].shape)}, asked for {who_asks()}, as 1")
        return ONE

    def sizes(self, operator: Any, args: Any, kwargs: Any, known: KnownValues) -> None:
        """Assume that a target of `ctc_loss` is as long as its row."""
        if operator._schema.name != "aten::_ctc_loss":
            return
        arguments = arguments_of(operator, args, kwargs)
        targets, lengths = arguments["targets"], arguments["target_lengths"]
        if targets.dim() != 2 or not isinstance(lengths, torch.Tensor) or known.of(lengths) is not None:
            return
        if lengths.untyped_storage().nbytes() == lengths.numel() * lengths.element_size():
            row = targets.shape[1]
            reason = f"targets of `ctc_loss` {who_asks()} as long as their rows, of {row:,}"
            known.assume(lengths, row, reason)

    def _choose(self, operator: Any, args: Any, kwargs: Any, result: Any, known: KnownValues) -> None:
        """Assume that the choices of a model are spread evenly over what it chooses from."""
        arguments = arguments_of(operator, args, kwargs, defaults=True)
        dim, source = arguments["dim"], arguments["self"]
        if dim is None or not source.dim() or known.of(source) is not None:
            return
        places = result if isinstance(result, torch.Tensor) else result[1]
        size = source.shape[dim]
        count = places.shape[dim] if places.dim() == source.dim() else 1
        if size > MOST_CHOICES or places.numel() > MOST_ELEMENTS or not places.numel():
            return
        with on_real_tensors():
            order = torch.arange(places.numel()) % size
            spread = order.view(places.shape)
            if count > 1:
                spread = order.view(places.movedim(dim, -1).shape).movedim(-1, dim)
        name = operator._schema.name.removeprefix("aten::")
        reason = f"what `{name}` chooses {who_asks()} as spread evenly over {size:,}"
        self.doubts.add(reason)
        known.assume(places, spread, reason)

    def result(self, operator: Any, args: Any, kwargs: Any, result: Any, known: KnownValues) -> bool | None:
        """What all elements of `result`, which `operator` has given, are taken as; None where nothing is."""
        if operator.name() in CHOICES and self.within_model():
            self._choose(operator, args, kwargs, result, known)
        if not isinstance(result, torch.Tensor) or result.dtype is not torch.bool:
            if torch.Tag.nondeterministic_seeded in operator.tags:
                self._drawn.update(each.untyped_storage() for each in tensors_in(result) if not each.dim())
            return None
        name = operator._schema.name
        if name == "aten::isin" and self._asker(sys._getframe(1)) == GENERATION:
            self.note("no sequence as ended before `generate` has made all of its tokens")
            return False
        finite = _finite(name, args)
        if finite is not None:
            self.note(f"numbers, looked at {who_asks()}, as finite")
            return finite
        if name not in COMPARISONS or result.dim():
            return None
        if self._asker(sys._getframe(1)) == LBFGS:
            self.note(f"searches {who_asks()} as going on for as many steps as they may")
            if name == "aten::le" and isinstance(args[1], torch.Tensor):
                self.note(LINE_SEARCH, doubt=True)
            return _goes_on(name, args[1])
        values = [self._number(arg, known) for arg in args[:2]]
        frame = sys._getframe(1)
        if None in values:
            if self.within_model() or in_while(frame) or not is_own(frame):
                return None
            values = [self._number(arg, known, any_float=True) for arg in args[:2]]
            if None not in values:
                # Said where something depends on it.
                note = f"a number, compared {who_asks()}, as 1"
                if steers_memory(frame):
                    self.doubts.add(note)
                known.assume(result, COMPARISONS[name](*values), note)
            return None
        if any(isinstance(arg, torch.Tensor) and known.of(arg) is None for arg in args[:2]):
            self.note(f"a number, compared {who_asks()}, as 1", doubt=steers_memory(frame))
        return COMPARISONS[name](*values)

    def _number(self, arg: Any, known: KnownValues, any_float: bool = False) -> Any:
        """`arg` as a number: its value where it is known, ONE of a loss or of a number that was drawn, or of
        `any_float`, None of all else."""
        if not isinstance(arg, torch.Tensor):
            return arg
        if arg.dim():
            return None
        value = known.listed(arg)
        if value is not None or not arg.dtype.is_floating_point:
            return value
        is_loss = arg.requires_grad and not self.within_model()
        return ONE if any_float or is_loss or arg.untyped_storage() in self._drawn else None

    def each(self, tensor: torch.Tensor) -> float | UnknownCount:
        """What every element of `tensor` is taken as, which a line of the user's asks for: a whole number
        counts, and is no size; any number that a model asks for steers it nowhere."""
        values = "values" if tensor.dim() else "value"
        self.note(f"the {values} of a tensor of shape {tuple(tensor.shape)}, asked for {who_asks()}, as 1")
        if not tensor.is_floating_point():
            return UnknownCount(1, who_asks(), self.compared)
        return UnknownNumber(ONE, who_asks(), None if self.within_model() else self.compared)

    def note(self, note: str, doubt: bool = False) -> None:
        """Say once that the run rests on `note`; with `doubt` a real run may hold something else."""
        self.notes[note] = None
        if doubt:
            self.doubts.add(note)

    def compared(self, place: str) -> None:
        """Note that a branch depends on a number that was asked for at `place`."""
        note = f"a number, asked for {place} and compared {who_asks()}, as 1"
        self.note(note, doubt=steers_memory(sys._getframe(1)))

    def _asks_of_prompts(self, frame: FrameType | None) -> bool:
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or frame.f_code.co_name not in PROMPTS:
            return False
        return portable_path(frame.f_code.co_filename).startswith(GENERATION)

    def _asker(self, frame: FrameType | None) -> str:
        """Which of SCALER, LBFGS, INIT and GENERATION asks; "" for the user's code and all else."""
        while frame is not None and frame.f_code is not self.boundary:
            file = portable_path(frame.f_code.co_filename)
            for place in (SCALER, LBFGS, INIT, GENERATION):
                if file.startswith(place):
                    return place
            if is_users(frame.f_code.co_filename):
                return ""
            frame = frame.f_back
        return ""


def _finite(name: str, args: Any) -> bool | None:
    """The answer of the operator `name` where it asks whether numbers are finite. Below autograd `isfinite`
    is `(x == x) * (abs(x) != inf)`."""
    if not args or not (isinstance(args[0], torch.Tensor) and args[0].dtype.is_floating_point):
        return None
    if name in NOT_FINITE:
        return False
    if name not in ("aten::eq", "aten::ne"):
        return None
    same = args[1] is args[0]
    infinite = isinstance(args[1], float) and abs(args[1]) == float("inf")
    return (name == "aten::eq") == same if same or infinite else None


def _goes_on(name: str, other: Any) -> bool:
    """How a comparison of LBFGS ends that goes on: gradients and steps are above their tolerances, slopes
    below 0, a curvature is above its least, and the first step of a line search is good enough. The first
    step of all is one over a sum of gradients, which is more than 1."""
    if name == "aten::gt":
        return not isinstance(other, torch.Tensor) and other > 0
    if name == "aten::lt":
        return not isinstance(other, torch.Tensor) and other == ONE
    return name == "aten::le" and isinstance(other, torch.Tensor)
