"""What a server of the tests loads: the slow strategies, as ones that go on and are not waited for long."""

from memplan_dashboard.background import jobs
from slow_strategies import ALL, Deaf, LateProof, SlowSearch

__all__ = ["Deaf", "LateProof", "SlowSearch"]

jobs.GOING_ON = (*jobs.GOING_ON, *(kind.name for kind in ALL))
jobs.FIRST_SECONDS = 0.3
