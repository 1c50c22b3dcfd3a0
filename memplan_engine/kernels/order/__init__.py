"""The order of ops with the fewest live bytes: walks over closed sets, maximum flows, the exact search."""
