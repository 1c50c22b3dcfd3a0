"""What the operating system and Python offer: cores and memory, files written whole, modules by name."""
