"""The page Diff and its sections."""
