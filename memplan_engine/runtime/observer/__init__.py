"""What a run allocates, op by op."""
