"""gallery.py [FOLDER]: draw the pictures of `docs/gallery.md`, in both themes, into docs/images/gallery.

Every plan is one that is found and proved at once, or that a constructive strategy makes: the same each time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from memplan_examples import PATH

from memplan_engine import FigureStyle, load, make_plan, write_svg

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images" / "gallery"


class Picture(NamedTuple):
    """An example, the strategy that plans it, and what its colours mean."""

    example: str
    strategy: str
    colour_by: str
    title: str


PICTURES = {
    "gpt2": Picture("gpt2.json", "auto", "module role", "GPT-2"),
    "resnet50": Picture("resnet50.json", "auto", "op kind", "ResNet-50"),
    "unet_training": Picture("unet_training.csv", "auto", "size", "U-Net, one training step"),
    "best_fit": Picture("teaching_best_fit.csv", "greedy_by_size", "lifetime", "Best fit: 12 bytes"),
    "first_fit": Picture("teaching_best_fit.csv", "auto", "lifetime", "First fit: 10 bytes, proved"),
    "gaps": Picture("teaching_gaps.csv", "auto", "lifetime", "A buffer that steps aside"),
}


def main(folder: Path = FOLDER) -> None:
    """Write `<name>-<theme>.svg` for every picture into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        plan = make_plan(load(PATH / picture.example), picture.strategy)
        for theme in ("light", "dark"):
            style = FigureStyle(800, 420, theme=theme, colour_by=picture.colour_by, title=picture.title)
            write_svg(plan, folder / f"{name}-{theme}.svg", style)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
