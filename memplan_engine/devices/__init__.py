"""Ranks of a distributed run on devices: what each reserves, and whether it fits."""
