"""Broken files, made by a grammar of each format, for every reader. See `__main__`."""
