"""What an allocator really did: recordings of its events, as buffers, as a placement, and what it cost."""
