"""What if a problem were a little different? Edits of its buffers, and the smallest that makes it fit."""
