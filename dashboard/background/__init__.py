"""Work in processes of their own: searches and runs."""
