"""What git tells of a project: commits with their parents and branches, and work trees for some of them."""
