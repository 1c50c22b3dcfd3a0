"""What a strategy decides, step by step, and why: from the very kernels that plan."""
