"""`memplan`: the command line."""
