"""A graph whose peak is not in its arena: one of its ops holds more for itself than all storages take."""

from memplan_engine import Op, Workspace, make_plan, to_problem
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from tests.support.graphs import make_graph

#   steps          0    1    2
#   a (100)        ├─────────┤
#   b  (50)             ├─────────┤
#   c  (10)                  ├────┤
#   scratch        0  200    5
#   held         100  350   65     Step 1 is the peak; the arena is 150.
HELD = [100, 350, 65]


def scratch_graph() -> Graph:
    ops = [
        Op("f", "aten.f", ("x",), ("a",)),
        Op("g", "aten.g", ("a",), ("b",), workspace=Workspace(200)),
        Op("h", "aten.h", ("b",), ("c",), workspace=Workspace(5)),
    ]
    sizes = {"x": 8, "a": 100, "b": 50, "c": 10}
    return make_graph(ops, sizes, inputs=("x",), outputs=("c",))


def scratch_plan() -> Plan:
    """Its plan."""
    return make_plan(to_problem(scratch_graph(), alignment=1))
