"""Storages at planned offsets in one real allocation."""
