"""Memories of more than one kind: what a bank is, and what may live in which."""
