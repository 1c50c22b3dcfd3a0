"""A plan over several banks: an ordinary plan for each of them."""
