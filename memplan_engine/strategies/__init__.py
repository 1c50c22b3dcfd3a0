"""All strategies, in the order in which people see them.

To add one: write a file beside this one with a frozen dataclass that has `name`, `description`, `source`
and `place` (see `base.Strategy`), call the file as the strategy, and add both names to BUILT_IN. From another
package: an entry point in the group `memplan.strategies` that names the class.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from memplan_engine.errors import MemplanError
from memplan_engine.strategies.base import Strategy

ENTRY_POINTS = "memplan.strategies"
BUILT_IN = {
    "auto": "Auto",
    "exact": "Exact",
    "search": "Search",
    "greedy_by_size": "GreedyBySize",
    "greedy_by_breadth": "GreedyByBreadth",
    "greedy_by_area": "GreedyByArea",
    "greedy_by_lifetime": "GreedyByLifetime",
    "greedy_by_conflicts": "GreedyByConflicts",
    "best_fit_decreasing": "BestFitDecreasing",
    "linear_scan": "LinearScan",
    "first_fit_by_start": "FirstFitByStart",
    "naive": "Naive",
    "shared_objects_by_size": "SharedObjectsBySize",
    "shared_objects_by_size_improved": "SharedObjectsBySizeImproved",
    "shared_objects_by_breadth": "SharedObjectsByBreadth",
    "shared_objects_in_order": "SharedObjectsInOrder",
    "shared_objects_min_cost_flow": "SharedObjectsMinCostFlow",
    "partition": "Partition",
}
"""The class of each strategy, in the module that is called as the strategy is: it is imported when somebody
asks for that strategy, so that one plan does not wait for all of them."""


@cache
def built_in(name: str) -> Strategy:
    """Our own strategy called `name`, one of BUILT_IN."""
    strategy: Strategy = getattr(import_module(f"{__name__}.{name}"), BUILT_IN[name])()
    return strategy


@cache
def known_strategies() -> dict[str, Strategy]:
    """Every strategy by name: ours first, then those of other packages.

    Raises
    ------
    MemplanError: another package's strategy cannot be loaded, or takes a name that is in use.
    """
    found = {name: built_in(name) for name in BUILT_IN}
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
    """The strategy called `name`; raises MemplanError with the names that exist.

    Other packages are looked at only for a name that is not ours.
    """
    if name in BUILT_IN:
        return built_in(name)
    known = known_strategies()
    if name not in known:
        raise MemplanError(f"no strategy {name!r}; there are: {', '.join(known)}")
    return known[name]
