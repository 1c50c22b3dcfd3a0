"""Schedules in which storages wait on the host for a while: when each is copied, and what that takes."""
