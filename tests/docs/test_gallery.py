"""The pictures of the gallery are what memplan draws today."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import ROOT

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        import gallery

        gallery.main(folder)
    return folder


def test_the_pictures_are_what_is_drawn_now(drawn: Path) -> None:
    kept = ROOT / "docs" / "images" / "gallery"
    names = sorted(path.name for path in drawn.iterdir())
    assert sorted(path.name for path in kept.iterdir()) == names
    differ = [name for name in names if (kept / name).read_bytes() != (drawn / name).read_bytes()]
    assert differ == [], "run `make gallery`"


def test_each_is_shown_in_its_theme_and_small(drawn: Path) -> None:
    shown = re.findall(r"\]\(images/gallery/(\S+-(light|dark)\.svg)#only-(light|dark)\)", PAGE)
    assert all(name_theme == theme for _, name_theme, theme in shown)
    assert sorted(name for name, _, _ in shown) == sorted(path.name for path in drawn.iterdir())
    for path in drawn.iterdir():
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert path.stat().st_size < 100_000
