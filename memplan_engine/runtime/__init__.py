"""Running a model inside its plan, or on fake tensors. It needs torch, which most of it imports at once, so
others import it inside functions."""

from memplan_engine.torch_capture.torch_fake import look_for_torch

look_for_torch("running a model")
