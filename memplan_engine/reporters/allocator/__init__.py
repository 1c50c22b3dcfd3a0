"""What a caching allocator would reserve, for machines and for people."""
