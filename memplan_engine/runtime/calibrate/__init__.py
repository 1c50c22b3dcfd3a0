"""Measuring once what kernels take for themselves on this machine."""
