"""Rectangles → pixels."""
