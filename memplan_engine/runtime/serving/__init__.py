"""Causal language models as servers run them, on fake tensors."""
