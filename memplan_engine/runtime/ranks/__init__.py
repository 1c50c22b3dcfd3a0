"""Ranks of a distributed run in one process, without the others."""
