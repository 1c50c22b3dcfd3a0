"""Lists of buffers in MiniMalloc's CSV dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.banks.bank_text import choices_of
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.problem import FREE, Gap, Problem
from memplan_engine.system import write_atomically

_SPECIAL = re.compile(r'^#|[",]')
"""Names that would be taken for a comment or for two fields."""


def write_csv(value: Problem | Plan | BankedPlan, path: Path | str) -> None:
    """Write `value` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, to_csv(value))


def to_csv(value: Problem | Plan | BankedPlan) -> bytes:
    """The buffers as `id,lower,upper,size`, and `alignment`, `gaps`, `offset` and `name` where there are any;
    with several banks `banks` (where a buffer may live) and `accessed`, and of a plan over them `bank`.

    The id is that of the list that the buffers come from, with their names in a column of their own; where
    there is none it is the buffer's name. `upper` is the first step after its life, `offset` a plan's offset
    or a problem's fixed one (empty when free). The origin of a problem and the bound of a plan are not kept.

    Raises
    ------
    InputError: a name or an id that is empty, begins or ends with a space, or has a line break in it.
    """
    problem = value if isinstance(value, Problem) else value.problem
    columns: dict[str, Iterable[object]] = {
        "id": _column(problem.ids or problem.names, problem),
        "lower": problem.start.tolist(),
        "upper": problem.end.tolist(),
        "size": problem.size.tolist(),
    }
    if (problem.alignment != 1).any():
        columns["alignment"] = problem.alignment.tolist()
    if problem.gaps:
        columns["gaps"] = [" ".join(map(_gap, problem.gaps.get(row, ()))) for row in range(len(problem))]
    if not isinstance(value, Problem):
        columns["offset"] = value.offsets.tolist()
    elif (problem.fixed != FREE).any():
        columns["offset"] = ["" if offset == FREE else offset for offset in problem.fixed.tolist()]
    if problem.banks is not None:
        columns["banks"] = choices_of(problem.banks)
        columns["accessed"] = problem.banks.accessed.tolist()
    if isinstance(value, BankedPlan):
        columns["bank"] = [value.banks.names[bank] for bank in value.bank_of.tolist()]
    if problem.ids is not None:
        columns["name"] = _column(problem.names, problem)
    rows = [columns.keys(), *zip(*columns.values(), strict=True)]
    try:
        return "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    except UnicodeEncodeError:
        raise InputError(problem.name, "", "a name that is not valid text", "names in Unicode") from None


def _column(names: Sequence[str], problem: Problem) -> list[str]:
    for name in names:
        if name != name.strip() or not name or len(name.splitlines()) > 1:
            raise InputError(
                problem.name, f"buffer {name!r}", "a name that a CSV cannot hold", "a name on one line"
            )
    doubled = (name.replace('"', '""') for name in names)
    return [f'"{name}"' if _SPECIAL.search(name) else name for name in doubled]


def _gap(gap: Gap) -> str:
    window = f"@{gap.low}:{gap.high}" if gap.low < gap.high else ""
    return f"{gap.start}-{gap.end}{window}"
