"""The chart alone, mounted in an empty page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.empty_page import EmptyTab, empty_page, empty_tab

if TYPE_CHECKING:
    from tests.dashboard.plan_view.mounted_chart import MountedChart


__all__ = ["empty_page", "empty_tab"]


@pytest.fixture
def open_chart(empty_tab: EmptyTab) -> Callable[..., MountedChart]:
    """`open_chart(panels, view="1,9,0,99", width=700, scheme="dark", selected=2)` gives a MountedChart of
    panels, of a scene of `plan_view_app.py` or of a page's message. A second one takes the place of the
    first."""
    from tests.dashboard.plan_view.mounted_chart import MountedChart
    from tests.dashboard.plan_view.plan_view_app import SCENES

    def open_one(
        panels: Any = "plain",
        *,
        view: str = "",
        width: int = 1280,
        height: int = 800,
        scheme: str = "light",
        **choices: Any,
    ) -> MountedChart:
        query = "?scene=plain" + (view and f"&view={view}")
        shown = SCENES[panels]() if isinstance(panels, str) else panels
        return MountedChart(empty_tab.open(query, width, height, scheme), shown, scheme, **choices)

    return open_one
