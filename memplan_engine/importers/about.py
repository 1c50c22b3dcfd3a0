"""What an example file says about itself: `# title: …` lines of a CSV, `about` of a graph's JSON."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel

from memplan_engine.formats.base import parse
from memplan_engine.formats.graph_format import About
from memplan_engine.importers.base import HEAD_BYTES
from memplan_engine.importers.limits import MAX_TEXT_BYTES, read_head, read_text

_LINE = re.compile(r"#\s*(title|shows|optimum|why):\s*(.*)")


class _Only(BaseModel):
    about: About = About()


def read_about(path: Path | str) -> About:
    """The header of an example file; empty where it has none.

    Raises
    ------
    InputError: a file that cannot be read, or JSON that is broken.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    if head.lstrip()[:1] == b"{":
        return parse(_Only, read_text(path, MAX_TEXT_BYTES), path.name).about
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    matches = (_LINE.fullmatch(line.strip()) for line in lines)
    return About.model_validate({match[1]: match[2] for match in matches if match})
