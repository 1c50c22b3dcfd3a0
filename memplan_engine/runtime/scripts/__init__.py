"""Scripts on fake tensors, each in a process that is forked from one that has imported what it takes."""
