"""Ops that run again instead of having their results kept: bytes for time, with a proved bound on the
time."""
