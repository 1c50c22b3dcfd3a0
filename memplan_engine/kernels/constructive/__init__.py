"""Placing buffers one after another: order × fit, linear scan, stacking."""
