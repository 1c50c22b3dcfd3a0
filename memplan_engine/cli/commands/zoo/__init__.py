"""`memplan zoo`."""
