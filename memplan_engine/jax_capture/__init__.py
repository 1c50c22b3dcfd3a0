"""JAX functions as graphs: what XLA makes of them."""
