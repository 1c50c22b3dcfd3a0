"""Write squeezenet.onnx: SqueezeNet 1.1 (Iandola et al., arXiv 1602.07360) without its weights.

The weights are declared to be in a file beside the model, which is not there: planning needs only shapes.
Run `python -m example_graphs.make_onnx` to make it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from example_graphs import PATH
from memplan_engine.atomic import write_atomically

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))
"""Squeeze and expand channels of each fire module; None is a pooling layer."""


class Builder:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self) -> None:
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
        tensor.external_data.add(key="location", value="squeezenet.weights")
        self.weights.append(tensor)
        return name

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


def build() -> bytes:
    """The model, one image of 3 × 224 × 224."""
    from onnx import TensorProto, helper

    net = Builder()
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
    """Write the file beside this one."""
    write_atomically(PATH / "squeezenet.onnx", build())


if __name__ == "__main__":
    main()
