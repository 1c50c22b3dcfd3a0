"""The process of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from memplan_engine.runtime.ranks.fake_world import fake_ranks
from memplan_engine.runtime.ranks.rank_launch import EXPECTED
from memplan_engine.runtime.scripts.script_process import loaders_were_cut, read_request, run_script


def main(folder: Path) -> None:
    """Run the rank that `folder` asks for, and leave there what became of it."""
    request = read_request(folder)
    if torch.cuda.is_available():
        # What this machine has is what it is: a rank finds one.
        request["cards"] = 1
    run_script(request, folder, as_rank(request, folder), EXPECTED)


@contextmanager
def as_rank(request: dict[str, Any], folder: Path) -> Iterator[None]:
    """As the rank that the request names; what it says of the others is left beside the answer."""
    one_card, mailbox = request["cards"] == 1, Path(request["mailbox"])
    with fake_ranks(request["rank"], request["world_size"], mailbox=mailbox, one_card=one_card) as facts:
        yield
        facts.cut = loaders_were_cut()
        facts.write(folder)
