"""Numba kernels: nothing but arrays in, arrays out."""
