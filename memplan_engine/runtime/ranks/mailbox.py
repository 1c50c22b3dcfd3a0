"""Objects that ranks send each other, as files in a folder: what a pipeline's stages tell each other of their
tensors. A rank that waits says so, and whoever runs the ranks starts the one that it waits for.

They are pickled, as torch pickles them: objects of the script, between processes that run it, in a folder
that nobody else can write and that goes with them.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.training.torch_origins import who_asks

LOOK_SECONDS = 0.02
"""Between two looks for a message: a rank takes seconds to come to the point of sending one."""
WAITS, FAILED = "waits", "failed"


@dataclass
class Mailbox:
    """The messages of `rank`. Those of one sender and receiver come in the order in which they were sent.
    Without a `folder` nobody else runs."""

    rank: int
    folder: Path | None = None
    _sent: Counter[str] = field(default_factory=Counter)

    def send(self, value: Any, to: int | str) -> None:
        """Leave `value` for the rank `to`, or for all that ask under a name."""
        if self.folder is not None:
            path = self.folder / self._next(f"{self.rank}-{to}")
            half = path.with_suffix(f".{os.getpid()}")
            half.write_bytes(pickle.dumps(value))
            half.rename(path)

    def receive(self, sender: int, to: int | str | None = None) -> Any:
        """What `sender` left for this rank, or under the name `to`.

        Raises
        ------
        InputError: nobody else runs.
        """
        if self.folder is None:
            found = f"an object of rank {sender} that is waited for {who_asks()}: that rank does not run"
            raise InputError("fake run", "", found, ALONE)
        path = self.folder / self._next(f"{sender}-{self.rank if to is None else to}")
        with self._waiting(sender, path):
            while not path.exists():
                time.sleep(LOOK_SECONDS)
        return pickle.loads(path.read_bytes())

    def _next(self, pair: str) -> str:
        self._sent[pair] += 1
        return f"{pair}-{self._sent[pair]}.message"

    @contextmanager
    def _waiting(self, sender: int, message: Path) -> Iterator[None]:
        """Write down for which sender and message this rank waits, and in which line."""
        assert self.folder is not None
        path = self.folder / f"{self.rank}.{WAITS}"
        half = path.with_suffix(".half")
        half.write_text(json.dumps({"sender": sender, "message": message.name, "where": who_asks()}))
        half.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


ALONE = (
    "`memplan devices`, which runs the ranks that are waited for; of a pipeline also stages that are given "
    "input_args and output_args"
)


def waiting(folder: Path) -> dict[int, tuple[int, str]]:
    """Return for each rank that waits its sender, and where it waits.

    A rank whose message is there is left out, however long it takes to look: it goes on.
    """
    found = {}
    for path in folder.glob(f"*.{WAITS}"):
        try:
            said = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            continue
        if (folder / str(said["message"])).exists():
            continue
        found[int(path.stem)] = (int(said["sender"]), str(said["where"]))
    return found
