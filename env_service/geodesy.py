"""Distances and directions on the sphere.

Latitude and longitude are WGS84 degrees, distances great-circle kilometres on a sphere of the mean Earth
radius, bearings degrees clockwise from true north. An ellipsoid is left out on purpose: the difference is
below 0.6 %, far under what a guess resolves, and one radius makes every figure reproducible by hand.
Formulas: haversine (R. W. Sinnott, "Virtues of the Haversine", 1984) and the standard great-circle direct
and inverse azimuth formulas.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

EARTH_RADIUS_KM = 6371.0088
"""Mean radius R1 of the WGS84 ellipsoid, in kilometres."""

_COMPASS_POINTS = (
    "N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW",
)  # fmt: skip


def haversine_km(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Great-circle distance in kilometres between two positions in degrees."""
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    half_lat = math.sin((phi2 - phi1) / 2)
    half_lon = math.sin(math.radians(lon2 - lon1) / 2)
    a = half_lat * half_lat + math.cos(phi1) * math.cos(phi2) * half_lon * half_lon
    # Rounding may push `a` past 1 for antipodes, where asin would have no answer.
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, a)))


def haversine_km_array(
    lat1: ArrayLike, lon1: ArrayLike, lat2: ArrayLike, lon2: ArrayLike
) -> NDArray[np.float64]:
    """`haversine_km` over arrays that broadcast against each other; the result has the broadcast shape."""
    phi1, phi2 = np.radians(np.asarray(lat1, np.float64)), np.radians(np.asarray(lat2, np.float64))
    delta_lon = np.radians(np.asarray(lon2, np.float64) - np.asarray(lon1, np.float64))
    a = np.sin((phi2 - phi1) / 2) ** 2 + np.cos(phi1) * np.cos(phi2) * np.sin(delta_lon / 2) ** 2
    distance: NDArray[np.float64] = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(1.0, a)))
    return distance


def bearing_deg(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Initial bearing from the first position to the second, in [0, 360); 0 where the two coincide."""
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    delta = math.radians(lon2 - lon1)
    east = math.sin(delta) * math.cos(phi2)
    north = math.cos(phi1) * math.sin(phi2) - math.sin(phi1) * math.cos(phi2) * math.cos(delta)
    return wrap_degrees(math.degrees(math.atan2(east, north)))


def destination(lat: float, lon: float, bearing: float, distance_km: float) -> tuple[float, float]:
    """Where a great circle that leaves (lat, lon) at `bearing` degrees is after `distance_km`.

    Returns:
        Latitude in [-90, 90] and longitude in [-180, 180).
    """
    phi, theta, delta = math.radians(lat), math.radians(bearing), distance_km / EARTH_RADIUS_KM
    sin_phi2 = math.sin(phi) * math.cos(delta) + math.cos(phi) * math.sin(delta) * math.cos(theta)
    phi2 = math.asin(max(-1.0, min(1.0, sin_phi2)))
    east = math.sin(theta) * math.sin(delta) * math.cos(phi)
    lon2 = lon + math.degrees(math.atan2(east, math.cos(delta) - math.sin(phi) * math.sin(phi2)))
    return math.degrees(phi2), wrap_longitude(lon2)


def unit_vectors(lat: ArrayLike, lon: ArrayLike) -> NDArray[np.float64]:
    """Positions in degrees as points of the unit sphere: (n,) and (n,) to (n, 3) float64.

    Straight-line (chord) distance between such points grows with great-circle distance, so a k-d tree over
    them finds true nearest neighbours with no special case at the poles or at 180 degrees.
    """
    phi = np.radians(np.atleast_1d(np.asarray(lat, np.float64)))
    lam = np.radians(np.atleast_1d(np.asarray(lon, np.float64)))
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def chord_to_km(chord: float) -> float:
    """Great-circle kilometres for a straight-line distance between two points of the unit sphere."""
    return 2 * EARTH_RADIUS_KM * math.asin(max(0.0, min(1.0, chord / 2)))


def km_to_chord(distance_km: float) -> float:
    """Straight-line distance on the unit sphere for great-circle kilometres; inverse of `chord_to_km`."""
    return 2 * math.sin(min(math.pi, max(0.0, distance_km / EARTH_RADIUS_KM)) / 2)


def compass_point(bearing: float) -> str:
    """The nearest of the sixteen compass points, "N" to "NNW"."""
    return _COMPASS_POINTS[int(wrap_degrees(bearing) / 22.5 + 0.5) % 16]


def wrap_degrees(angle: float) -> float:
    """Any angle brought into [0, 360)."""
    wrapped = angle % 360.0
    # A tiny negative angle rounds up to 360.0 itself, which is outside the half-open range.
    return 0.0 if wrapped == 360.0 else wrapped


def whole_heading(heading: float) -> float:
    """A heading in whole degrees, 0 to 359: rounded first and then wrapped, for 359.6 is 0 and never 360."""
    return wrap_degrees(math.floor(heading + 0.5))


def wrap_longitude(lon: float) -> float:
    """Any longitude brought into [-180, 180)."""
    return wrap_degrees(lon + 180.0) - 180.0
