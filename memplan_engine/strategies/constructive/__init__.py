"""Order × fit, linear scan, no reuse: one pass, no search."""
