"""Lists of buffers as CSV."""
