"""Solvers to compare, each in a process of its own: CPU seconds and memory are then its own."""
