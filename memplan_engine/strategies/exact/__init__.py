"""Branch and bound over independent parts, and what it proves."""
