"""`memplan history`: a verb a file."""
