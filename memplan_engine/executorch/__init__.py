"""Memory planning for ExecuTorch: an algorithm for its `MemoryPlanningPass`."""
