"""The verb that holds models against what they may need."""
