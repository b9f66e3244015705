"""Coverage, said rather than hidden: of 45 populated points, how many have imagery near, and panoramas.

The points are the most populous town of each country, the 45 largest of those. A point counts as covered
where a drive starts within five kilometres of it, which is what the coverage tiles can tell without a
request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from env_service.geodesy import haversine_km_array
from env_service.geography import geography

POINTS = 45
NEAR_KM = 5.0
REACH_DEG = 0.05
"""No position nearer than five kilometres lies further off in latitude."""


@dataclass(frozen=True)
class Town:
    """One of the points."""

    name: str
    country_code: str
    lat: float
    lon: float


@lru_cache(maxsize=1)
def towns() -> tuple[Town, ...]:
    """The largest town of each country, the 45 largest of them."""
    places, found = geography().places, dict[str, Town]()
    for index, code in enumerate(places.country_codes):
        if code not in found:
            place = places[index]
            found[code] = Town(place.name, code, place.lat, place.lon)
        if len(found) == POINTS:
            break
    return tuple(found.values())


class CoverageProbe:
    """Counts drives near each point while tiles pass by; nothing but the counts is kept."""

    def __init__(self, points: Sequence[Town] = ()) -> None:
        self.points = tuple(points) or towns()
        self.any = np.zeros(len(self.points), np.int64)
        self.panoramic = np.zeros(len(self.points), np.int64)

    def add(self, lat: ArrayLike, lon: ArrayLike, panoramic: ArrayLike) -> None:
        """Count the drives of one tile: first vertices in degrees, and whether each is panoramic."""
        lats, lons = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
        flags = np.asarray(panoramic, bool)
        if not len(lats):
            return
        for number, town in enumerate(self.points):
            if not lats.min() - REACH_DEG <= town.lat <= lats.max() + REACH_DEG:
                continue
            near = haversine_km_array(town.lat, town.lon, lats, lons) <= NEAR_KM
            self.any[number] += int(near.sum())
            self.panoramic[number] += int((near & flags).sum())

    @property
    def facts(self) -> dict[str, int]:
        """How many points there are, and how many of them have anything and a panorama near."""
        return {
            "coverage_points": len(self.points),
            "points_with_imagery": _count(self.any),
            "points_with_panoramas": _count(self.panoramic),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per point."""
        counts = zip(self.points, self.any.tolist(), self.panoramic.tolist(), strict=True)
        return [
            {"town": town.name, "country": town.country_code, "drives": drives, "panoramic": panoramic}
            for town, drives, panoramic in counts
        ]


def _count(values: NDArray[np.int64]) -> int:
    return int((values > 0).sum())
