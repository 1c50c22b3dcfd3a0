"""What a page needs of Streamlit's scripts, named in the page itself.

Streamlit asks for the script of an element when the element comes, and each script for those that it imports:
requests that wait for a server which at that time runs the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ELEMENTS = ("BidiComponent", "Selectbox", "TextInput", "DownloadButton", "Html")
"""Those that nearly every page begins with. Tables are below the fold, and their script is a large one."""


def preloads(static: Path, page: str) -> str:
    """Links that have a browser load the scripts of ELEMENTS together with those of `page`; `static` is
    Streamlit's folder. "" where this Streamlit has another way of naming its scripts."""
    try:
        manifest: dict[str, Any] = json.loads((static / "manifest.json").read_text(encoding="utf-8"))
        missing = [file for file in _files(manifest) if file not in page]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return ""
    return "".join(f'<link rel="modulepreload" crossorigin href="./{file}">' for file in missing)


def _files(manifest: dict[str, Any]) -> list[str]:
    """The files of ELEMENTS and of all that they import, in the manifest that Vite writes."""
    waiting = [key for key in manifest if key.endswith(tuple(f"/{name}.tsx" for name in ELEMENTS))]
    needed: dict[str, str] = {}
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed[key] = manifest[key]["file"]
            waiting.extend(manifest[key].get("imports", ()))
    return list(needed.values())
