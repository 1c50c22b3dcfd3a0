"""Plans over several memories."""
