"""PyTorch's caching allocator, event by event: its free blocks, its rules, and the loop over a recording."""
