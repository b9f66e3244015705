"""Distances and bearings: known figures, symmetry, and inverses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service import geodesy

LAT = st.floats(-90, 90)
LON = st.floats(-180, 180)
HALF_AROUND = math.pi * geodesy.EARTH_RADIUS_KM


@pytest.mark.parametrize(
    ("a", "b", "km"),
    [
        ((0, 0), (0, 180), HALF_AROUND),
        ((90, 0), (-90, 77), HALF_AROUND),
        ((0, 0), (0, 1), HALF_AROUND / 180),
        ((48.8566, 2.3522), (51.5074, -0.1278), 343.6),
        ((0, 179.5), (0, -179.5), HALF_AROUND / 180),
        ((12.5, 7.25), (12.5, 7.25), 0.0),
    ],
)
def test_known_distances(a, b, km):
    assert geodesy.haversine_km(*a, *b) == pytest.approx(km, abs=0.1)


@given(LAT, LON, LAT, LON)
def test_distance_is_symmetric_bounded_and_the_same_for_arrays(lat1, lon1, lat2, lon2):
    there = geodesy.haversine_km(lat1, lon1, lat2, lon2)
    assert 0.0 <= there <= HALF_AROUND + 1e-9
    assert there == pytest.approx(geodesy.haversine_km(lat2, lon2, lat1, lon1), abs=1e-9)
    many = geodesy.haversine_km_array([lat1, lat1], [lon1, lon1], lat2, lon2)
    assert many.shape == (2,)
    assert many[0] == pytest.approx(there, abs=1e-6)


@given(st.floats(-85, 85), LON, st.floats(0, 360), st.floats(0.01, 15_000))
def test_destination_lies_at_the_distance_and_bearing_asked_for(lat, lon, bearing, km):
    lat2, lon2 = geodesy.destination(lat, lon, bearing, km)
    assert -90 <= lat2 <= 90
    assert -180 <= lon2 < 180
    assert geodesy.haversine_km(lat, lon, lat2, lon2) == pytest.approx(km, rel=1e-6, abs=1e-6)
    turn = (geodesy.bearing_deg(lat, lon, lat2, lon2) - bearing + 180) % 360 - 180
    assert abs(turn) < 1e-3


@given(LAT, LON, LAT, LON)
def test_chords_agree_with_great_circles(lat1, lon1, lat2, lon2):
    a, b = geodesy.unit_vectors([lat1, lat2], [lon1, lon2])
    chord = float(np.linalg.norm(a - b))
    assert geodesy.chord_to_km(chord) == pytest.approx(geodesy.haversine_km(lat1, lon1, lat2, lon2), abs=1e-3)
    assert geodesy.km_to_chord(geodesy.chord_to_km(chord)) == pytest.approx(chord, abs=1e-9)


@pytest.mark.parametrize(
    ("bearing", "point"),
    [
        (0, "N"),
        (11, "N"),
        (12, "NNE"),
        (45, "NE"),
        (180, "S"),
        (348, "NNW"),
        (349, "N"),
        (-90, "W"),
        (725, "N"),
    ],
)
def test_compass_points(bearing, point):
    assert geodesy.compass_point(bearing) == point


@given(st.floats(-1e9, 1e9))
def test_wrapped_angles_stay_in_their_half_open_ranges(angle):
    assert 0.0 <= geodesy.wrap_degrees(angle) < 360.0
    assert -180.0 <= geodesy.wrap_longitude(angle) < 180.0


def test_a_tiny_negative_angle_wraps_to_zero_and_not_to_360():
    assert geodesy.wrap_degrees(-1e-20) == 0.0
