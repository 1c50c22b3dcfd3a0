"""memplan JSON: `memplan/graph`, `memplan/problem` and `memplan/plan`, each with a version.

One file a format; what they share is in `base`. `schema` makes the published JSON Schemas.
"""
