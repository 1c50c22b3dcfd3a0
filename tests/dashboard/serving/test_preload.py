"""The page names the scripts that it will need, so that a browser loads them with its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving.preload import ELEMENTS, preloads
from streamlit import file_util

STATIC = Path(file_util.get_static_dir())
MANIFEST = """{"src/Selectbox/Selectbox.tsx": {"file": "static/js/s.js", "imports": ["_a.js", "page.html"]},
    "_a.js": {"file": "static/js/a.js", "imports": ["src/Selectbox/Selectbox.tsx"]},
    "page.html": {"file": "static/js/page.js"}, "src/Plot/Plot.tsx": {"file": "static/js/plot.js"}}"""


def hrefs(links: str) -> set[str]:
    return set(re.findall(r'<link rel="modulepreload" crossorigin href="\./([^"]+)">', links))


def test_what_an_element_imports_is_named_and_what_the_page_names_is_not(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(MANIFEST)
    page = '<script src="./static/js/page.js"></script>'
    assert hrefs(preloads(tmp_path, page)) == {"static/js/s.js", "static/js/a.js"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x/Html.tsx": {}}', '{"x/Html.tsx": {"file": 1}}'])
def test_another_manifest_names_nothing(tmp_path: Path, text: str) -> None:
    assert preloads(tmp_path, "") == ""
    (tmp_path / "manifest.json").write_text(text)
    assert preloads(tmp_path, "") == ""


def test_streamlits_own_scripts_are_named() -> None:
    named = hrefs(preloads(STATIC, (STATIC / "index.html").read_text(encoding="utf-8")))
    assert all((STATIC / file).is_file() for file in named)
    for element in ELEMENTS:
        assert any(file.startswith(f"static/js/{element}.") for file in named), element
    assert not any("Plotly" in file for file in named)
