"""What starts a rank and what it leaves: known without what makes it one, which takes seconds to import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.recordings.rank_run import MOST_RANKS

PROCESS = "memplan_engine.runtime.ranks.rank_process"
"""The module that is the process of a rank."""
EXPECTED = "a script that runs on that many ranks, each on its own between collectives"
FACTS = "facts.json"
"""What a rank says of the others, beside its observation."""
A_MACHINE = 8
"""Devices of a machine: those of DGX and HGX systems."""


def check_rank(rank: int, world_size: int) -> None:
    """Raise InputError unless there is such a rank of so many."""
    if not 0 < world_size <= MOST_RANKS:
        raise InputError("--world", "", f"{world_size:,}", f"a number from 1 to {MOST_RANKS:,}")
    if not 0 <= rank < world_size:
        raise InputError(
            "rank", "", f"{rank} of a world of {world_size}", f"a number from 0 to {world_size - 1}"
        )


def environment(
    rank: int, world_size: int, a_machine: int = A_MACHINE, one_card: bool = False
) -> dict[str, str]:
    """The variables that `torchrun` sets."""
    local = min(a_machine, world_size)
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": 0 if one_card else rank % local,
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": rank // local,
        "GROUP_WORLD_SIZE": -(-world_size // local),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    names = {"MASTER_ADDR": "127.0.0.1", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "memplan"}
    return {**{name: str(number) for name, number in numbers.items()}, **names}


def read_facts(folder: Path) -> dict[str, Any]:
    """What `RankFacts.write` left there; nothing where it did not come to that."""
    path = folder / FACTS
    if not path.exists():
        lists: dict[str, Any] = {"groups": [], "stages": [], "actions": []}
        return {**lists, "digests": {}, "cut": False, "sent": {}, "received": {}}
    said = json.loads(path.read_text())
    return {**said, "digests": {int(rank): digest for rank, digest in said["digests"].items()}}
