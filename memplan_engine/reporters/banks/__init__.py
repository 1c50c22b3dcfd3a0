"""Plans over several banks: for machines, and as Rich renderables for people."""
