"""The page Inspect and its sections."""
