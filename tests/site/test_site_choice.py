"""Which episodes are shown, how their maps are framed, and how the world is projected."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sweeps_lab import lab_arm

from env_service.geodesy import wrap_longitude
from geo_assets.reports.arm_data import ArmData
from geo_assets.reports.site.frames import FARTHEST_SPAN_DEG, NEAREST_SPAN_DEG, window
from geo_assets.reports.site.telling import SHARED, Choice, choose
from geo_assets.reports.site.world_map import HEIGHT, WIDTH, equal_earth, ground, pixels


def arm(slug: str, km: list[float | None], **columns: list[Any]) -> ArmData:
    """An arm of one pass with these distances."""
    count = len(km)
    plain: dict[str, list[Any]] = {
        "task_index": list(range(count)),
        "sample": [0] * count,
        "distance_km": [math.nan if one is None else one for one in km],
        "cost": [0.0] * count,
        "outcome": ["no_guess" if one is None else "guess" for one in km],
        "forced": [False] * count,
        "fabricated": [False] * count,
        "invalid_calls": [0] * count,
        "turns": [1] * count,
    }
    arrays = {name: np.array(values) for name, values in (plain | columns).items()}
    return ArmData(
        spec=lab_arm(slug, k=1),
        tasks=count,
        k=1,
        complete=True,
        environment_version="e",
        harness_version="h",
        prompt_version="p",
        sweep_version="s",
        columns=arrays,
    )


def test_every_arm_shows_the_place_that_divides_them_then_its_own_best_and_worst() -> None:
    arms = {
        "near": arm("noisy_oracle", [10.0, 20.0, 5.0, 900.0], turns=[3, 9, 3, 3]),
        "far": arm("best_fixed_point", [50.0, 9000.0, 300.0, 800.0]),
    }
    found = choose(arms)
    assert found[:2] == [Choice("near", 1, 0, SHARED), Choice("far", 1, 0, SHARED)]
    own = [(one.task, one.why) for one in found if one.arm == "near"]
    # Its longest play is the shared one, which is shown already.
    assert own == [(1, SHARED), (2, "its closest guess"), (3, "its farthest guess")]
    assert choose(arms) == found
    assert [one.arm for one in choose(arms, 1)] == ["near", "far"]


def test_a_failure_is_shown_and_named_the_worst_first() -> None:
    flags = {"fabricated": [False, False, True, False], "forced": [True, False, False, False]}
    found = choose({"one": arm("noisy_oracle", [None, 20.0, 5.0, 900.0], **flags)})
    assert [(one.task, one.why) for one in found][:2] == [
        (2, "its closest guess"),
        (3, "its farthest guess"),
    ]
    found = choose({"one": arm("noisy_oracle", [None, 20.0, 5.0, 900.0])})
    assert (0, "never guessed") in [(one.task, one.why) for one in found]
    assert choose({"one": arm("noisy_oracle", [])}) == []
    never = choose({"one": arm("never_guesses", [None, None])})
    assert [(one.task, one.why) for one in never] == [(0, "never guessed")]


LAT, LON = st.floats(-85, 85), st.floats(-180, 180)


@settings(max_examples=200, deadline=None)
@example(82.0, 123.0, 85.0, 0.0)
@given(LAT, LON, LAT, LON)
def test_a_reveal_map_holds_guess_and_truth(lat1: float, lon1: float, lat2: float, lon2: float) -> None:
    lat, lon, span = window(lat1, lon1, lat2, lon2)
    assert NEAREST_SPAN_DEG <= span <= FARTHEST_SPAN_DEG
    room = max(0.0, 90.0 - span / 2)
    middle = max(-room, min(room, lat))
    scale = max(1.0 / 360.0 * span, math.cos(math.radians(middle)))
    for one_lat, one_lon in ((lat1, lon1), (lat2, lon2)):
        assert abs(one_lat - middle) <= span / 2 + 1e-6
        across = abs(wrap_longitude(one_lon - lon)) * scale
        assert across <= span / 2 + 1e-6 or span == FARTHEST_SPAN_DEG


def test_the_projection_is_equal_earth() -> None:
    x, y = equal_earth([0.0, 90.0, 0.0], [180.0, 0.0, 0.0])
    assert x[0] == pytest.approx(2.7066299836)
    assert (y[1], x[1], x[2], y[2]) == (pytest.approx(1.3173627591), 0.0, 0.0, 0.0)

    # Equal area: boxes of a degree, here and far north, keep their share of the sphere.
    def area(lat: float) -> float:
        lats, lons = np.array([lat, lat, lat + 1, lat + 1]), np.array([10.0, 11.0, 11.0, 10.0])
        px, py = equal_earth(lats, lons)
        return 0.5 * abs(float(np.dot(px, np.roll(py, 1)) - np.dot(py, np.roll(px, 1))))

    true = [math.sin(math.radians(lat + 1)) - math.sin(math.radians(lat)) for lat in (0, 60)]
    assert area(60) / area(0) == pytest.approx(true[1] / true[0], rel=2e-3)


def test_the_world_fills_its_picture() -> None:
    x, y = pixels([0.0, 0.0, 84.0], [-180.0, 180.0, 0.0])
    assert (x[0], x[1], y[2]) == (pytest.approx(0.0), pytest.approx(WIDTH), pytest.approx(0.0))
    assert 400 < HEIGHT < 500
    sea, grid, land, borders = ground()
    assert all("nan" not in part for part in (sea, grid, land, borders))
    assert 20_000 < len(land) < 120_000
