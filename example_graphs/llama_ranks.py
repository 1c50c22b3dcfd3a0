"""A Llama trained on many devices, as scripts for `torchrun` are written: sharded data parallel, replicas,
tensor and sequence parallel, pipelines, checkpoints, in any combination.

    torchrun --nproc-per-node 4 example_graphs/llama_ranks.py --device cpu --tp 2
    memplan devices example_graphs/llama_ranks.py --world 8 --device h100-80 -- --model 8b

It knows nothing of memplan. Sizes are those of the models' published `config.json`; data are random numbers.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


@dataclass(frozen=True)
class Sizes:
    """Of a model: width, layers, heads, heads of keys and values, width of the feed-forward layers, words."""

    width: int
    layers: int
    heads: int
    groups: int
    inner: int
    words: int
    theta: float = 500_000.0


MODELS = {
    "tiny": Sizes(64, 4, 4, 2, 160, 256),
    "8b": Sizes(4096, 32, 32, 8, 14336, 128256),
    "70b": Sizes(8192, 80, 64, 8, 28672, 128256),
}
"""meta-llama/Meta-Llama-3-8B and -70B by their `config.json`, and one for trying out."""


class Attention(nn.Module):
    """Attention with rotated positions, fewer heads for keys and values than for queries."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head, self.repeats = sizes.width // sizes.heads, sizes.heads // sizes.groups
        self.wq = nn.Linear(sizes.width, sizes.heads * self.head, bias=False)
        self.wk = nn.Linear(sizes.width, sizes.groups * self.head, bias=False)
        self.wv = nn.Linear(sizes.width, sizes.groups * self.head, bias=False)
        self.wo = nn.Linear(sizes.heads * self.head, sizes.width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """The heads follow from what the layers give: tensor parallel leaves some of them here."""
        q, k, v = (each(x).unflatten(-1, (-1, self.head)) for each in (self.wq, self.wk, self.wv))
        q, k = rotated(q, k, angles)
        k, v = (each.repeat_interleave(self.repeats, dim=2) for each in (k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).contiguous().flatten(2))


def rotated(q: Tensor, k: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys, turned by the angles of their positions as complex numbers."""
    pairs_q = torch.view_as_complex(q.float().unflatten(-1, (-1, 2)))
    pairs_k = torch.view_as_complex(k.float().unflatten(-1, (-1, 2)))
    turn = angles[: q.shape[1]].view(1, q.shape[1], 1, -1)
    turned_q = torch.view_as_real(pairs_q * turn).flatten(3)
    turned_k = torch.view_as_real(pairs_k * turn).flatten(3)
    return turned_q.type_as(q), turned_k.type_as(k)


class FeedForward(nn.Module):
    """The gated layers."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.w1 = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.w2 = nn.Linear(sizes.inner, sizes.width, bias=False)
        self.w3 = nn.Linear(sizes.width, sizes.inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """As wide as it came."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Attention, then feed-forward, each after a norm and beside the residual."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(sizes), FeedForward(sizes)
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(sizes.width, eps=1e-5) for _ in range(2))

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """As wide as it came."""
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """The layers `first` to `end` of the model; the first part has the embedding, the last the output."""

    def __init__(self, sizes: Sizes, longest: int, first: int = 0, end: int | None = None) -> None:
        super().__init__()
        self.sizes, self.longest = sizes, longest
        end = sizes.layers if end is None else end
        self.tok_embeddings = nn.Embedding(sizes.words, sizes.width) if first == 0 else None
        self.register_buffer("angles", self.all_angles())
        self.layers = nn.ModuleDict({str(layer): Block(sizes) for layer in range(first, end)})
        is_last = end == sizes.layers
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5) if is_last else None
        self.output = nn.Linear(sizes.width, sizes.words, bias=False) if is_last else None

    def all_angles(self) -> Tensor:
        """Of each position and pair a complex number of length 1."""
        head = self.sizes.width // self.sizes.heads
        each = 1.0 / self.sizes.theta ** (torch.arange(0, head, 2).float() / head)
        turns = torch.outer(torch.arange(self.longest), each).float()
        return torch.polar(torch.ones_like(turns), turns)

    def fill(self) -> None:
        """Weights, once they have a place."""
        with torch.device(self.angles.device):
            self.angles = self.all_angles()
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.trunc_normal_(weight, std=0.02)
            else:
                nn.init.ones_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Of words or of what the part before gave: scores of words, or what the next part takes."""
        h = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            h = layer(h, self.angles)
        h = self.norm(h) if self.norm is not None else h
        return self.output(h) if self.output is not None else h


def loss_of(scores: Tensor, words: Tensor) -> Tensor:
    """The mean over all words, in single precision."""
    return functional.cross_entropy(scores.flatten(0, 1).float(), words.flatten(0, 1))


SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
"""What selective checkpoints keep, of the matrix products every second, as torchtitan does it."""


def selective() -> Any:
    """The contexts of one checkpoint that keeps SAVED."""
    products: Counter[bool] = Counter()

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        again = context.is_recompute
        products[again] += operator is torch.ops.aten.mm.default
        skipped = operator is torch.ops.aten.mm.default and products[again] % 2 == 0
        keep = operator in SAVED and not skipped
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def with_checkpoints(model: Llama, kind: str) -> None:
    """Run layers again in the backward pass: all of each ("full"), or what SAVED does not name."""
    more = {"context_fn": selective} if kind == "selective" else {}
    for name, layer in model.layers.items():
        model.layers[name] = checkpoint_wrapper(layer, preserve_rng_state=False, **more)


def tensor_parallel(model: Llama, mesh: DeviceMesh) -> None:
    """Columns and rows of the matrices on the ranks of `mesh`, between them the sequence."""
    plan: dict[str, Any] = {}
    if model.tok_embeddings is not None:
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if model.output is not None:
        plan["norm"] = SequenceParallel()
        plan["output"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh, plan)
    whole = partial(PrepareModuleInput, input_layouts=(Shard(1), None))
    for layer in model.layers.values():
        parallelize_module(
            layer,
            mesh,
            {
                "attention_norm": SequenceParallel(),
                "attention": whole(desired_input_layouts=(Replicate(), None)),
                **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
                "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
                "ffn_norm": SequenceParallel(),
                "feed_forward": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                ),
                **{f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")},
                "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            },
        )


def sharded(model: Llama, mesh: DeviceMesh, piped: bool, bfloat16: bool) -> None:
    """Each layer's weights gathered when it runs; two dimensions of `mesh` are replicas of shards."""
    kinds = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if bfloat16 else {}
    policy = MixedPrecisionPolicy(**kinds)
    last = max(map(int, model.layers), default=0)
    for name, layer in model.layers.items():
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not piped and int(name) < last)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=not piped)


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of the sharded model")
    parser.add_argument("--tp", type=int, default=1, help="ranks that share each matrix")
    parser.add_argument("--pp", type=int, default=1, help="stages of the pipeline")
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--parts", type=int, default=0, help="micro-batches (default: twice the stages)")
    parser.add_argument("--checkpoint", choices=("none", "full", "selective"), default="none")
    parser.add_argument("--data", choices=("shard", "ddp", "none"), default="shard")
    parser.add_argument(
        "--bucket-view", action="store_true", help="with --data ddp: gradients in its buckets"
    )
    parser.add_argument("--batch", type=int, default=2, help="of each rank; of a pipeline, of a micro-batch")
    parser.add_argument("--words", type=int, default=32, help="length of the sequences")
    parser.add_argument("--bfloat16", action="store_true", help="layers in bfloat16, reductions in float32")
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="adamw")
    parser.add_argument("--clip", type=float, default=0.0, help="largest norm of the gradients")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """What a rank does."""
    options = parse()
    device = options.device
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    torch.manual_seed(0)
    ways = options.pp * options.tp * options.replicas
    mesh = init_device_mesh(
        device,
        (options.pp, options.replicas, dist.get_world_size() // ways, options.tp),
        mesh_dim_names=("pp", "replicas", "shards", "tp"),
    )
    if options.pp > 1:
        train_pipeline(options, mesh)
    else:
        train(options, mesh)
    dist.destroy_process_group()


def prepared(options: argparse.Namespace, mesh: DeviceMesh, first: int, end: int | None) -> nn.Module:
    """A part of the model in all ways that are asked for, with weights."""
    with torch.device("meta"):
        model = Llama(MODELS[options.model], options.words, first, end)
    if options.tp > 1:
        tensor_parallel(model, mesh["tp"])
    if options.checkpoint != "none":
        with_checkpoints(model, options.checkpoint)
    if options.data == "shard":
        dims = ("replicas", "shards") if options.replicas > 1 else "shards"
        sharded(model, mesh[dims], options.pp > 1, options.bfloat16)
    model.to_empty(device=options.device)
    with torch.no_grad():
        model.fill()
    if options.data == "ddp":
        return nn.parallel.DistributedDataParallel(
            model, process_group=mesh["shards"].get_group(), gradient_as_bucket_view=options.bucket_view
        )
    return model


def update(options: argparse.Namespace, optimizers: list[torch.optim.Optimizer], models: list[Any]) -> None:
    """Gradients clipped, a step of each optimizer, gradients gone."""
    if options.clip:
        weights = [weight for model in models for weight in model.parameters()]
        nn.utils.clip_grad_norm_(weights, options.clip, foreach=True)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def optimizer_of(options: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    """The one that was asked for, many tensors at once."""
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[options.optimizer](model.parameters(), lr=3e-4, foreach=True)


def train(options: argparse.Namespace, mesh: DeviceMesh) -> None:
    """Steps of the whole model."""
    model = prepared(options, mesh, 0, None)
    optimizer = optimizer_of(options, model)
    for _ in range(options.steps):
        words = torch.randint(MODELS[options.model].words, (options.batch, options.words + 1)).to(
            options.device
        )
        scores = model(words[:, :-1])
        loss = loss_of(scores, words[:, 1:])
        del scores
        loss.backward()
        update(options, [optimizer], [model])


def train_pipeline(options: argparse.Namespace, mesh: DeviceMesh) -> None:
    """Each rank has one stage, or two and more where the schedule goes through the ranks several times."""
    sizes, rank = MODELS[options.model], mesh["pp"].get_local_rank()
    kind = get_schedule_class(options.schedule)
    rounds = 2 if issubclass(kind, PipelineScheduleMulti) else 1
    count = options.pp * rounds
    # A schedule that turns at the end comes back through the ranks in the other direction.
    turns = options.schedule in ("ZBVZeroBubble", "DualPipeV")
    places = [rank, count - 1 - rank] if turns else [rank + options.pp * turn for turn in range(rounds)]
    ends = [sizes.layers * place // count for place in range(count + 1)]
    models = [prepared(options, mesh, ends[place], ends[place + 1]) for place in places]
    stages = [
        PipelineStage(model, place, count, torch.device(options.device), group=mesh["pp"].get_group())
        for model, place in zip(models, places, strict=True)
    ]
    parts = options.parts or 2 * options.pp
    schedule: Any = kind(stages if rounds > 1 else stages[0], n_microbatches=parts, loss_fn=loss_of)
    optimizers = [optimizer_of(options, model) for model in models]
    for _ in range(options.steps):
        words = torch.randint(sizes.words, (options.batch * parts, options.words + 1)).to(options.device)
        given = (words[:, :-1],) if 0 in places else ()
        wanted = {"target": words[:, 1:]} if count - 1 in places else {}
        schedule.step(*given, **wanted)
        update(options, optimizers, models)


if __name__ == "__main__":
    main()
