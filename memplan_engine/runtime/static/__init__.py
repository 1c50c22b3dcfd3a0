"""A model as records over registers, with one buffer for all managed storages."""
