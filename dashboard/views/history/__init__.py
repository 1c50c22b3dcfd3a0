"""The page History and its sections."""
