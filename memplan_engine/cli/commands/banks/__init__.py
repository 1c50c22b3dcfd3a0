"""What the verbs do where there are several memories."""
