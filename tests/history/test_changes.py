"""The order of commits, what changed, and what has to stay for that to be seen."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.history.alarms import watch
from memplan_engine.history.changes import HistoryChange, history_changes, in_order, to_keep
from memplan_engine.history.commit_order import left_behind
from memplan_engine.history.history_values import (
    Fingerprints,
    HistoryFigures,
    HistoryPoint,
    HistoryRun,
    HistorySeries,
)

SERIES = HistorySeries("proj", "model")


def point(
    number: int,
    commit: str,
    parent: str = "",
    arena: int = 0,
    branch: str = "main",
    at: int = 0,
    dirty: bool = False,
) -> HistoryPoint:
    run = HistoryRun("proj", commit, parent, at, branch, dirty, recorded_at=number, key=f"{number:032x}")
    return HistoryPoint(number, run, SERIES, HistoryFigures(arena, arena, arena, "load"), Fingerprints())


def commits(points: Sequence[HistoryPoint]) -> list[str]:
    return [each.run.commit for each in points]


def told(found: list[HistoryChange]) -> list[tuple[str, str, int]]:
    return [(each.before.run.commit, each.after.run.commit, each.arena) for each in found]


def test_commits_follow_their_parents_whatever_the_clocks_say() -> None:
    # "b" was committed on a machine whose clock is a day behind; "a" was recorded last.
    points = [point(1, "c", "b", at=300), point(2, "b", "a", at=-86_000), point(3, "a", "", at=100)]
    assert commits(in_order(points)) == ["a", "b", "c"]


def test_parents_that_were_recorded_without_a_point_are_known() -> None:
    points = [point(1, "c", "b", at=0), point(2, "a", "", at=100)]
    assert commits(in_order(points)) == ["c", "a"]
    between = HistoryRun("proj", "b", "a", 50)
    assert commits(in_order(points, [between])) == ["a", "c"]


def test_without_parents_the_time_of_the_commit_says_then_what_came_first() -> None:
    points = [point(1, "", at=0), point(2, "y", "?", at=9), point(3, "x", "?", at=5), point(4, "", at=0)]
    assert [each.number for each in in_order(points)] == [1, 4, 3, 2]


def test_commits_that_are_each_others_parents_have_an_order_all_the_same() -> None:
    points = [point(1, "a", "b"), point(2, "b", "a"), point(3, "c", "c")]
    assert sorted(commits(in_order(points))) == ["a", "b", "c"]


def test_a_change_is_between_neighbours_of_a_branch() -> None:
    main = [point(1, "a", "", 10), point(2, "b", "a", 10), point(3, "c", "b", 14)]
    # Recorded between, on another branch that came from a: not what c is held against.
    topic = [point(4, "t", "a", 99, "topic"), point(5, "u", "t", 99, "topic")]
    assert told(history_changes([*main, *topic])) == [("b", "c", 4), ("a", "t", 89)]


def test_recording_a_commit_again_is_no_change() -> None:
    again = [point(number, "ab"[number % 2], "", 10) for number in range(1000)]
    assert history_changes(again) == []


def test_what_was_tried_out_is_held_against_its_commit_and_is_no_part_of_the_branch() -> None:
    points = [point(1, "a", "", 10), point(2, "a", "", 50, dirty=True), point(3, "b", "a", 10)]
    assert told(history_changes(points)) == [("a", "a", 40)]


def test_both_sides_of_a_change_stay_and_nothing_between() -> None:
    names = "abcdefgh"
    arenas = [5, 5, 5, 5, 9, 9, 9, 9]
    points = [
        point(number, name, names[number - 1] if number else "", arena)
        for number, (name, arena) in enumerate(zip(names, arenas, strict=True))
    ]
    assert to_keep(points, []) == {0, 3, 4, 7}
    assert to_keep(points, [], acknowledged={"g"}) == {0, 3, 4, 6, 7}
    assert to_keep(points, [], newest=3) == {0, 3, 4, 5, 6, 7}
    assert to_keep(points, [], before=2) == {0, 2, 3, 4, 5, 6, 7}


@st.composite
def stores(draw: st.DrawFn) -> list[HistoryPoint]:
    names = [f"c{index}" for index in range(draw(st.integers(1, 12)))]
    points = []
    for number in range(draw(st.integers(0, 24))):
        index = draw(st.integers(0, len(names) - 1))
        # Mostly a history as git gives it; sometimes one that somebody made up.
        parent = draw(st.sampled_from(["", *names[:index], *names[:index], *names[:index], *names]))
        points.append(
            point(
                number,
                draw(st.sampled_from([names[index]] * 5 + [""])),
                parent,
                draw(st.integers(1, 2)),
                draw(st.sampled_from(["main", "main", "topic"])),
                draw(st.integers(0, 5)),
                draw(st.sampled_from([False, False, False, True])),
            )
        )
    return points


@settings(max_examples=400, deadline=None)
@given(stores())
def test_what_stays_tells_of_the_same_changes(points: list[HistoryPoint]) -> None:
    runs = [each.run for each in points]
    kept = to_keep(points, runs)
    fewer = [each for each in points if each.number in kept]
    assert history_changes(fewer, runs) == history_changes(points, runs)
    assert to_keep(fewer, runs) == kept


def test_what_was_amended_or_force_pushed_away_is_no_part_of_its_branch() -> None:
    # "b" and "c" were recorded, then amended: "x" and "y" stand on "a" in their place.
    line = [point(1, "a", "?", 10), point(2, "b", "a", 60), point(3, "c", "b", 70), point(4, "x", "a", 15)]
    assert told(history_changes(line)) == [("a", "x", 5)]
    line += [point(5, "y", "x", 16)]
    assert told(history_changes(line)) == [("a", "x", 5), ("x", "y", 1)]
    watched = watch(line)
    assert (watched.left, commits(watched.points)) == (("b", "c"), ["a", "x", "y"])
    # The parents of "b" may be known from commits that nobody measured.
    apart = [point(1, "a", "?", 10), point(2, "c", "b", 70), point(3, "x", "a", 15)]
    assert told(history_changes(apart)) == [("a", "c", 60), ("c", "x", -55)]
    noted = [HistoryRun("proj", "b", "a", key="1" * 32)]
    assert told(history_changes(apart, noted)) == [("a", "x", 5)]


def test_commits_that_are_recorded_later_than_those_after_them_stay() -> None:
    backfilled = [
        point(1, "a", "?", 10),
        point(2, "d", "c", 40),
        point(3, "b", "a", 20),
        point(4, "c", "b", 30),
    ]
    assert told(history_changes(backfilled)) == [("a", "b", 10), ("b", "c", 10), ("c", "d", 10)]
    assert watch(backfilled).left == ()


def test_what_is_not_known_to_be_left_stays_and_so_do_runs_on_no_branch() -> None:
    # Nothing is known of what comes before "q": a shallow clone.
    line = [point(1, "a", "", 10), point(2, "b", "a", 20), point(3, "q", "p", 30), point(4, "c", "b", 40)]
    assert len(history_changes(line)) == 3
    bare = [point(1, "a", "", 10, ""), point(2, "m", "a", 20, ""), point(3, "n", "a", 30, "")]
    assert told(history_changes(bare)) == [("a", "m", 10), ("m", "n", 10)]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.permutations(range(9)))
def test_what_is_left_is_what_neither_comes_from_the_head_nor_leads_to_it(
    choices: list[int], order: list[int]
) -> None:
    parents = {f"c{i + 1}": f"c{min(choice, i)}" for i, choice in enumerate(choices)}
    came = [f"c{i}" for i in order if i <= len(choices)]

    def before(commit: str) -> list[str]:
        return [commit, *before(parents[commit])] if commit in parents else [commit]

    head = came[-1]
    for commit in reversed(came):
        if head in before(commit)[1:]:
            head = commit
    assert left_behind(came, parents) == set(came) - set(before(head))
