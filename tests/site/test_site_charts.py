"""Drawings, from figures that can be checked by eye: where marks stand, what is said, what is left out."""

import re
import xml.etree.ElementTree as ET

import pytest

from env_service.scoring import board_reward, flat_distance_km, game_reward
from geo_assets.reports.site.compass import compass
from geo_assets.reports.site.interval_chart import IntervalRow, interval_chart
from geo_assets.reports.site.reward_curves import FARTHEST_KM, over_cost, over_distance, reward_table
from geo_assets.reports.site.scatter_chart import Point, scatter_chart
from geo_assets.reports.site.svg import Scale, around, element, number, path_of, signed, ticks
from geo_assets.reports.site.training_chart import Score, small_charts, training_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawings(markup: str) -> list[ET.Element]:
    """The wide and the narrow drawing, parsed as XML."""
    found = [ET.fromstring(part) for part in re.findall(r"<svg.*?</svg>", markup, re.DOTALL)]
    for one in found:
        assert one.get("role") == "img"
        assert len(one.get("aria-label", "")) > 20
        assert "nan" not in ET.tostring(one, encoding="unicode").lower()
    return found


def marks(drawing: ET.Element, kind: str) -> list[ET.Element]:
    """Elements of a class."""
    return [one for one in drawing.iter() if kind in (one.get("class") or "").split()]


def words(drawing: ET.Element) -> list[str]:
    """All texts."""
    return [one.text or "" for one in drawing.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "1"), (-0.04, "0"), (0.25, "0.2"), (1234.56, "1234.6"), (-2.5, "-2.5")]
)
def test_numbers_are_short(value: float, said: str) -> None:
    assert number(value) == said


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(-0.13, 0.31) == [-0.1, 0.0, 0.1, 0.2, 0.3]
    assert ticks(0.0, 20_015.0, 4) == [0.0, 5000.0, 10_000.0, 15_000.0, 20_000.0]
    assert ticks(3.0, 3.0) == [3.0]


def test_words_inside_a_drawing_are_escaped() -> None:
    assert element("text", "<b>&", class_='a"b') == '<text class="a&#34;b">&lt;b&gt;&amp;</text>'
    assert (signed(-0.5), signed(0.25)) == ("−0.500", "+0.250")
    assert path_of([(0, 0), (1.26, 2)]) == "M0 0L1.3 2"
    assert around([2.0, 2.0]) == (1.88, 2.12)
    assert Scale(0, 10, 100, 200)(2.5) == 125.0


def test_a_board_shows_dot_interval_and_best_and_says_what_is_incomplete() -> None:
    rows = [
        IntervalRow("First & best", 0.75, 0.5, 1.0, 0.9, kind="trained"),
        IntervalRow("Below zero", 0.1, -0.2, 0.4),
        IntervalRow("Half", None, note="incomplete: 3 of 6 episodes"),
    ]
    wide, narrow = drawings(
        interval_chart(rows, "A board of three arms for a test", "reward", extra_name="best")
    )
    for one in (wide, narrow):
        dots, bars = marks(one, "mean"), marks(one, "bar")
        assert (len(dots), len(bars), len(marks(one, "extra"))) == (2, 2, 1)
        x = [float(dot.get("cx", "")) for dot in dots]
        ends = [(float(bar.get("x1", "")), float(bar.get("x2", ""))) for bar in bars]
        assert x[0] == pytest.approx(sum(ends[0]) / 2, abs=0.1)
        assert x[1] < x[0]
        # The interval that reaches below zero stays within the drawing, right of the names.
        axis = min(float(line.get("x1", "")) for line in marks(one, "grid"))
        assert 0 <= ends[1][0] <= axis
        assert "incomplete: 3 of 6 episodes" in words(one)
        assert "First & best" in words(one)
        assert "0.750 ± 0.250" in words(one)
    assert [one.get("class") for one in marks(wide, "mean")] == ["mean trained", "mean"]


def test_differences_have_signs_groups_and_the_line_of_none() -> None:
    rows = [
        IntervalRow("a", -0.1, -0.2, 0.0, group="Against x"),
        IntervalRow("b", 0.3, 0.1, 0.5, group="Down"),
    ]
    wide, _ = drawings(
        interval_chart(rows, "Differences of a test, two of them", "difference", difference=True)
    )
    assert len(marks(wide, "zero")) == 1
    assert {"−0.100 ± 0.100", "+0.300 ± 0.200", "Against x", "Down"} <= set(words(wide))
    assert interval_chart([], "nothing at all to be drawn", "x") == ""


def test_names_of_a_scatter_cover_neither_each_other_nor_a_mark() -> None:
    points = [Point(f"An arm of number {at}", 3.0 + at / 50, 0.5 + at / 60, 0.4, 0.7) for at in range(12)]
    wide, narrow = drawings(scatter_chart(points, "Twelve arms close together", "turns", "reward"))
    for one in (wide, narrow):
        assert len(marks(one, "mean")) == 12
        names = marks(one, "name")
        assert 1 <= len(names) <= 12
        boxes = []
        for name in names:
            x, y, long = float(name.get("x", "")), float(name.get("y", "")), len(name.text or "") * 6.6
            left = {"start": x, "middle": x - long / 2, "end": x - long}[name.get("text-anchor", "")]
            boxes.append((left, y - 11, left + long, y + 3))
        for at, box in enumerate(boxes):
            for other in boxes[at + 1 :]:
                apart = box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
                assert apart
    assert scatter_chart([], "nothing at all to be drawn", "x", "y") == ""


def test_training_shows_raw_and_smoothed_reward_beside_the_scores() -> None:
    lines = [{"step": step, "reward": 0.1 * step, "looks": None} for step in range(1, 8)]
    scores = [Score(0, "Base", 0.3, 0.2, 0.4), Score(7, "Adapter", 0.6, 0.5, 0.7)]
    wide, narrow = drawings(training_chart(lines, scores, "Training reward over seven steps"))
    for one in (wide, narrow):
        raw = marks(one, "raw")
        assert (len(raw), len(marks(one, "smooth")), len(marks(one, "score")), len(marks(one, "bar"))) == (
            7,
            1,
            2,
            2,
        )
        course = [float(pair.split()[1]) for pair in marks(one, "smooth")[0].get("d", "")[1:].split("L")]
        # The mean of five lags behind a rising reward: lower on the page means a larger y.
        assert course[0] == pytest.approx(float(raw[0].get("cy", "")), abs=0.1)
        assert course[-1] > float(raw[-1].get("cy", "")) + 1
        assert {"0.300", "0.600"} <= set(words(one))
    assert training_chart([], scores, "a run without a single step") == ""
    assert small_charts(lines) == []
    assert len(small_charts([{"step": at, "looks": 1.0 + at} for at in range(4)])) == 1


def test_reward_charts_mark_where_curves_go_flat() -> None:
    for one in drawings(over_distance(1000.0, 0.2)):
        left, right = float(one.get("data-left", "")), float(one.get("data-right", ""))
        flat = float(marks(one, "flat")[0].get("x1", ""))
        assert (flat - left) / (right - left) * FARTHEST_KM == pytest.approx(flat_distance_km(0.2), abs=40)
        bottom, top = float(one.get("data-bottom", "")), float(one.get("data-top", ""))
        for name, reward in (("game", game_reward(1000.0, 0.2)), ("board", board_reward(1000.0, 0.2))):
            dot = next(mark for mark in marks(one, "at") if name in mark.get("class", ""))
            assert (bottom - float(dot.get("cy", ""))) / (bottom - top) == pytest.approx(reward, abs=1e-3)
    for one in drawings(over_cost(1000.0, 0.1)):
        left, right = float(one.get("data-left", "")), float(one.get("data-right", ""))
        assert (float(marks(one, "flat")[0].get("x1", "")) - left) / (right - left) * 0.6 == pytest.approx(
            0.2, abs=1e-3
        )


def test_the_reward_table_comes_from_the_formulas() -> None:
    table = reward_table()
    row = next(row for row in table.rows if row[0] == "750 km")
    assert row[3] == f"{game_reward(750.0, 0.1):.3f} · {board_reward(750.0, 0.1):.3f}"
    assert table.rows[-1][1:3] == ["nowhere", f"{flat_distance_km(0.05):,.0f} km"]


@pytest.mark.parametrize(("heading", "x"), [(0.0, 28.0), (90.0, 48.0), (270.0, 8.0)])
def test_a_compass_points_where_the_camera_looks(heading: float, x: float) -> None:
    needle = next(one for one in ET.fromstring(compass(heading, 90.0)).iter() if one.get("class") == "needle")
    assert float(needle.get("x2", "")) == pytest.approx(x)
