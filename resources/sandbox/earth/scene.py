"""What one panorama shows: a place, a moment, a road and how far along it the camera stands."""

from __future__ import annotations

from dataclasses import dataclass

from resources.sandbox.earth.roads import Road


@dataclass(frozen=True, eq=False)
class Scene:
    """One captured frame.

    `lat`, `lon` in degrees; `country_code` ISO 3166-1 alpha-2; `sequence_seed` fixes everything that the
    frames of one drive share (weather, houses, trees); `s` metres along `road`; `month` 1 to 12; `hour` local
    solar time; `urban` 0 (wilderness) to 1 (city centre); `heading_deg` the direction, clockwise from north,
    that the centre column of the picture faces (the direction of travel).
    """

    lat: float
    lon: float
    country_code: str
    sequence_seed: int
    road: Road
    s: float
    month: int
    hour: float
    urban: float
    heading_deg: float
