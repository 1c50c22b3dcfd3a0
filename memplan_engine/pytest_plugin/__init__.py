"""The marker `memplan` and the fixture of that name, for tests of whoever uses pytest."""
