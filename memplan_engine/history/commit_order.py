"""The order of commits as their parents tell it: what is before what, and what a branch has left behind."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence


def node_of(commit: str, key: str) -> str:
    """What a run is placed by: its commit; a run without one stands for itself, by its key."""
    return commit or f"run {key}"


def first_parents(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of pairs of a commit and its parent the parent of each commit that has one, as the first pair says that
    knows it."""
    parents: dict[str, str] = {}
    for commit, parent in pairs:
        if commit and parent not in ("", commit):
            parents.setdefault(commit, parent)
    return parents


def commit_places(runs: Iterable[tuple[str, str, str, int]]) -> dict[str, int]:
    """The place of each commit, by its node: parents first, of several that may come next the earliest. Of
    each run its node, commit, parent and time, in the order in which they came."""
    runs = list(runs)
    keys: dict[str, tuple[int, int]] = {}
    for number, (node, _, _, when) in enumerate(runs):
        keys.setdefault(node, (when, number))
    parents = first_parents((commit, parent) for _, commit, parent, _ in runs)
    children: dict[str, list[str]] = defaultdict(list)
    for commit, parent in parents.items():
        if parent in keys:
            children[parent].append(commit)
    ready = [(key, node) for node, key in keys.items() if parents.get(node) not in keys]
    heapq.heapify(ready)
    places: dict[str, int] = {}
    while ready:
        _, node = heapq.heappop(ready)
        places[node] = len(places)
        for child in children[node]:
            heapq.heappush(ready, (keys[child], child))
    # Commits that are each other's parents exist in files that somebody made up.
    for node in sorted(keys.keys() - places.keys(), key=lambda node: (keys[node], node)):
        places[node] = len(places)
    return places


def nearest_ancestor(commit: str, parents: Mapping[str, str], wanted: Collection[str]) -> str:
    """The nearest commit before `commit` that is `wanted`, "" for none."""
    seen = {commit}
    while (commit := parents.get(commit, "")) and commit not in seen:
        if commit in wanted:
            return commit
        seen.add(commit)
    return ""


def left_behind(commits: Sequence[str], parents: Mapping[str, str]) -> set[str]:
    """Those of `commits`, recorded in this order on one branch, that it has left: amended, rebased, or
    replaced by a forced push.

    The branch is at the last of them, or at what was recorded of those that come from it; what is neither
    before that nor after it, though both have an ancestor in common, it has left. A commit of whose parents
    too little is known to tell stays.
    """
    on_branch: set[str] = set()
    apart: set[str] = set()
    left: set[str] = set()
    head = ""
    for start in reversed(commits):
        way: dict[str, None] = {}
        node = start
        while node and not (node in way or node in on_branch or node in apart or node in left):
            way[node] = None
            node = parents.get(node, "")
        if not head or (node == head and way):
            head = start
            on_branch.update(way)
        elif node in on_branch or node in left:
            left.update(way)
        else:
            apart.update(way)
    return left.intersection(commits)
