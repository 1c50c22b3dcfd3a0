"""Benchmarks: each file beside this one prints a table; `families` makes instances, `solvers` runs peers."""
