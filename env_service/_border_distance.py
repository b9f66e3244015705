"""How far a position is from a border polygon, on the sphere, at 180 degrees and at the poles too."""

import math
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from env_service.geodesy import EARTH_RADIUS_KM, haversine_km, wrap_longitude

# Edges of border polygons are straight in longitude and latitude; pieces this short are straight on the
# sphere too, to within metres.
_PIECE_DEG = 0.05


def boxes_around(lat: float, lon: float, reach_km: float) -> list[tuple[float, float, float, float]]:
    """Longitude/latitude boxes that hold everything within reach, cut at 180 degrees."""
    # A little more than needed, so that nothing at the rim is lost to rounding.
    reach = math.degrees(reach_km / EARTH_RADIUS_KM) * 1.01 + 1e-6
    south, north = max(-90.0, lat - reach), min(90.0, lat + reach)
    widest = max(abs(south), abs(north))
    if widest + 1e-9 >= 90.0:
        return [(-180.0, south, 180.0, north)]
    # Largest longitude difference on a small circle of that radius: asin(sin r / cos lat).
    sine = math.sin(math.radians(reach)) / math.cos(math.radians(lat))
    half = 180.0 if sine >= 1.0 else math.degrees(math.asin(sine)) * 1.01
    if half >= 180.0:
        return [(-180.0, south, 180.0, north)]
    middle = wrap_longitude(lon)
    boxes = [(max(-180.0, middle - half), south, min(180.0, middle + half), north)]
    if middle - half < -180.0:
        boxes.append((middle - half + 360.0, south, 180.0, north))
    if middle + half > 180.0:
        boxes.append((-180.0, south, middle + half - 360.0, north))
    return boxes


def border_distance_km(polygon: Any, box: tuple[float, float, float, float], lat: float, lon: float) -> float:
    """Great-circle distance from a position to the part of a polygon within a box; infinite if none."""
    near = shapely.clip_by_rect(polygon, *box)
    if near.is_empty:
        return math.inf
    points = shapely.segmentize(near, _PIECE_DEG)
    flat = shapely.transform(points, lambda coords: _azimuthal_equidistant(coords, lat, lon))
    # The image of a valid ring may touch itself at the rim; its line work is all that is measured.
    return float(shapely.distance(shapely.Point(0.0, 0.0), flat.boundary))


def _azimuthal_equidistant(coords: NDArray[np.float64], lat: float, lon: float) -> NDArray[np.float64]:
    """(n, 2) lon/lat to kilometres east and north of a position; distances from it are true."""
    phi0, phi = math.radians(lat), np.radians(coords[:, 1])
    delta = np.radians(coords[:, 0] - lon)
    east = np.cos(phi) * np.sin(delta)
    north = math.cos(phi0) * np.sin(phi) - math.sin(phi0) * np.cos(phi) * np.cos(delta)
    distance = np.array([haversine_km(lat, lon, y, x) for x, y in coords.tolist()])
    norm = np.hypot(east, north)
    scale = np.divide(distance, norm, out=np.zeros_like(distance), where=norm > 0.0)
    return np.stack([east * scale, north * scale], axis=-1)
