"""What an example file says about itself: `# title: …` lines of a CSV, `about` of a graph's JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.formats.allocator_files.allocator_readers import is_trace
from memplan_engine.formats.importer import HEAD_BYTES
from memplan_engine.formats.read_limits import MAX_TEXT_BYTES, read_head, read_text

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import About

_LINE = re.compile(r"#\s*(title|shows|optimum|why):\s*(.*)")


def read_about(path: Path | str) -> About:
    """The header of an example file; empty where it has none.

    Raises
    ------
    InputError: a file that cannot be read, or JSON that is broken.
    """
    # Here, not above: who only asks whether there is a header need not wait for pydantic.
    from memplan_engine.formats.memplan_json.graph_format import About, AboutOnly
    from memplan_engine.formats.memplan_json.json_base import parse

    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    if _is_json(head):
        return parse(AboutOnly, read_text(path, MAX_TEXT_BYTES), path.name).about
    return About.model_validate(_fields(head))


def may_have_about(path: Path | str) -> bool:
    """Whether `read_about` may find something: JSON but for traces, or a list of buffers with such a line."""
    head = read_head(Path(path), HEAD_BYTES)
    return _is_json(head) or bool(_fields(head))


def _is_json(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and not is_trace(head.lstrip())


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    matches = (_LINE.fullmatch(line.strip()) for line in lines)
    return {match[1]: match[2] for match in matches if match}
