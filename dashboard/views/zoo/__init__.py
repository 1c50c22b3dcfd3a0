"""The page Zoo, and its sections."""
