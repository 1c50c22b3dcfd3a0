"""Ranks on their devices, for machines and for people."""
