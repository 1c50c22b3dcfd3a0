"""Finished values → tables for people, plain values for machines, sentences."""
