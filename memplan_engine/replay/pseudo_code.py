"""The strategies as a few lines each: what a page lights up while it replays them.

A line is found by its number; the constants say which one acts in which decision.
"""

from __future__ import annotations

from memplan_engine.strategies.constructive.orders import FitRule, Order
from memplan_engine.strategies.shared_objects.assignment import ObjectRule

FIXED, IN_HOLE, ABOVE = 0, 4, 5
"""Order × fit, and no reuse: what has its offset already, what goes into a hole, what goes above all."""
STACK_FIXED, STACKED = 0, 3
SCAN_FIXED, SCAN_EMPTY, SCAN_RANGE, SCAN_EXCHANGE, SCAN_END = 0, 3, 5, 7, 9
JOINED, NEW_OBJECT = 3, 5
TREE_ROOT, TREE_PLACE, TREE_LIFT = 0, 5, 7
TREE_FULL, TREE_KNOWN, TREE_SOLVED, TREE_MAY_REST = 1, 2, 3, 6

_HOLE = {
    FitRule.FIRST: "the lowest hole that holds b",
    FitRule.BEST: "the smallest hole that holds b, the lowest of equals",
    FitRule.TOP: "none: holes are left empty",
}
_OBJECT = {
    ObjectRule.SMALLEST: "the smallest of them that is large enough, else the largest, which grows",
    ObjectRule.LEAST_IDLE: "the one with the fewest idle steps next to b, of equals the largest",
    ObjectRule.CLOSEST: "the one whose size is closest to that of b",
    ObjectRule.FULLEST: "the one with the largest sum of sizes",
}

NO_REUSE = (
    "place every b with a fixed offset",
    "top = end of the topmost of them",
    "for b in the order of the problem:",
    "    b.offset = first multiple of b.alignment from top on",
    "    top = end of b",
)
BRANCH_AND_BOUND = (
    "search(state): raise every low as far as what is placed demands",
    "    if a column is too full, or a low is past its latest offset: refuted",
    "    if this state was refuted before: refuted",
    "    if every buffer is placed: solved",
    "    b = buffer under which nothing else fits, in the column that last failed, else the hardest",
    "    search(state with b placed at its low)",
    "    if that is refuted, and b may rest on another buffer instead:",
    "        search(state with the low of b lifted to the lowest end of such a buffer)",
)
"""What `exact` asks of each capacity, from the lower bound upwards."""


def order_fit(order: Order | None, fit: FitRule) -> tuple[str, ...]:
    """An order and a rule for choosing the hole."""
    return (
        "place every b with a fixed offset",
        f"for b in order ({order.words if order else 'its own'}):",
        "    holes = gaps between the placed buffers that are live with b",
        f"    hole = {_HOLE[fit]}",
        "    if there is one: b.offset = first multiple of b.alignment in it",
        "    else: b.offset = first multiple of b.alignment above all of them",
    )


def linear_scan(fit: FitRule) -> tuple[str, ...]:
    """An active set and a free list."""
    which = "smallest" if fit is FitRule.BEST else "lowest"
    return (
        "place every b with a fixed offset; the scan begins above them",
        "for b in order of start, then end:",
        "    give the bytes of all active buffers that have ended back to the free list",
        "    if b has no bytes: it goes to the bottom of the scan",
        f"    range = {which} free range that holds b",
        "    if there is one: b takes its bytes from it",
        "    else: a = active buffer that ends last, after b, and is large enough",
        "        if there is one: b takes the place of a, and a moves to the end",
        "        else:",
        "            b goes to the end",
        "    add b to the active set",
    )


def shared_objects(order: Order, rule: ObjectRule) -> tuple[str, ...]:
    """Whole objects that one buffer after the other uses."""
    return (
        f"for b in order ({order.words}):",
        "    free = objects in which nothing is live with b",
        f"    o = {_OBJECT[rule]}",
        "    if there is one: b joins o, which grows to the size of b if it is smaller",
        "    else:",
        "        b gets a new object of its size",
        "lay the objects one behind another",
    )
