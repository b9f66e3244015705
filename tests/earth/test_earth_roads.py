"""Roads: limits on curves and grades, spacing, positions on the globe, sameness."""

from __future__ import annotations

import math

import numpy as np
import pytest

from env_service.geodesy import bearing_deg, haversine_km
from resources.sandbox.earth.climate import hilliness_at
from resources.sandbox.earth.roads import ROAD_LIMITS, STEP_M, trace_road


@pytest.mark.parametrize("kind", sorted(ROAD_LIMITS))
@pytest.mark.parametrize("hilliness", [0.0, 0.5, 1.0])
def test_curves_and_grades_stay_within_the_limits_of_the_kind(kind: str, hilliness: float) -> None:
    limits = ROAD_LIMITS[kind]
    for seed in range(8):
        road = trace_road(46.0, 10.0, seed, 2500.0, kind, hilliness=hilliness)
        turning = np.diff(road.heading_rad) / STEP_M
        grade = np.diff(road.z) / STEP_M
        assert np.abs(turning).max() <= limits.max_curvature + 1e-9
        assert np.abs(grade).max() <= limits.max_grade + 1e-9
        assert np.abs(np.diff(grade)).max() <= limits.max_grade_change * STEP_M + 1e-9
        # Curvature is continuous: a clothoid's curvature changes by a little from point to point.
        assert np.abs(np.diff(road.curvature)).max() < 0.3 * limits.max_curvature


def test_centreline_points_are_evenly_spaced_and_roads_do_bend_and_climb() -> None:
    road = trace_road(46.0, 10.0, 3, 2000.0, "rural road", hilliness=0.9)
    steps = np.hypot(np.diff(road.x), np.diff(road.y))
    assert np.allclose(steps, STEP_M, atol=1e-3)
    assert road.length_m == 2000.0
    assert np.degrees(np.ptp(road.heading_rad)) > 25.0
    assert np.ptp(road.z) > 15.0


def test_positions_on_the_globe_agree_with_great_circles() -> None:
    for lat, lon in ((60.0, 10.0), (-45.0, 170.0), (0.0, 179.9999), (78.0, -20.0)):
        road = trace_road(lat, lon, 5, 1500.0)
        assert road.latlon(0.0) == pytest.approx((lat, lon), abs=1e-9)
        for s in (10.0, 500.0, 1500.0):
            point = road.at(s)
            there = road.latlon(s)
            assert haversine_km(lat, lon, *there) * 1000.0 == pytest.approx(
                math.hypot(point.x, point.y), abs=0.01
            )
            expected = math.degrees(math.atan2(point.x, point.y)) % 360.0
            off = (bearing_deg(lat, lon, *there) - expected + 180.0) % 360.0 - 180.0
            assert abs(off) < 0.05


def test_frames_five_metres_apart_lie_five_metres_apart_along_the_heading() -> None:
    road = trace_road(52.0, 5.0, 9, 1000.0, "rural road")
    lats, lons = road.latlon_array(np.arange(0.0, 1000.0, 5.0))
    for index in range(len(lats) - 1):
        here, there = (lats[index], lons[index]), (lats[index + 1], lons[index + 1])
        assert haversine_km(*here, *there) * 1000.0 == pytest.approx(5.0, abs=0.03)
        heading = road.at(5.0 * index + 2.5).heading_deg
        off = (bearing_deg(*here, *there) - heading + 180.0) % 360.0 - 180.0
        assert abs(off) < 2.0


def test_the_same_arguments_give_the_same_road_and_others_another() -> None:
    first = trace_road(10.0, 20.0, 7, 800.0, urban=0.3)
    again = trace_road(10.0, 20.0, 7, 800.0, urban=0.3)
    other = trace_road(10.0, 20.0, 8, 800.0, urban=0.3)
    assert first.kind == again.kind
    assert np.array_equal(first.x, again.x) and np.array_equal(first.z, again.z)
    assert not np.array_equal(first.x, other.x)


def test_kinds_fit_their_surroundings() -> None:
    town = {trace_road(50.0, 8.0, seed, 100.0, urban=0.9).kind for seed in range(60)}
    country = {trace_road(50.0, 8.0, seed, 100.0, urban=0.1).kind for seed in range(60)}
    assert town == {"urban street"}
    assert {"rural road", "highway", "track"} <= country


def test_a_road_runs_on_beyond_its_ends() -> None:
    road = trace_road(50.0, 8.0, 2, 300.0)
    beyond = road.at(road.length_m + 40.0)
    end = road.at(road.length_m)
    assert math.hypot(beyond.x - end.x, beyond.y - end.y) == pytest.approx(40.0, abs=1e-6)
    assert beyond.z == pytest.approx(end.z)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="unknown kind of road 'canal'"):
        trace_road(0.0, 0.0, 1, 100.0, "canal")
    with pytest.raises(ValueError, match="positive length"):
        trace_road(0.0, 0.0, 1, 0.0)


def test_mountains_are_hillier_than_plains() -> None:
    assert hilliness_at(46.5, 9.5) > 0.8 > 0.2 > hilliness_at(52.2, 5.3)
