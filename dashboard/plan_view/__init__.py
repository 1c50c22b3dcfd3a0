"""The rectangle chart: plans drawn as offset-versus-step rectangles on a canvas, with their profiles.

    event = plan_view([panel], palette=colours, legend=labels, selected=None, key="inspect")
    event.selected      # the buffer that was clicked, or None

Plain values in, one number out: nothing is computed here that belongs to the engine.
"""

from memplan_dashboard.plan_view.component import ViewEvent, plan_view
from memplan_dashboard.plan_view.panel import PATTERNS, Difference, Filter, Found, Panel

__all__ = ["PATTERNS", "Difference", "Filter", "Found", "Panel", "ViewEvent", "plan_view"]
