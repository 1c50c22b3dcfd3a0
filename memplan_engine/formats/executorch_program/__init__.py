"""ExecuTorch programs, read with the plan that is in them."""
