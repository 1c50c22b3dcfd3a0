"""Graphs of tests, kept where pytest runs: what failed, for a command that shows more, and what passed last,
to say what has changed since."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.errors import MemplanError
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.system import write_atomically

Kind = Literal["passed", "failed"]
MOST_LETTERS = 80


@dataclass(frozen=True, slots=True)
class KeptGraphs:
    """Those of one check in `folder`, which git leaves alone. `identity` tells checks apart, and `label` is
    what the files are called by."""

    folder: Path
    identity: str
    label: str

    def path(self, kind: Kind) -> Path:
        """Where the graph that passed, or failed, lies if there is one."""
        slug = re.sub(r"[^\w.-]+", "-", self.label, flags=re.ASCII)[:MOST_LETTERS].strip("-.")
        digest = hashlib.sha256(self.identity.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return self.folder / kind / f"{slug}-{digest}.json"

    def keep(self, kind: Kind, checked: ModelCheck) -> Path | None:
        """Write the graph of `checked`; None in a place that takes no files, which is no reason to fail."""
        origin, path = checked.plan.problem.origin, self.path(kind)
        assert origin is not None
        with suppress(OSError, MemplanError):
            path.parent.mkdir(parents=True, exist_ok=True)
            ignored = self.folder / ".gitignore"
            if not ignored.exists():
                ignored.write_text("*\n")
            data = dumps(origin.graph)
            if not path.exists() or path.read_bytes() != data:
                write_atomically(path, data)
            return path
        return None
