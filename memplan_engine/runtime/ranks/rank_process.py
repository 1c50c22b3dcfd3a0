"""The process of one rank: `python -m memplan_engine.runtime.ranks.rank_process FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memplan_engine.runtime.ranks.fake_world import fake_ranks
from memplan_engine.runtime.recorder.script_run import main

EXPECTED = "a script that runs on that many ranks, each on its own between collectives"


@contextmanager
def as_rank(request: dict[str, Any]) -> Iterator[None]:
    """As the rank that the request names; what it says of the others is left beside the answer."""
    folder, one_card = Path(sys.argv[1]), request["cards"] == 1
    with fake_ranks(
        request["rank"], request["world_size"], mailbox=Path(request["mailbox"]), one_card=one_card
    ) as facts:
        yield
        facts.write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), as_rank, EXPECTED)
