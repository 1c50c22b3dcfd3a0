"""Does a graph fit into a capacity, and what has to be done for it? In stages, cheapest first."""
