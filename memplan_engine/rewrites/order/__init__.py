"""The order of ops with the lowest peak of live bytes, with a proof over all orders."""
