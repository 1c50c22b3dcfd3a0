"""Kernels that assign buffers to banks by their live bytes."""
