"""Write mobilenet_v1_tflite.json and mobilenet_v2_tflite.json: the two networks on which Pisarchyk and Lee
compare shared objects and offsets (arXiv 2001.03288), at TFLite's granularity.

Float32, one image of 224 × 224 pixels, 1,000 classes. A convolution with its bias and activation is one op,
and so is a residual addition; pooling, logits and softmax count. Weights are left out: they are no part of
the comparison. Run `python -m memplan_examples.make_mobilenet` to make the files anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memplan_examples import PATH

from memplan_engine import Graph, Op, Role, Storage, Tensor, check_graph, write_json

ITEM, CLASSES, SIDE = 4, 1000, 224
V1_BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
"""Channels and stride of each depthwise separable convolution (Howard et al. 2017, table 1)."""
V2_BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, repeats and first stride of each bottleneck (Sandler et al. 2018, table 2)."""


@dataclass
class Net:
    """A network under construction: `add` appends an op with one output and gives the output's name."""

    name: str
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def add(self, name: str, kind: str, side: int, channels: int, *inputs: str) -> str:
        """An op on `inputs` that makes an image of `side` × `side` × `channels`."""
        self.tensors.append(image(name, side, channels))
        self.ops.append(Op(name, kind, inputs, (name,), out_variant=True))
        return name

    def head(self, side: int, channels: int, last: str) -> Graph:
        """Pooling, logits and softmax behind `last`, and the checked graph."""
        last = self.add("pool", "AVERAGE_POOL_2D", 1, channels, last)
        last = self.add("logits", "CONV_2D", 1, CLASSES, last)
        last = self.add("softmax", "SOFTMAX", 1, CLASSES, last)
        tensors = (image("image", SIDE, 3), *self.tensors)
        roles = {"image": Role.INPUT, last: Role.OUTPUT}
        storages = tuple(Storage(t.name, t.nbytes, roles.get(t.name, Role.ACTIVATION)) for t in tensors)
        return check_graph(Graph(self.name, storages, tensors, tuple(self.ops), ("image",), (last,)))


def image(name: str, side: int, channels: int) -> Tensor:
    """A float32 tensor of one image."""
    return Tensor(name, (1, side, side, channels), "float32", side * side * channels * ITEM, name)


def mobilenet_v1() -> Graph:
    """MobileNet v1 1.0: 30 ops, one after the other."""
    net, side, channels = Net("mobilenet_v1_tflite"), SIDE // 2, 32
    last = net.add("conv", "CONV_2D", side, channels, "image")
    for block, (out, stride) in enumerate(V1_BLOCKS, 1):
        side //= stride
        last = net.add(f"depthwise{block}", "DEPTHWISE_CONV_2D", side, channels, last)
        last = net.add(f"pointwise{block}", "CONV_2D", side, out, last)
        channels = out
    return net.head(side, channels, last)


def mobilenet_v2() -> Graph:
    """MobileNet v2 1.0: 65 ops, ten of them residual additions."""
    net, side, channels = Net("mobilenet_v2_tflite"), SIDE // 2, 32
    last = net.add("conv", "CONV_2D", side, channels, "image")
    block = 0
    for expansion, out, repeats, first_stride in V2_BLOCKS:
        for repeat in range(repeats):
            block += 1
            stride = 1 if repeat else first_stride
            before, wide = last, channels * expansion
            if expansion > 1:
                last = net.add(f"expand{block}", "CONV_2D", side, wide, last)
            side //= stride
            last = net.add(f"depthwise{block}", "DEPTHWISE_CONV_2D", side, wide, last)
            last = net.add(f"project{block}", "CONV_2D", side, out, last)
            if stride == 1 and channels == out:
                last = net.add(f"add{block}", "ADD", side, out, before, last)
            channels = out
    last = net.add("features", "CONV_2D", side, 1280, last)
    return net.head(side, 1280, last)


def main() -> None:
    """Write both files beside this one."""
    for graph in (mobilenet_v1(), mobilenet_v2()):
        write_json(graph, PATH / f"{graph.name}.json")


if __name__ == "__main__":
    main()
