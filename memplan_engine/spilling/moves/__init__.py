"""Buffers that move between banks while they live: which way each takes, and the graph with the copies."""
