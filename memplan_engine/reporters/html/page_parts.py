"""What pages that need nothing else are made of: their policy, sections, tables."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version


def policy(styles: str, script: str = "") -> str:
    """Nothing may be loaded; one style sheet may be there, and one script, and nothing else may run."""
    allowed = f"script-src '{_hash(script)}'; " if script else ""
    return f"default-src 'none'; {allowed}style-src '{_hash(styles)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def memplan_version() -> str:
    """The version of memplan, "" where it is not installed."""
    try:
        return version("memplan")
    except PackageNotFoundError:
        return ""


def section(heading: str, body: str) -> str:
    """A part of a page below its heading; both are HTML."""
    return f"<section><h2>{heading}</h2>{body}</section>"


def table(headings: Iterable[tuple[str, str]], rows: Iterable[str]) -> str:
    """`rows`, which are HTML, below headings with the style of each column."""
    head = "".join(
        f'<th scope="col" class="{kind}">{name}</th>' if kind else f'<th scope="col">{name}</th>'
        for name, kind in headings
    )
    body = "\n".join(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
