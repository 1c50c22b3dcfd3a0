"""What a plan, a problem or a graph says of itself: peak, layout, provenance, phases, workspaces."""
