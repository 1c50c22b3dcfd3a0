"""Whether a model needs more memory than it may: ceilings, baselines, the same model at another commit."""
