"""Python that wraps modules in torch.utils.checkpoint, to paste, and in a factory's file, to be captured."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from memplan_engine.advice.source_patch import Recaptured
from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.fitting.fitted import Fitted
from memplan_engine.fitting.wrapping import Wrapping, find_wrapping

PLAIN = """\
from types import MethodType

from torch.utils.checkpoint import checkpoint


def again(module, *args, **kwargs):
    return checkpoint(type(module).forward, module, *args, use_reentrant=False, **kwargs)


"""
"""A method, so that a copy of the model has copies of its own; names of parameters stay."""
SELECTIVE = """\
from functools import partial
from types import MethodType

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SAVED = {{{saved}}}


def policy(context, op, *args, **kwargs):
    if getattr(op, "overloadpacket", op) in SAVED:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def again(module, *args, **kwargs):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    forward = type(module).forward
    return checkpoint(forward, module, *args, use_reentrant=False, context_fn=contexts, **kwargs)


"""
"""The same, keeping what the ops SAVED give."""
WITH_FSDP = "with FSDP: before fully_shard, on the modules that it shards or on those inside them"
"""How checkpoints sit with sharding: torch's own order (torchtitan applies them so)."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoints:
    """Modules to wrap, and what came of it where the step was captured again with them."""

    wrapping: Wrapping
    recaptured: Recaptured | None = None

    @property
    def code(self) -> str:
        """Python to paste."""
        return checkpoint_code(self.wrapping)

    @property
    def is_confirmed(self) -> bool:
        """Whether the step was captured again, gave the same and needed fewer bytes."""
        return self.recaptured is not None and self.recaptured.same and self.recaptured.saves

    def summary(self) -> dict[str, Any]:
        """As plain values for machines; bytes of the graph as captured, inputs and weights not counted."""
        return {
            "modules": list(self.wrapping.modules),
            "saved_ops": list(self.wrapping.saved),
            "of": self.wrapping.of,
            "live_bytes": self.wrapping.live_bytes,
            "extra_seconds": self.wrapping.extra_seconds,
            "code": self.code,
            "recaptured": None if self.recaptured is None else asdict(self.recaptured),
        }


def checkpoints_for(fitted: Fitted, times: OpTimes) -> Checkpoints | None:
    """The modules to wrap for what the stage of `fitted` does that runs ops again, by the `times` it had;
    None without such a stage, or where no module helps."""
    if fitted.again is None or fitted.capacity is None:
        return None
    found = find_wrapping(fitted.stages[0].graph, times, fitted.capacity - fitted.state_bytes)
    return None if found is None else Checkpoints(found)


def checkpoint_code(wrapping: Wrapping, model: str = "model") -> str:
    """Python that wraps the modules of `wrapping`, where `model` is the model: each runs again in the
    backward pass instead of keeping what it makes."""
    saved = ", ".join(f"torch.ops.{kind}" for kind in wrapping.saved)
    head = SELECTIVE.format(saved=saved) if saved else PLAIN
    return (
        f"{head}for name in {_names(wrapping.modules)}:\n"
        f"    module = {model}.get_submodule(name)\n"
        f"    module.forward = MethodType(again, module)\n"
    )


def _names(modules: tuple[str, ...]) -> str:
    """An expression for `modules`: a range where only one number differs, and counts from 0."""
    numbers = [_NUMBER.findall(name) for name in modules]
    for place in range(len(numbers[0])):
        if [each[place] for each in numbers] == [str(number) for number in range(len(modules))]:
            parts, found = re.split(rf"({_NUMBER.pattern})", modules[0]), -1
            for at in range(1, len(parts), 2):
                found += 1
                if found == place:
                    parts[at] = "{i}"
            whole = "".join(parts)
            if [whole.replace("{i}", str(number)) for number in range(len(modules))] == list(modules):
                return f'[f"{whole}" for i in range({len(modules)})]'
    listed = ", ".join(f'"{name}"' for name in modules)
    return f"[{listed}]"


def with_checkpoints(text: str, function: str, wrapping: Wrapping) -> str:
    """`text`, a file with the factory `function`, whose model has its modules wrapped."""
    body = checkpoint_code(wrapping).replace("\n", "\n    ").rstrip()
    return (
        f"{text.rstrip()}\n\n\n_unwrapped = {function}\n\n\ndef {function}():\n"
        f"    built = _unwrapped()\n"
        f'    model = built["model"] if isinstance(built, dict) else built[0]\n'
        f"    {body}\n    return built\n"
    )
