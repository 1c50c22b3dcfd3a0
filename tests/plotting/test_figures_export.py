"""Figures for papers: geometry by hand, SVG that parses, PNG pixel by pixel, both without surprises."""

from __future__ import annotations

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from memplan_engine import (
    FigureStyle,
    Gap,
    InputError,
    MissingDependencyError,
    adopt,
    make_plan,
    make_problem,
)
from memplan_engine.plotting.axis_ticks import byte_ticks, step_ticks
from memplan_engine.plotting.figure_style import THEMES, ink_on, parse_length, rgb, shorten, text_width
from memplan_engine.plotting.png_figure import paint, png_bytes, to_png
from memplan_engine.plotting.scene import Rects, coarse, make_scene
from memplan_engine.plotting.shapes import Frame
from memplan_engine.plotting.svg_figure import to_svg, write_svg
from memplan_engine.profile import make_profile

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text></svg><script>alert(1)</script><!-- ]]> \"'&amp;\x00\x1b\ud800\u2028"

#   steps    0   1   2   3   4
#   a (100)  ├───────────┤         b lives with both, so it lies above c, at 120.
#   b  (50)      ├───────────┤
#   c (120)              ├───────┤
PROBLEM = make_problem([0, 1, 3], [3, 4, 5], [100, 50, 120], names=["a", "b", "c"], name="three")
PLAN = adopt(PROBLEM, np.array([0, 120, 0]))


def parsed(plan, **style):
    return ElementTree.fromstring(to_svg(plan, FigureStyle(**style)))


def rects_of(svg):
    """{name: (x, y, width, height)} of the buffers."""
    found = {}
    for group in svg.iter(f"{SVG}g"):
        for rect in group.iter(f"{SVG}rect"):
            name = rect.find(f"{SVG}title").text
            found[name] = tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
    return found


def random_plan(n, seed=0):
    draw = np.random.default_rng(seed)
    start = draw.integers(0, 200, n)
    return make_plan(
        make_problem(start, start + draw.integers(1, 20, n), draw.integers(1, 5000, n)), "greedy_by_size"
    )


# ---- geometry


def test_rectangles_stand_where_their_steps_and_bytes_are():
    """The arena of 170 bytes reaches 1/1.03 of the plot's height; five steps share its width."""
    scene = make_scene(PLAN, FigureStyle())
    plot, rects = scene.plot, scene.rects
    step, byte = plot.width / 5, plot.height / (170 * 1.03)
    assert rects.left == pytest.approx(plot.left + step * np.array([0, 1, 3]))
    assert rects.right == pytest.approx(plot.left + step * np.array([3, 4, 5]))
    assert rects.bottom == pytest.approx(plot.bottom - byte * np.array([0, 120, 0]))
    assert rects.top == pytest.approx(plot.bottom - byte * np.array([100, 170, 120]))
    assert rects.right.max() == pytest.approx(plot.right)


def test_a_buffer_with_a_gap_is_drawn_as_its_pieces():
    problem = make_problem([0], [10], [64], gaps={0: (Gap(2, 4), Gap(6, 8, 0, 16))})
    scene = make_scene(make_plan(problem, "naive"), FigureStyle())
    step = scene.plot.width / 10
    edges = np.column_stack([scene.rects.left, scene.rects.right]) - scene.plot.left
    assert edges / step == pytest.approx(np.array([[0, 2], [4, 6], [6, 8], [8, 10]]))
    heights = scene.rects.bottom - scene.rects.top
    assert heights / heights[0] == pytest.approx([1, 1, 0.25, 1])


@pytest.mark.parametrize(
    ("top", "most", "expected"),
    [
        (0, 5, [(0, "0")]),
        (170, 3, [(0, "0"), (64, "64 B"), (128, "128 B")]),
        (3 * 2**20, 3, [(0, "0"), (2**20, "1 MiB"), (2**21, "2 MiB"), (3 * 2**20, "3 MiB")]),
        (3 * 2**19, 3, [(0, "0"), (2**19, "0.5 MiB"), (2**20, "1 MiB"), (3 * 2**19, "1.5 MiB")]),
        (1200, 4, [(0, "0"), (512, "0.5 KiB"), (1024, "1 KiB")]),
    ],
)
def test_ticks_of_bytes_are_round_and_in_one_unit(top, most, expected):
    assert byte_ticks(top, most) == expected


@given(st.integers(1, 2**62), st.integers(1, 20))
def test_ticks_of_bytes_are_few_and_exact(top, most):
    ticks = byte_ticks(top, most)
    assert 1 <= len(ticks) <= most + 2
    values = [value for value, _ in ticks]
    assert values[-1] <= top
    for value, label in ticks[1:]:
        number, unit = label.split()
        factor = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
        assert float(number.replace(",", "")) * factor == value


def test_ticks_of_steps_are_one_two_five():
    assert step_ticks(5, 5) == [(n, str(n)) for n in range(6)]
    assert [value for value, _ in step_ticks(2300, 5)] == [0, 500, 1000, 1500, 2000]
    assert step_ticks(0, 5) == [(0, "0")]


def test_lengths():
    assert [parse_length(text, "w") for text in ("960", "100 px", "1in", "25.4mm", "2.54cm", "72pt")] == [
        960, 100, 96, 96, 96, 96,
    ]  # fmt: skip
    for text in ("", "-3", "1e9", "5 miles", "nan", "٣"):
        with pytest.raises(InputError, match="w: found"):
            parse_length(text, "w")


@pytest.mark.parametrize(
    "style",
    [{"width": 10}, {"height": 10**6}, {"dpi": 1}, {"theme": "pink"}, {"colour_by": "taste"}],
)
def test_a_style_that_there_is_not_is_refused(style):
    with pytest.raises(InputError):
        FigureStyle(**style)


def test_words_are_cut_to_fit():
    assert shorten("abc", 100, 10) == "abc"
    assert (
        shorten("abcdefghijklmnop", 50, 10)
        == "abcdefgh…"[: len(shorten("abcdefghijklmnop", 50, 10)) - 1] + "…"
    )
    assert text_width(shorten("m" * 100, 60, 10), 10) <= 60
    assert shorten("mmmmmmmm", 20, 10) == ""


def contrast(one, other):
    def luminance(colour):
        parts = [value / 255 for value in rgb(colour)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@given(st.from_regex(r"#[0-9a-f]{6}", fullmatch=True))
@example("#d11cdd")
def test_ink_can_be_read_on_any_colour(colour):
    best = max(contrast(colour, "#11141a"), contrast(colour, "#ffffff"))
    assert contrast(colour, ink_on(colour)) == pytest.approx(best)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_words_can_be_read_on_the_ground_of_each_theme(theme):
    for colour in (theme.text, theme.muted, theme.bound, theme.peak):
        assert contrast(colour, theme.background) >= 4.5


def test_a_long_profile_keeps_its_maxima():
    plan = random_plan(400)
    profile = make_profile(plan.problem, plan.offsets)
    edges, live, high = coarse(profile, 16)
    assert (len(edges), len(live), live.max(), high.max()) == (17, 16, profile.live.max(), plan.arena_bytes)
    for column in range(16):
        inside = [
            profile.live[s]
            for s in range(len(profile.live))
            if profile.sections.bounds[s + 1] > edges[column]
            and profile.sections.bounds[s] < edges[column + 1]
        ]
        assert live[column] == max(inside)


# ---- SVG


def test_svg_has_a_rectangle_for_each_buffer_at_its_place():
    scene = make_scene(PLAN, FigureStyle())
    found = rects_of(parsed(PLAN))
    assert found.keys() == {"a", "b", "c"}
    rects = scene.rects
    for place, name in enumerate("abc"):
        x, y, width, height = found[name]
        # Half a pixel is left free at the right and at the top.
        assert x == pytest.approx(rects.left[place], abs=0.006)
        assert x + width == pytest.approx(rects.right[place] - 0.5, abs=0.012)
        assert y == pytest.approx(rects.top[place] + 0.5, abs=0.006)
        assert y + height == pytest.approx(rects.bottom[place], abs=0.012)


def test_svg_of_many_buffers_has_as_many_rectangles_none_thinner_than_can_be_seen():
    plan = random_plan(3_000)
    svg = parsed(plan)
    drawn = [rect for group in svg.iter(f"{SVG}g") for rect in group.iter(f"{SVG}rect")]
    assert len(drawn) == 3_000
    assert min(float(rect.get(side)) for rect in drawn for side in ("width", "height")) >= 0.75


def test_svg_of_too_many_rectangles_embeds_a_picture_and_keeps_the_words():
    plan = random_plan(50)
    svg = ElementTree.fromstring(to_svg(plan, FigureStyle(dpi=96), most_rects=49))
    (image,) = svg.iter(f"{SVG}image")
    assert not list(svg.iter(f"{SVG}g"))
    assert image.get("href").startswith("data:image/png;base64,")
    assert any("steps" in (text.text or "") for text in svg.iter(f"{SVG}text"))


def test_svg_says_arena_bound_peak_and_colours():
    words = [text.text for text in parsed(PLAN, title="A title").iter(f"{SVG}text")]
    assert "A title" in words
    assert {"live", "fragmentation", "arena 170 B = lower bound", "peak step 3", "steps"} <= set(words)
    worse = adopt(PROBLEM, np.array([0, 150, 0]))
    words = [text.text for text in parsed(worse, title="").iter(f"{SVG}text")]
    assert {"arena 200 B", "lower bound 170 B (load)", "200 B"} & set(words) >= {"arena 200 B"}
    assert "three" not in words


def test_svg_takes_hostile_names_as_text():
    problem = make_problem([0, 0], [9, 9], [64, 64], names=[HOSTILE, "b"], name=HOSTILE)
    text = to_svg(make_plan(problem))
    text.encode("utf-8")
    svg = ElementTree.fromstring(text)
    assert not list(svg.iter(f"{SVG}script"))
    assert {element.tag.removeprefix(SVG) for element in svg.iter()} <= {
        "svg", "title", "defs", "pattern", "path", "rect", "line", "polygon", "g", "text",
    }  # fmt: skip
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ud800", "\ufffd")
    assert shown in rects_of(svg)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes_differ_in_ground_and_palette(theme):
    svg = to_svg(PLAN, FigureStyle(theme=theme))
    assert f'class="ground" width="960" height="600" fill="{THEMES[theme].background}"' in svg


def test_nothing_to_place_is_drawn_too():
    empty = make_plan(make_problem([], [], []))
    assert not list(parsed(empty).iter(f"{SVG}g"))
    assert Image.open(io.BytesIO(to_png(empty, FigureStyle(dpi=96)))).size == (960, 600)
    assert empty.figure().data


def test_small_figures_keep_room_for_the_plan():
    names = [f"kind{i}_with_a_long_name" for i in range(30)]
    problem = make_problem(range(30), range(1, 31), [2**i for i in range(30)], names=names)
    scene = make_scene(make_plan(problem), FigureStyle(width=240, height=240))
    assert scene.plot.height >= 40
    words = [shape.words for shape in scene.before if hasattr(shape, "words")]
    assert any(word.startswith("and ") and word.endswith(" more") for word in words)


def test_what_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(InputError):
        write_svg(PLAN, tmp_path / "no" / "folder.svg")
    assert list(tmp_path.iterdir()) == []


# ---- PNG


def pixels_of(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_png_is_as_large_as_asked_and_coloured_where_buffers_are():
    style = FigureStyle(width=600, height=400, dpi=192, colour_by="size")
    png = to_png(PLAN, style)
    image = Image.open(io.BytesIO(png))
    assert image.size == (1200, 800)
    assert image.info["dpi"] == pytest.approx((192, 192), rel=0.001)
    pixels, scene = pixels_of(png), make_scene(PLAN, style)
    rects = scene.rects
    for place in range(3):
        # Right of the middle: the name stands at the left, the peak in the middle of a step.
        x = int(2 * (rects.left[place] + 0.4 * (rects.right[place] - rects.left[place])))
        y = int(2 * (rects.top[place] + 0.2 * (rects.bottom[place] - rects.top[place])))
        assert tuple(pixels[y, x]) == rgb(rects.palette[rects.colour[place]])
    # Above c, beside b, nothing lives: the ground, or a line of the grid.
    empty = pixels[
        int(2 * scene.plot.top) + 20 : int(2 * scene.plot.bottom) - 400, int(2 * scene.plot.right) - 40
    ]
    assert {tuple(pixel) for pixel in empty} <= {rgb(THEMES["light"].background), rgb(THEMES["light"].grid)}


def test_png_too_large_is_refused_before_it_is_drawn():
    with pytest.raises(InputError, match="device pixels"):
        to_png(PLAN, FigureStyle(width=20_000, height=20_000, dpi=192))


def test_without_pillow_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"memplan\[figures\]"):
        to_png(PLAN)


def by_hand(rects, frame, scale):
    """The same as `paint`, one rectangle after the other; for rectangles that do not overlap."""
    width, height = round(frame.width * scale), round(frame.height * scale)
    image = np.zeros((height, width, 4), np.uint8)
    boxes = [
        [
            int((edge - origin) * scale + 0.5)
            for edge, origin in zip(edges, (frame.left, frame.top) * 2, strict=True)
        ]
        for edges in zip(rects.left, rects.top, rects.right, rects.bottom, strict=True)
    ]
    for (left, top, right, bottom), colour in zip(boxes, rects.colour, strict=True):
        right -= right - left >= 4
        top += bottom - top >= 3
        image[top:bottom, left:right] = (*rgb(rects.palette[colour]), 255)
    return image


@given(st.lists(st.tuples(*[st.integers(1, 12)] * 2, st.integers(0, 2)), min_size=1, max_size=12))
def test_painting_all_at_once_gives_what_painting_one_by_one_gives(boxes):
    """Rectangles side by side, of whole pixels."""
    edges = np.cumsum([0, *(width for width, _, _ in boxes)]).astype(float)
    heights = np.array([height for _, height, _ in boxes], float)
    rects = Rects(
        edges[:-1], 12 - heights, edges[1:], np.full(len(boxes), 12.0),
        np.array([colour for _, _, colour in boxes], np.uint8), ("#102030", "#ff0000", "#00ff7f"),
        np.arange(len(boxes)), tuple(map(str, range(len(boxes)))),
    )  # fmt: skip
    frame = Frame(0, 0, edges[-1], 12)
    assert (paint(rects, frame, 1.0) == by_hand(rects, frame, 1.0)).all()


def test_rectangles_thinner_than_a_pixel_are_drawn_and_share_it():
    thin = np.array([0.1, 0.2])
    rects = Rects(
        thin, np.zeros(2), thin + 0.05, np.full(2, 2.0), np.array([0, 1], np.uint8), ("#ff0000", "#0000ff"),
        np.arange(2), ("a", "b"),
    )  # fmt: skip
    image = paint(rects, Frame(0, 0, 3, 2), 1.0)
    assert image[:, 0].tolist() == [[127, 0, 127, 255]] * 2
    assert not image[:, 1:].any()


def test_a_picture_made_without_a_library_is_read_back_equal():
    pixels = np.random.default_rng(3).integers(0, 256, (7, 5, 4), np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png_bytes(pixels)))) == pixels).all()


@pytest.mark.parametrize("make", [to_svg, to_png])
def test_the_same_plan_gives_the_same_bytes(make):
    assert make(random_plan(200)) == make(random_plan(200))
