"""What is said of models held against what they may need."""
