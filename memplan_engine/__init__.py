"""memplan: plans the memory of neural-network graphs."""
