"""What the checkers run on; no strategy uses it."""
