"""The eager run without running it: models, steps and scripts on fake tensors, and what ops allocate."""
