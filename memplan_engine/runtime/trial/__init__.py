"""A model run inside its plan, compared with itself as it is."""
