"""What a zoo came to, for people and for machines."""
