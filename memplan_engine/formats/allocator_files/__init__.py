"""What allocators recorded: CUDA memory snapshots, traces and timelines of PyTorch's profiler."""
