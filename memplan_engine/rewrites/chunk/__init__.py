"""Regions of a graph that run in pieces along one dimension, in fewer bytes: rows by rows, with other last
digits."""
