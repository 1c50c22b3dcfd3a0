"""`python -m memplan_engine` is `memplan`."""

from memplan_engine.cli.main import main

main()
