"""Plans over several banks: each bank is a part of the document that can be opened."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from memplan_engine import BankedPlan, InputError, Plan
from memplan_engine.formats.memplan_json.json_file import load_banked
from memplan_engine.units import format_bytes

PART = "bank="


@lru_cache(4)
def banked_of(path: Path, version: tuple[int, int]) -> BankedPlan | None:
    """The plan over several banks that the file holds, None for any other file; `version` changes with it.
    Raises InputError where such a plan is not sound."""
    return load_banked(path)


def bank_parts(plan: BankedPlan) -> dict[str, str]:
    """What can be chosen, text → label: each bank with its arena."""
    return {
        f"{PART}{name}": f"{name} · {format_bytes(own.arena_bytes)}"
        for name, own in zip(plan.banks.names, plan.plans, strict=True)
    }


def plan_of_part(plan: BankedPlan, part: str, source: str) -> Plan:
    """The plan of the bank that `part` names, the first unless it names one; raises InputError for a part
    that is none."""
    if not part:
        return plan.plans[0]
    names = plan.banks.names
    name = part.removeprefix(PART)
    if not part.startswith(PART) or name not in names:
        raise InputError(source, "part", repr(part[:40]), " or ".join(bank_parts(plan)))
    return plan.plans[names.index(name)]
