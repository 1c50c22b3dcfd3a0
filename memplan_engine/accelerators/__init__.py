"""GPUs as data: how much memory they have, and what a process takes of it beside its tensors."""
