"""The chart of the pages in a notebook, as an anywidget: `chart(plan)` in JupyterLab, marimo and VS Code."""

from __future__ import annotations

from typing import Any

from memplan_dashboard.plan_view.component import notebook_script, styles
from memplan_dashboard.plan_view.packing import pack
from memplan_dashboard.session.documents import AS_IT_IS, Document
from memplan_dashboard.session.plan_facts import PlanFacts, make_facts
from memplan_dashboard.widgets.plan_panels import make_panel

from memplan_engine import MemplanError, Plan
from memplan_engine.plotting.colouring import COLOURINGS

try:
    import anywidget
    import traitlets
except ImportError:
    raise MemplanError("the chart in notebooks needs anywidget: pip install 'memplan[notebook]'") from None

MOST_BUFFERS = 200_000
"""All rectangles travel: with more the browser takes seconds, and the dashboard is the place."""


class PlanChart(anywidget.AnyWidget):
    """A plan as the dashboard draws it. `selected` is the name of the selected buffer, None for none: it
    follows clicks, and setting it selects."""

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    _message = traitlets.Bytes().tag(sync=True)
    _report = traitlets.Dict().tag(sync=True)
    selected = traitlets.Unicode(None, allow_none=True).tag(sync=True)

    def __init__(self, facts: PlanFacts, colour_by: str, height: int) -> None:
        colouring = COLOURINGS[colour_by](facts.plan.problem)
        self._names = facts.plan.problem.names
        self._panel = make_panel(facts, colouring)
        self._shared: dict[str, Any] = {
            "height": height,
            "palette": [list(pair) for pair in colouring.palette],
            "legend": [[label, int(index)] for label, index in colouring.legend],
            "patterns": None,
            "filters": None,
            "find": None,
            "actions": [],
            "marks": [None, None],
            "marksSerial": 0,
        }
        self._serial, self._clicked = 0, False
        super().__init__(_esm=notebook_script(), _css=styles(), _message=self._packed(None))

    def _packed(self, selected: int | None) -> bytes:
        self._serial += 1
        view = {"key": f"chart-{id(self)}", "selected": selected, "serial": self._serial}
        return pack([self._panel], {**self._shared, **view})

    @traitlets.observe("_report")
    def _hear(self, change: Any) -> None:
        index = change["new"].get("index")
        known = isinstance(index, int) and 0 <= index < len(self._names)
        self._clicked = True
        self.selected = self._names[index] if known else None
        self._clicked = False

    @traitlets.validate("selected")
    def _check(self, proposal: Any) -> str | None:
        name: str | None = proposal["value"]
        if name is not None and name not in self._names:
            raise MemplanError(f"selected: found {name[:80]!r}, expected the name of a buffer")
        return name

    @traitlets.observe("selected")
    def _show(self, change: Any) -> None:
        if not self._clicked:
            name = change["new"]
            self._message = self._packed(None if name is None else self._names.index(name))


def chart(plan: Plan, colour_by: str = "", height: int = 520) -> PlanChart:
    """`plan` to zoom, search by eye and click in; `height` in CSS pixels. `colour_by` is one of "op kind",
    "size", "lifetime" and what else the dashboard has: by default op kinds where they are known.

    Raises MemplanError for a colouring that there is not, and for more than 200,000 buffers.
    """
    problem = plan.problem
    if len(problem) > MOST_BUFFERS:
        found = f"{len(problem):,} buffers, expected {MOST_BUFFERS:,} at most"
        raise MemplanError(f"the chart in notebooks: found {found}; the dashboard shows more")
    chosen = colour_by or ("op kind" if problem.origin is not None else "size")
    if chosen not in COLOURINGS:
        raise MemplanError(f"colour_by: found {colour_by[:40]!r}, expected one of {', '.join(COLOURINGS)}")
    document = Document("notebook", problem.name, plan, AS_IT_IS, problem)
    return PlanChart(make_facts(document, plan), chosen, height)
