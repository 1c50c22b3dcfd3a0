"""The page Pipeline."""
