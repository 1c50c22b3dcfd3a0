"""What kernels take for themselves, by formulas that were fitted on one machine."""
