"""The page Run and its sections."""
