"""What a session looks at: the address, open documents, caches."""
