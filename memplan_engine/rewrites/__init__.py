"""Changes of a graph or a plan that need less memory, each with the check that shares nothing with it."""
