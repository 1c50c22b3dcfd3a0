"""Write squeezenet.onnx, SqueezeNet 1.1 (Iandola et al., arXiv 1602.07360), and transformer_dynamic.onnx, a
small transformer encoder whose batch and sequence length are named dimensions; both without their weights.

The weights are declared to be in a file beside the model, which is not there: planning needs only shapes.
Run `python -m memplan_examples.make_onnx` to make them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memplan_examples import PATH

from memplan_engine.system import write_atomically

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))
"""Squeeze and expand channels of each fire module; None is a pooling layer."""


class Builder:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, path: str, kind: str, inputs: list[str], **attributes: object) -> str:
        """Add a node called /path/kind."""
        from onnx import helper

        name = f"/{path}/{kind}"
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_output"], name, **attributes))
        return f"{name}_output"

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a weight that lies in another file."""
        from onnx import TensorProto

        tensor = TensorProto(
            name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value=f"{self.name}.weights")
        self.weights.append(tensor)
        return name

    def constant(self, name: str, values: list[int]) -> str:
        """Add a list of whole numbers."""
        from onnx import TensorProto, helper

        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def linear(self, path: str, x: str, width: tuple[int, int]) -> str:
        """Add a matrix product with bias."""
        module = path.replace("/", ".")
        product = self.node(path, "MatMul", [x, self.weight(f"{module}.weight", width)])
        return self.node(path, "Add", [product, self.weight(f"{module}.bias", (width[1],))])

    def norm(self, path: str, x: str, width: int) -> str:
        """Add a layer normalization."""
        module = path.replace("/", ".")
        both = [self.weight(f"{module}.{name}", (width,)) for name in ("weight", "bias")]
        return self.node(path, "LayerNormalization", [x, *both])

    def conv(self, path: str, x: str, channels: tuple[int, int], kernel: int, **attributes: object) -> str:
        """Add a convolution with bias and the activation behind it."""
        module = path.replace("/", ".")
        inputs = [
            x,
            self.weight(f"{module}.weight", (channels[1], channels[0], kernel, kernel)),
            self.weight(f"{module}.bias", (channels[1],)),
        ]
        out = self.node(path, "Conv", inputs, kernel_shape=[kernel, kernel], **attributes)
        return self.node(path, "Relu", [out])

    def fire(self, path: str, x: str, channels: int, squeeze: int, expand: int) -> str:
        """Add a fire module: squeeze to few channels, expand by 1×1 and 3×3, concatenate."""
        squeezed = self.conv(f"{path}/squeeze", x, (channels, squeeze), 1)
        narrow = self.conv(f"{path}/expand1x1", squeezed, (squeeze, expand), 1)
        wide = self.conv(f"{path}/expand3x3", squeezed, (squeeze, expand), 3, pads=[1, 1, 1, 1])
        return self.node(path, "Concat", [narrow, wide], axis=1)

    def pool(self, path: str, x: str) -> str:
        """Add a pooling layer that halves the sides, rounded up."""
        return self.node(path, "MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


def attention(net: Builder, path: str, x: str, width: int, heads: int) -> str:
    """Add self-attention. Batch and length are asked of the input, as exporters write it."""
    size = net.node(path, "Shape", [x], end=2)
    apart = net.node(
        f"{path}/apart", "Concat", [size, net.constant(f"{path}/heads", [heads, width // heads])], axis=0
    )
    together = net.node(f"{path}/together", "Concat", [size, net.constant(f"{path}/width", [width])], axis=0)
    parts = {}
    for part, axes in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        split = net.node(
            f"{path}/{part}", "Reshape", [net.linear(f"{path}/{part}", x, (width, width)), apart]
        )
        parts[part] = net.node(f"{path}/{part}", "Transpose", [split], perm=axes)
    scores = net.node(path, "MatMul", [parts["query"], parts["key"]])
    weights = net.node(path, "Softmax", [scores], axis=-1)
    mixed = net.node(f"{path}/mix", "MatMul", [weights, parts["value"]])
    mixed = net.node(f"{path}/mix", "Transpose", [mixed], perm=[0, 2, 1, 3])
    joined = net.node(f"{path}/mix", "Reshape", [mixed, together])
    return net.linear(f"{path}/out", joined, (width, width))


def build_transformer(layers: int = 2, width: int = 256, heads: int = 4) -> bytes:
    """The encoder: batch × seq token ids in, the first token's vector out."""
    from onnx import TensorProto, helper

    net = Builder("transformer_dynamic")
    x = net.node("tokens", "Gather", [net.weight("tokens.weight", (8000, width)), "input_ids"])
    for layer in range(layers):
        path = f"layers.{layer}"
        x = net.node(path, "Add", [x, attention(net, f"{path}/attention", x, width, heads)])
        x = net.norm(f"{path}/norm1", x, width)
        wide = net.linear(f"{path}/up", x, (width, 4 * width))
        wide = net.node(f"{path}/up", "Relu", [wide])
        x = net.node(f"{path}/ff", "Add", [x, net.linear(f"{path}/down", wide, (4 * width, width))])
        x = net.norm(f"{path}/norm2", x, width)
    x = net.node("first", "Gather", [x, net.constant("first", [0])], axis=1)
    graph = helper.make_graph(
        net.nodes,
        "transformer",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", 1, width])],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def build() -> bytes:
    """SqueezeNet, one image of 3 × 224 × 224."""
    from onnx import TensorProto, helper

    net = Builder("squeezenet")
    x = net.pool("pool1", net.conv("conv1", "image", (3, 64), 3, strides=[2, 2]))
    channels = 64
    for index, fire in enumerate(FIRES, start=2):
        if fire is None:
            x = net.pool(f"pool{index}", x)
        else:
            x = net.fire(f"fire{index}", x, channels, *fire)
            channels = 2 * fire[1]
    x = net.node("classifier", "Dropout", [x])
    x = net.conv("classifier", x, (channels, 1000), 1)
    x = net.node("classifier", "GlobalAveragePool", [x])
    x = net.node("classifier", "Flatten", [x], axis=1)
    graph = helper.make_graph(
        net.nodes,
        "squeezenet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 1000])],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main() -> None:
    """Write the files beside this one."""
    write_atomically(PATH / "squeezenet.onnx", build())
    write_atomically(PATH / "transformer_dynamic.onnx", build_transformer())


if __name__ == "__main__":
    main()
