"""Whole buffers share whole pieces of memory."""
