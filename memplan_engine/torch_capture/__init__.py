"""Live torch models and saved exported programs → Graph. torch is imported in functions only."""
