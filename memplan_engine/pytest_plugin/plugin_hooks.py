"""What pytest loads. Every session of pytest pays for it: all else is imported when a test needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memplan_engine.errors import MemplanError

if TYPE_CHECKING:
    from collections.abc import Generator

    from memplan_engine.pytest_plugin.marked_test import MarkedTest

    Wrapped = Generator[None, Any, Any]

MARKER = (
    "memplan(max_arena=None, max_peak=None, max_reserved=None, no_growth=False): the most memory that the "
    'model given to the fixture memplan may need, as "52MiB" or bytes; with no_growth no more than the '
    "baseline that `pytest --memplan-update` wrote"
)
FOUND = "memplan_found"
"""The attribute of a test's report that says what was found, in plain values: it travels between xdist's
processes."""
_marked = pytest.StashKey["MarkedTest"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.getgroup("memplan").addoption(
        "--memplan-update",
        action="store_true",
        help="write the baselines of the tests marked memplan(no_growth=True) that run, beside their files",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker; in the process that hears of all tests, gather what they found."""
    config.addinivalue_line("markers", MARKER)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Gathered(config), "memplan_gathered")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Read the marker, and refuse one that means nothing."""
    marks = list(item.iter_markers("memplan"))
    if marks or "memplan" in getattr(item, "fixturenames", ()):
        from memplan_engine.pytest_plugin.marked_test import MarkedTest

        item.stash[_marked] = MarkedTest(item, marks)


@pytest.fixture
def memplan(request: pytest.FixtureRequest) -> MarkedTest:
    """`memplan.check(model, args)` holds what the model needs against the test's marker `memplan`, and gives
    its figures."""
    return request.node.stash[_marked]  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Wrapped:
    """A marked test has to have checked something."""
    outcome = yield
    marked = item.stash.get(_marked, None)
    if marked is not None:
        marked.refuse_unchecked()
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Wrapped:
    """Put what was found into the report."""
    report = yield
    marked = item.stash.get(_marked, None)
    if marked is not None and call.when == "call":
        setattr(report, FOUND, marked.found)
    return report


class Gathered:
    """What the tests of all processes found, for the one that writes and sums up."""

    def __init__(self, config: pytest.Config) -> None:
        self.update = bool(config.getoption("memplan_update"))
        self.root = config.invocation_params.dir
        self.baselines: dict[str, dict[str, Any]] = {}
        self.smaller: set[str] = set()
        self.told: list[str] = []
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one test."""
        for found in getattr(report, FOUND, ()):
            if found["smaller"]:
                self.smaller.add(f"{found['path']} {found['key']}")
            if found["baseline"]:
                self.baselines.setdefault(found["path"], {})[found["key"]] = found["baseline"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the baselines, one writer for all processes."""
        if not self.update or not self.baselines:
            return
        from memplan_engine.checks.baselines import Baseline, update_baselines

        for path, found in sorted(self.baselines.items()):
            try:
                count = update_baselines(Path(path), {key: Baseline(**each) for key, each in found.items()})
            except MemplanError as error:
                self.told.append(str(error))
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
                continue
            rest = len(found) - count
            parts = (f"{count} written" * bool(count), f"{rest} unchanged" * bool(rest))
            self.told.append(f"{self._relative(path)}: {', '.join(filter(None, parts))}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written, and which baselines could be lower."""
        if self.smaller and not self.update:
            models = "1 model needs" if len(self.smaller) == 1 else f"{len(self.smaller)} models need"
            self.told.append(f"{models} less than the baseline says: pytest --memplan-update lowers it")
        if self.told:
            terminalreporter.section("memplan")
            for line in self.told:
                terminalreporter.line(line)

    def _relative(self, path: str) -> str:
        return str(Path(path).relative_to(self.root)) if Path(path).is_relative_to(self.root) else path
