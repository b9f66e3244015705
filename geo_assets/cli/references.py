"""Reference methods for `geo bench`: the plain way to do what the product does faster.

Each is written the way one would without thinking about speed, with libraries that everybody has, so that a
ratio against it means something on any machine.
"""

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

EARTH_RADIUS_KM = 6371.0088


def view_by_rays(jpeg: bytes, yaw_deg: float, fov_deg: float, size: int) -> bytes:
    """Decode the panorama, cast a float64 ray per pixel, sample, and write an optimised JPEG with Pillow."""
    from PIL import Image

    pano = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
    height, width, _ = pano.shape
    focal = 0.5 * size / math.tan(math.radians(fov_deg) / 2)
    offset = np.arange(size) + 0.5 - size / 2
    right, down = np.meshgrid(offset, offset)
    ahead = np.full_like(right, focal)
    yaw = np.arctan2(right, ahead) + math.radians(yaw_deg)
    pitch = np.arcsin(-down / np.sqrt(right**2 + down**2 + ahead**2))
    column = ((yaw / (2 * np.pi) + 0.5) * width).astype(np.int64) % width
    row = np.clip(((0.5 - pitch / np.pi) * height).astype(np.int64), 0, height - 1)
    out = io.BytesIO()
    Image.fromarray(pano[row, column]).save(out, "JPEG", quality=85, optimize=True)
    return out.getvalue()


def map_by_matplotlib(rings: list[NDArray[Any]], lat: float, lon: float, span: float, size: int) -> bytes:
    """Outlines in a Matplotlib figure of `size` pixels, saved as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.collections import PolyCollection

    figure = plt.figure(figsize=(size / 100, size / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.add_collection(PolyCollection(rings, facecolors="#eee", edgecolors="#777", linewidths=0.6))
    axes.set_xlim(lon - span / 2, lon + span / 2)
    axes.set_ylim(lat - span / 2, lat + span / 2)
    axes.plot([lon], [lat], "ro")
    out = io.BytesIO()
    figure.savefig(out, format="png")
    plt.close(figure)
    return out.getvalue()


def country_by_scan(polygons: list[tuple[str, Any]], lat: float, lon: float) -> str | None:
    """The first polygon of all that holds the point."""
    from shapely import Point

    point = Point(lon, lat)
    for code, polygon in polygons:
        if polygon.contains(point):
            return code
    return None


def nearest_by_scan(lats: NDArray[Any], lons: NDArray[Any], lat: float, lon: float) -> int:
    """The nearest of all places by great-circle distance, one after the other."""
    best, least = -1, math.inf
    for index, (other_lat, other_lon) in enumerate(zip(lats.tolist(), lons.tolist(), strict=True)):
        distance = great_circle_km(lat, lon, other_lat, other_lon)
        if distance < least:
            best, least = index, distance
    return best


def great_circle_km(lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> float:
    """Haversine on the sphere of radius 6371.0088 km."""
    a, b = math.radians(lat_a), math.radians(lat_b)
    h = (
        math.sin((b - a) / 2) ** 2
        + math.cos(a) * math.cos(b) * math.sin(math.radians(lon_b - lon_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


def tile_by_library(data: bytes) -> int:
    """Decode every layer, geometry and property of a tile with the general-purpose library."""
    import mapbox_vector_tile

    return len(mapbox_vector_tile.decode(data)["sequence"]["features"])


def closest_by_loop(where: NDArray[Any]) -> float:
    """Smallest great-circle distance between any two rows (lat, lon) of `where`, pair by pair."""
    rows = where.tolist()
    least = math.inf
    for first, (lat, lon) in enumerate(rows):
        for other_lat, other_lon in rows[first + 1 :]:
            least = min(least, great_circle_km(lat, lon, other_lat, other_lon))
    return least
