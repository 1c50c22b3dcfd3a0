"""What a server of the tests loads: the slow strategies, which are not waited for long."""

from memplan_dashboard.background import jobs

from tests.support.slow_strategies import Deaf, LateProof, SlowSearch

__all__ = ["Deaf", "LateProof", "SlowSearch"]

jobs.FIRST_SECONDS = 0.3
