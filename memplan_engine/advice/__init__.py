"""What to do about a peak: changes that were planned and checked, with what each saves."""
