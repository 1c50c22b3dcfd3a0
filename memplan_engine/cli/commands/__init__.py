"""The verbs, a file for each family."""
