"""What is to be looked at in a series: steps, drift, what is lower, what is meant."""

from __future__ import annotations

import pytest

from memplan_engine.diffing.regression import Limit, parse_limit
from memplan_engine.history.alarms import ChangeState, Watched, watch
from memplan_engine.history.history_values import (
    Acknowledgement,
    Fingerprints,
    HistoryFigures,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
)
from memplan_engine.reporters.history.change_words import growth_sentence

SERIES = HistorySeries("proj", "model")


def line(*sizes: tuple[int, int] | int, branch: str = "main", dirty: bool = False) -> list[HistoryPoint]:
    """Commits c0, c1 … with (demand, arena), or both the same."""
    points = []
    for number, size in enumerate(sizes):
        demand, arena = size if isinstance(size, tuple) else (size, size)
        parent = f"c{number - 1}" if number else ""
        run = HistoryRun("proj", f"c{number}", parent, number + 1, branch, dirty, key=f"{branch}{number}")
        figures = HistoryFigures(arena, demand, demand, "load")
        points.append(HistoryPoint(number + 1, run, SERIES, figures, Fingerprints()))
    return points


def watched(*sizes: tuple[int, int] | int, acknowledged: tuple[str, ...] = (), limit: str = "0") -> Watched:
    found = watch(line(*sizes), (), [said(commit) for commit in acknowledged], limit=parse_limit(limit))
    assert found
    return found


def said(commit: str) -> Acknowledgement:
    return Acknowledgement(SERIES, commit, "meant", "ann", 86_400)


def states(found: Watched) -> dict[str, ChangeState]:
    return {change.after.run.commit: state for change, state in found.changes}


def test_every_byte_of_growth_is_to_be_looked_at_unless_a_limit_allows_it() -> None:
    found = watched(100, 100, 101, 90)
    assert states(found) == {"c2": ChangeState.MADE_GOOD, "c3": ChangeState.LOWER}
    assert states(watched(100, 100, 101))["c2"] is ChangeState.TO_LOOK_AT
    assert not found.alarming
    assert [change.after.run.commit for change in found.steps] == ["c2"]
    assert states(watched(100, 105, limit="5%")) == {"c1": ChangeState.WITHIN_LIMIT}
    assert states(watched(100, 106, limit="5%")) == {"c1": ChangeState.TO_LOOK_AT}


def test_small_steps_that_add_up_are_told_as_drift() -> None:
    slow = watched(100, 104, 108, 112, limit="5%")
    assert set(states(slow).values()) == {ChangeState.WITHIN_LIMIT}
    assert slow.drifted
    assert slow.alarming
    assert growth_sentence(slow) == (
        "model needs 112 B, +12 B since c0 of 1970-01-01 (demand +12 B): many small changes, each within the "
        "limit of 5 %"
    )
    # As much as is allowed is no drift; what is explained by a step is none either.
    assert not watched(100, 103, 105, limit="5%").drifted
    step = watched(100, 104, 120, limit="5%")
    assert (step.drifted, step.alarming, len(step.steps)) == (False, True, 1)
    assert growth_sentence(step).endswith("(demand +20 B): 1 change to look at")


def test_growth_is_measured_from_the_last_change_that_was_acknowledged() -> None:
    found = watched(100, 150, 150, acknowledged=("c1",))
    assert states(found) == {"c1": ChangeState.ACKNOWLEDGED}
    assert (found.level.run.commit, found.alarming, found.steps) == ("c1", False, ())
    later = watched(100, 150, 160, acknowledged=("c1",))
    assert (later.growth.demand, [each.after.run.commit for each in later.steps]) == (10, ["c2"])
    # A commit that changed nothing sets no level.
    assert watched(100, 100, 120, acknowledged=("c1",)).level.run.commit == "c0"


def test_growth_after_what_was_saved_is_to_be_looked_at_until_it_is_made_good() -> None:
    found = watched(100, 60, 100)
    assert (found.level.run.commit, found.growth.before.run.commit, found.growth.demand) == ("c0", "c1", 40)
    assert found.alarming
    assert growth_sentence(found).startswith("model needs 100 B, +40 B since c1 of 1970-01-01")
    undone = watched(100, 60, 100, 60)
    assert (undone.alarming, len(undone.steps), undone.open_steps) == (False, 1, ())


def test_demand_is_looked_at_first_then_what_packing_loses() -> None:
    # The arena is smaller, but the graph asks for more.
    assert states(watched((100, 130), (110, 120))) == {"c1": ChangeState.TO_LOOK_AT}
    assert states(watched((100, 100), (100, 104))) == {"c1": ChangeState.TO_LOOK_AT}
    assert states(watched((100, 100), (90, 100))) == {"c1": ChangeState.LOWER}
    packing = watched((100, 100), (100, 104))
    assert "(packing loss +4 B)" in growth_sentence(packing)


def test_a_branch_is_held_against_its_ancestor_and_dirty_files_are_no_part_of_it() -> None:
    main = line(100, 100)
    topic = HistoryRun("proj", "t", "c1", 9, "topic", key="t")
    points = [*main, HistoryPoint(9, topic, SERIES, HistoryFigures(130, 130, 130, "load"), Fingerprints())]
    found = watch(points, branch="topic")
    assert found
    assert states(found) == {"t": ChangeState.TO_LOOK_AT}
    assert (found.alarming, len(found.open_steps), found.growth.demand) == (True, 1, 30)
    assert growth_sentence(found).startswith("model needs 130 B, +30 B since c1 of 1970-01-01 (demand +30 B)")
    meant = watch(points, acknowledged=[said("t")], branch="topic")
    assert meant
    assert (meant.level.run.commit, meant.alarming) == ("t", False)
    on_main = watch(points, branch="main")
    assert on_main
    assert on_main.changes == ()
    assert watch(points, branch="nowhere") is None
    assert watch(line(100, 200, dirty=True)) is None


@pytest.mark.parametrize(("limit", "base", "allowed"), [("5%", 101, 5), ("1KiB", 7, 1024), ("0", 9, 0)])
def test_what_a_limit_allows(limit: str, base: int, allowed: int) -> None:
    assert parse_limit(limit).allowed_of(base) == allowed
    assert Limit().allowed_of(base) == 0
