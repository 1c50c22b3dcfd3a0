"""A plan as one HTML file that needs nothing else."""
