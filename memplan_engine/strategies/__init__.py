"""All strategies, in the order in which people see them.

To add an order × fit: a row in `constructive/greedy.py`. Any other, named in BUILT_IN: a frozen dataclass
that has `name`, `description`, `source` and `place` (see `base.Strategy`). From another package: an entry
point in the group `memplan.strategies` that names the strategy or its class.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from memplan_engine.errors import MemplanError
from memplan_engine.strategies.base import Strategy
from memplan_engine.strategies.constructive.greedy import GREEDY
from memplan_engine.system import by_name, installed

ENTRY_POINTS = "memplan.strategies"
BUILT_IN: dict[str, str | Strategy] = {
    "auto": "auto:Auto",
    "exact": "exact.exact_search:Exact",
    "search": "search.local_search:Search",
    **{strategy.name: strategy for strategy in GREEDY},
    "linear_scan": "constructive.linear_scan:LinearScan",
    "naive": "constructive.linear_scan:Naive",
    "shared_objects_by_size": "shared_objects.assignment:SHARED_OBJECTS_BY_SIZE",
    "shared_objects_by_size_improved": "shared_objects.assignment:SHARED_OBJECTS_BY_SIZE_IMPROVED",
    "shared_objects_by_breadth": "shared_objects.assignment:SHARED_OBJECTS_BY_BREADTH",
    "shared_objects_in_order": "shared_objects.assignment:SHARED_OBJECTS_IN_ORDER",
    "shared_objects_min_cost_flow": "shared_objects.assignment:SHARED_OBJECTS_MIN_COST_FLOW",
    "partition": "shared_objects.assignment:PARTITION",
}
"""Each strategy, or where it stands below this package, as module:name of a strategy or of its class: that is
imported when somebody asks for it, so that one plan does not wait for all of them."""


@cache
def built_in(name: str) -> Strategy:
    """Our own strategy called `name`, one of BUILT_IN."""
    entry = BUILT_IN[name]
    return _instance(by_name(f"{__name__}.{entry}")) if isinstance(entry, str) else entry


def _instance(entry: Any) -> Strategy:
    strategy: Strategy = entry() if callable(entry) else entry
    return strategy


@cache
def known_strategies() -> dict[str, Strategy]:
    """Every strategy by name: ours first, then those of other packages.

    Raises
    ------
    MemplanError: another package's strategy cannot be loaded, or takes a name that is in use.
    """
    strategies = {name: built_in(name) for name in BUILT_IN}
    for entry, strategy in installed(ENTRY_POINTS):
        if strategy.name in strategies:
            raise MemplanError(f"entry point {entry.name}: the strategy name {strategy.name!r} is in use")
        strategies[strategy.name] = strategy
    return strategies


def get_strategy(name: str) -> Strategy:
    """The strategy called `name`; raises MemplanError with the names that exist.

    Other packages are looked at only for a name that is not ours.
    """
    if name in BUILT_IN:
        return built_in(name)
    strategies = known_strategies()
    if name not in strategies:
        shown = repr(name if len(name) <= 80 else f"{name[:79]}…")
        raise MemplanError(f"no strategy {shown}; there are: {', '.join(strategies)}")
    return strategies[name]
