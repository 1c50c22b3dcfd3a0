"""Assigning buffers to shared objects, and matching those of two plans."""
