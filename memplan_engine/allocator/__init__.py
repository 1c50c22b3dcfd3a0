"""What PyTorch's caching allocator would reserve: its settings, a simulation, what fits on which device."""
