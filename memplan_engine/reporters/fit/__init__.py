"""What came of a fit, in words."""
