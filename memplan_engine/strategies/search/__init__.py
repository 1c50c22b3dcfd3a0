"""Local search: starts, repair, large neighbourhoods."""
