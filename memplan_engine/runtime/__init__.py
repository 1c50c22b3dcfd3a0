"""Running a model inside its plan. All of it needs torch, so others import it inside functions."""

from memplan_engine.torch_capture.torch_fake import require_torch

require_torch("running a model")
