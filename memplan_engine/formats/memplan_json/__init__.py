"""memplan JSON: graphs, problems, plans, schedules, edits, observations, runs; schemas, readers, writers."""
