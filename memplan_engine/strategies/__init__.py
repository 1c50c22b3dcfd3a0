"""All strategies, in the order in which people see them.

To add one: write a file beside this one with a frozen dataclass that has `name`, `description`, `source`
and `place` (see `base.Strategy`), and add an instance to BUILT_IN. From another package: an entry point in
the group `memplan.strategies` that names the class.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from memplan_engine.errors import MemplanError
from memplan_engine.strategies.auto import Auto
from memplan_engine.strategies.base import Strategy
from memplan_engine.strategies.best_fit_decreasing import BestFitDecreasing
from memplan_engine.strategies.exact import Exact
from memplan_engine.strategies.first_fit_by_start import FirstFitByStart
from memplan_engine.strategies.greedy_by_area import GreedyByArea
from memplan_engine.strategies.greedy_by_breadth import GreedyByBreadth
from memplan_engine.strategies.greedy_by_conflicts import GreedyByConflicts
from memplan_engine.strategies.greedy_by_lifetime import GreedyByLifetime
from memplan_engine.strategies.greedy_by_size import GreedyBySize
from memplan_engine.strategies.linear_scan import LinearScan
from memplan_engine.strategies.naive import Naive
from memplan_engine.strategies.partition import Partition
from memplan_engine.strategies.search import Search
from memplan_engine.strategies.shared_objects_by_breadth import SharedObjectsByBreadth
from memplan_engine.strategies.shared_objects_by_size import SharedObjectsBySize
from memplan_engine.strategies.shared_objects_by_size_improved import SharedObjectsBySizeImproved
from memplan_engine.strategies.shared_objects_in_order import SharedObjectsInOrder
from memplan_engine.strategies.shared_objects_min_cost_flow import SharedObjectsMinCostFlow

ENTRY_POINTS = "memplan.strategies"
BUILT_IN: tuple[Strategy, ...] = (
    Auto(),
    Exact(),
    Search(),
    GreedyBySize(),
    GreedyByBreadth(),
    GreedyByArea(),
    GreedyByLifetime(),
    GreedyByConflicts(),
    BestFitDecreasing(),
    LinearScan(),
    FirstFitByStart(),
    Naive(),
    SharedObjectsBySize(),
    SharedObjectsBySizeImproved(),
    SharedObjectsByBreadth(),
    SharedObjectsInOrder(),
    SharedObjectsMinCostFlow(),
    Partition(),
)


@cache
def known_strategies() -> dict[str, Strategy]:
    """Every strategy by name: ours first, then those of other packages.

    Raises
    ------
    MemplanError: another package's strategy cannot be loaded, or takes a name that is in use.
    """
    found = {strategy.name: strategy for strategy in BUILT_IN}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            strategy = entry.load()()
        except Exception as error:
            raise MemplanError(
                f"entry point {entry.name} = {entry.value}: cannot be loaded: {error}"
            ) from error
        if strategy.name in found:
            raise MemplanError(f"entry point {entry.name}: the strategy name {strategy.name!r} is in use")
        found[strategy.name] = strategy
    return found


def get_strategy(name: str) -> Strategy:
    """The strategy called `name`; raises MemplanError with the names that exist."""
    known = known_strategies()
    if name not in known:
        raise MemplanError(f"no strategy {name!r}; there are: {', '.join(known)}")
    return known[name]
