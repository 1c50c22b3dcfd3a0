"""Plans as C: a header with the offsets, and what a linker has to be told."""
