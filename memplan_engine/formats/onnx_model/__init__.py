"""ONNX models → Graph, without their weights."""
