"""What part of a model a buffer belongs to: attention, mlp, norm …, by the names people give modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.graph import Op
from memplan_engine.problem import Problem


class ModuleRole(StrEnum):
    """A part of a model, the same in every model."""

    ATTENTION = "attention"
    MLP = "mlp"
    RESIDUAL = "residual"
    NORM = "norm"
    EMBEDDING = "embedding"
    HEAD = "head"
    CONVOLUTION = "convolution"
    ACTIVATION = "activation function"
    POOLING = "pooling"
    OTHER = "other"


_KINDS = (
    (ModuleRole.NORM, re.compile(r"(layer|batch|group|instance|rms|lp)_?norm")),
    (ModuleRole.EMBEDDING, re.compile(r"(^|_)embedding")),
    (ModuleRole.ATTENTION, re.compile(r"attention")),
    (ModuleRole.POOLING, re.compile(r"pool")),
)
"""Kinds of ops that tell, wherever they stand."""
_WORDS = {
    word: role
    for role, words in {
        ModuleRole.NORM: "norm layernorm batchnorm groupnorm rmsnorm normalization ln bn gn",
        ModuleRole.ATTENTION: "attn attention qkv query key value mha sdpa",
        ModuleRole.MLP: "mlp ffn ff fc feedforward intermediate gate up down moe experts",
        ModuleRole.EMBEDDING: "embed embeddings embedding wte wpe emb rotary tokens position positions",
        ModuleRole.HEAD: "head heads classifier logits score pooler predictions loss",
        ModuleRole.CONVOLUTION: "conv convolution downsample shortcut stem",
    }.items()
    for word in words.split()
}
"""Words in the names of modules; of several in one name the first role here counts: self_attn_layer_norm."""
_ORDER = tuple(dict.fromkeys(_WORDS.values()))
_CONVOLUTION = re.compile(r"conv(\d?d|olution)?($|_)|^conv")
_FUNCTION = re.compile(r"^(relu|relu6|gelu|silu|swish|sigmoid|hardtanh|hardswish|leaky_relu|elu|clip)($|_)")
_FUNCTION_WORDS = frozenset({"act", "activation", "gelu", "relu", "silu"})
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def module_roles(problem: Problem) -> tuple[ModuleRole, ...]:
    """The role of every buffer, in the problem's order: O(ops + buffers), once a problem.

    The first of these rules that applies to the op that makes it:

    1. its kind tells: a layer norm, an embedding, an attention kernel, a pooling;
    2. an add of two results in a numbered layer, whose module's own name says nothing, is the residual
       stream;
    3. the module's name, the innermost that has one of the words above;
    4. a convolution, or an activation function (which is the mlp's after an mlp);
    5. the role of what it reads first.
    """
    return problem.once(_module_roles)


def _module_roles(problem: Problem) -> tuple[ModuleRole, ...]:
    if problem.origin is None:
        makers = [each.maker for each in find_provenance(problem)]
        return tuple(_own(maker.kind, maker.module, False) if maker else ModuleRole.OTHER for maker in makers)
    graph = problem.origin.graph
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    role_of: dict[str, ModuleRole] = {}
    for op in graph.ops:
        role = _role_of(op, [role_of[home[name]] for name in op.inputs if home[name] in role_of])
        for name in op.outputs:
            role_of.setdefault(home[name], role)
    return tuple(role_of.get(name, ModuleRole.OTHER) for name in problem.names)


def _role_of(op: Op, inputs: Sequence[ModuleRole]) -> ModuleRole:
    role = _own(op.kind, op.module, len(inputs) > 1)
    if role not in (ModuleRole.OTHER, ModuleRole.ACTIVATION):
        return role
    before = inputs[0] if inputs else ModuleRole.OTHER
    return before if role is ModuleRole.OTHER or before is ModuleRole.MLP else role


@lru_cache(4096)
def _own(kind: str, module: str, joins: bool) -> ModuleRole:
    """What kind and module say by themselves; `joins`: the op reads two results."""
    name = kind_name(kind)
    for role, pattern in _KINDS:
        if pattern.search(name):
            return role
    segments = module.split(".")
    inner = [_words(segment) for segment in segments]
    last = next((words for words in reversed(inner) if words), frozenset())
    numbered = any(segment[-1:].isdigit() for segment in segments)
    if joins and name == "add" and numbered and not last & (_WORDS.keys() | _FUNCTION_WORDS):
        return ModuleRole.RESIDUAL
    for words in reversed(inner):
        found = {_WORDS[word] for word in words & _WORDS.keys()}
        if found:
            role = next(role for role in _ORDER if role in found)
            # The fully connected layer of a convolutional net is its head.
            return ModuleRole.HEAD if words == {"fc"} and not numbered else role
    if _CONVOLUTION.search(name):
        return ModuleRole.CONVOLUTION
    if _FUNCTION.search(name) or last & _FUNCTION_WORDS:
        return ModuleRole.ACTIVATION
    return ModuleRole.OTHER


def kind_name(kind: str) -> str:
    """The kind of an op as every source of graphs would write it: "aten._softmax" → "softmax", "CONV_2D" →
    "conv_2d"."""
    return kind.rpartition(".")[2].strip("_").lower()


def _words(segment: str) -> frozenset[str]:
    """ "self_attn_LayerNorm2" → self, attn, layer, norm."""
    return frozenset(part.lower() for part in _PARTS.findall(segment))
