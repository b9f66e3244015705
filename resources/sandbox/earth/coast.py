"""Where the sea lies around a place, seen from its road."""

from __future__ import annotations

from functools import lru_cache

from env_service.geodesy import destination
from env_service.geography import geography

_SHORE_KM = (6.0, 16.0)
_BOX_DEG = 0.01
_BEARINGS = tuple(range(0, 360, 45))


@lru_cache(maxsize=4096)
def sea_bearings(lat: float, lon: float) -> tuple[float, ...]:
    """Bearings (degrees, multiples of 45) in which there is no land 6 km and 16 km away."""
    land = geography()
    found = []
    for bearing in _BEARINGS:
        points = [destination(lat, lon, float(bearing), distance) for distance in _SHORE_KM]
        if not any(
            land.land_intersects_bbox(east - _BOX_DEG, north - _BOX_DEG, east + _BOX_DEG, north + _BOX_DEG)
            for north, east in points
        ):
            found.append(float(bearing))
    return tuple(found)
