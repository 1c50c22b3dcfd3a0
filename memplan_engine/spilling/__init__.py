"""Which buffer lives in which bank: assignment, bounds, and the search for both."""
