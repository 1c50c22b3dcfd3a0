"""The replay alone, mounted in an empty page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import open_tab
from tests.support.empty_page import EmptyTab, empty_page, empty_tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.dashboard.replay_view.mounted_replay import View


__all__ = ["empty_page", "empty_tab"]


@pytest.fixture
def open_view(empty_tab: EmptyTab) -> Callable[..., View]:
    """`open_view(replay, mode, step, width=700)` gives a View; a second one takes the place of the first."""
    from memplan_dashboard.replay_view import Mode

    from tests.dashboard.replay_view.mounted_replay import View

    def open_one(replay: Any, mode: Any = Mode.REPLAY, step: int = 0, **options: Any) -> View:
        return View(empty_tab.open(**options), replay, mode, step)

    return open_one


@pytest.fixture
def timed_page(chromium: Browser, dashboard_url: str) -> Iterator[Page]:
    """A page with nothing on it, whose clock `page.clock.pause_at` stops and `run_for` moves on."""
    tab = EmptyTab(open_tab(chromium, url := f"{dashboard_url}/_stcore/health", 1280, 800, "light"), url)
    tab.tab.page.clock.install(time=0)
    yield tab.open()
    tab.tab.close()
    tab.check()
