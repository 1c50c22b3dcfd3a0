"""What was worked out before, in a folder: the graphs of variants and the points of graphs, by what they rest
on. It is only ever a saving of time: without it all is worked out again, and comes out the same."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.history.graph_blobs import compressed, restored
from memplan_engine.history.history_values import NewPoint
from memplan_engine.system import write_atomically
from memplan_engine.zoo.carried import GRAPHS, POINT
from memplan_engine.zoo.zoo_values import ZooGraph

KINDS = "variants", "graphs", "points"
KEPT_SECONDS, TOUCHED_SECONDS = 90 * 86_400, 86_400
"""What nobody has used for so long is removed: a release cycle or two. Use is noted once a day."""


def usual_folder() -> Path:
    """Where it lies unless somebody says otherwise: in the user's own cache."""
    from platformdirs import user_cache_path

    return user_cache_path("memplan") / "zoo"


@dataclass(frozen=True, slots=True)
class ZooCache:
    """A cache in `folder`, which is made when something is kept. What cannot be read counts as not there."""

    folder: Path

    def graphs(self, key: str) -> tuple[ZooGraph, ...] | None:
        """The graphs of a variant without their JSON; None where they are not known."""
        data = self._read("variants", key)
        graphs = None if data is None else GRAPHS.read(data)
        for graph in graphs or ():
            _note_use(self._place("graphs", graph.digest))
        return graphs

    def keep_graphs(self, key: str, graphs: tuple[ZooGraph, ...]) -> None:
        """Keep the graphs of a variant, each graph once."""
        for graph in graphs:
            if not _note_use(self._place("graphs", graph.digest)):
                self._write("graphs", graph.digest, compressed(graph.json))
        self._write("variants", key, GRAPHS.written(tuple(replace(each, json=b"") for each in graphs)))

    def json(self, digest: str) -> bytes | None:
        """The graph with `digest` as memplan JSON, None where it is not there whole."""
        blob = self._read("graphs", digest)
        try:
            return None if blob is None else restored(blob, digest, str(self.folder))
        except InputError:
            return None

    def point(self, key: str) -> NewPoint | None:
        """The point of a graph by a strategy, in a series without a name."""
        data = self._read("points", key)
        return None if data is None else POINT.read(data)

    def keep_point(self, key: str, point: NewPoint) -> None:
        """Keep a point, of which the graph is kept apart."""
        series = replace(point.series, project="", model="", variant="")
        self._write("points", key, POINT.written(replace(point, series=series, graph_json=b"")))

    def forget_unused(self, now: float | None = None) -> int:
        """Remove what nobody has read or written for 90 days before `now` (seconds since 1970); how many
        entries."""
        oldest = (time.time() if now is None else now) - KEPT_SECONDS
        done = 0
        for place in self.folder.glob("*/??/*"):
            # Somebody else may do the same at this time.
            with suppress(OSError):
                if place.parent.parent.name in KINDS and place.stat().st_mtime < oldest:
                    place.unlink()
                    done += 1
        return done

    def _place(self, kind: str, key: str) -> Path:
        # A folder for each two letters: none gets so many files that looking into it takes long.
        return self.folder / kind / key[:2] / key

    def _read(self, kind: str, key: str) -> bytes | None:
        place = self._place(kind, key)
        try:
            data = place.read_bytes()
        except OSError:
            return None
        _note_use(place)
        return data

    def _write(self, kind: str, key: str, data: bytes) -> None:
        place = self._place(kind, key)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = error.strerror or str(error)
            raise InputError(str(self.folder), "", found, "a folder that can be made (--cache)") from None
        write_atomically(place, data)


def _note_use(place: Path) -> bool:
    """Whether there is a file at `place`, which is used now."""
    try:
        if place.stat().st_mtime < time.time() - TOUCHED_SECONDS:
            os.utime(place)
    except OSError:
        return False
    return True
