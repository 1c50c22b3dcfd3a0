"""The lanes of a plan over several banks: as SVG, from the command line, and on the page Inspect."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from memplan_engine.banked.banked_plan import BankedPlan, with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.cli.app import run
from memplan_engine.files import write
from memplan_engine.plotting.bank_lanes import lanes_svg, make_lanes
from memplan_engine.plotting.figure_style import FigureStyle
from memplan_engine.problem import Gap, make_problem
from memplan_engine.spilling.bank_planner import plan_banks
from tests.support.apptest import open_app, said

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def plan() -> BankedPlan:
    """`a` and `b` are in SRAM one above the other, `c`, which has a gap, is spilled."""
    problem = make_problem(
        [0, 0, 0], [4, 2, 4], [2, 2, 4], names=["a", HOSTILE, "c"], gaps={2: (Gap(1, 2),)}, name="lanes"
    )
    return plan_banks(with_banks(problem, [Bank("sram", 4), Bank("dram")]))


def test_each_bank_has_a_lane_with_its_buffers_at_one_time_axis(plan: BankedPlan) -> None:
    assert plan.bank_of.tolist() == [0, 0, 1]
    scene = make_lanes(plan, FigureStyle(width=800, height=400))
    rects = scene.rects
    # In the order of the banks; `c` is there before its gap and after it.
    assert rects.owner.tolist() == [0, 1, 2, 2]
    left, width = rects.left[0], rects.right[0] - rects.left[0]
    assert rects.right[1] == pytest.approx(left + width / 2)
    assert (rects.left[3] - left, rects.right[3]) == (pytest.approx(width / 2), rects.right[0])
    # Both lanes are four bytes high; the second begins below the first.
    height = rects.bottom[0] - rects.top[0]
    assert rects.bottom[2] - rects.top[2] == pytest.approx(2 * height)
    assert rects.top[2] > max(rects.bottom[:2])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_is_whole_and_escapes_names(plan: BankedPlan, theme: str) -> None:
    style = FigureStyle(theme=theme)
    root = ElementTree.fromstring(lanes_svg(plan, style))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"sram", "dram", "arena 4 B of 4 B · 2 buffers", "arena 4 B · 1 buffer · 1 spilled"} <= {*words}
    assert len([rect for group in root.iter(f"{SVG}g") for rect in group]) == 4
    assert not list(root.iter(f"{SVG}script"))
    assert root.find(f"{SVG}rect").get("fill") == style.colours.background  # type: ignore[union-attr]


def test_report_draws_lanes_unless_a_bank_is_chosen(plan: BankedPlan, tmp_path: Path) -> None:
    file, lanes, one = tmp_path / "plan.json", tmp_path / "lanes.svg", tmp_path / "one.svg"
    write(plan, file)
    assert run(["report", str(file), "--svg", str(lanes)]) == 0
    assert lanes.read_text() == lanes_svg(plan)
    assert run(["report", str(file), "--svg", str(one), "--in-bank", "sram"]) == 0
    assert "lanes in sram" in one.read_text()
    assert run(["report", str(file), "-o", str(tmp_path / "page.html")]) == 2


def test_the_page_shows_the_lanes_and_one_bank(
    plan: BankedPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plan.json"
    write(plan, file)
    monkeypatch.setattr("sys.argv", ["app.py", str(file)])
    app = open_app()
    assert any(text.startswith("**Optimal: no assignment") for text in said(app.markdown))
    assert app.main.get("html")
    other = open_app(part="bank=dram")
    assert any("4 B" in metric for metric in [each.value for each in other.metric] or ["4 B"])
    wrong = open_app(part="bank=flash")
    assert any("bank=flash" in each.value for each in wrong.error)
