"""Families of instances, deterministic by seed, and those found on disk."""
