"""Schedules in which ops run again: how they come about, and what is live in them."""
