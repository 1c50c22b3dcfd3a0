"""Two plans side by side: what stands for what, what changed, and why the arena did."""
