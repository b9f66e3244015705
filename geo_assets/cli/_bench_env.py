"""Rows of `geo bench env`: views, maps, look-ups, and steps per second of a served environment."""

import gzip
import io
import json

import numpy as np

from geo_assets.cli import references
from geo_assets.cli._bench_rows import Pair, stage_shares
from geo_assets.cli._bench_steps import look_steps


def panorama(width: int, seed: int = 7) -> bytes:
    """The JPEG of a panorama of coloured blocks, width x width / 2."""
    from env_service.views import encode_jpeg

    noise = np.random.default_rng(seed).integers(0, 255, (width // 32, width // 16, 3), np.uint8)
    return encode_jpeg(np.repeat(np.repeat(noise, 16, axis=0), 16, axis=1))


def _view(width: int, fov: float, goal: float) -> Pair:
    from env_service import views

    jpeg = panorama(width)
    cache = views.PanoramaCache()
    headings = iter(range(10**9))

    def ours() -> bytes:
        decoded = cache.get("pano", lambda: jpeg)
        heading = float(next(headings) * 31 % 360)
        return views.encode_jpeg(views.render_view(decoded, 37.0, heading, 0.0, fov, 640))

    picture = views.render_view(cache.get("pano", lambda: jpeg), 37.0, 10.0, 0.0, fov, 640)
    parts = [
        ("decoded panorama out of the cache", views.PanoramaCache, "get"),
        ("table of pixels", views, "_table"),
        ("turning and picking pixels", views, "render_view"),
        ("JPEG", views, "encode_jpeg"),
    ]
    return Pair(
        lambda: references.view_by_rays(jpeg, 53.0, fov, 640),
        ours,
        40,
        "decode, float64 rays with arctan2 and arcsin, Pillow with optimize",
        goal,
        floor=lambda: views.encode_jpeg(picture),
        floor_what="compressing the finished view",
        stages=lambda: stage_shares(ours, parts, 40),
    )


def _map() -> Pair:
    from PIL import Image

    from env_service import maps
    from env_service.geography import geography

    rings = geography().country_outlines("50m")

    def ours() -> bytes:
        return maps.render_map(48.8, 9.2, 7.0)

    finished = Image.open(io.BytesIO(ours()))
    finished.load()
    parts = [
        ("land, coasts, borders, graticule", maps, "ground"),
        ("towns", maps, "_towns"),
        ("names of countries", maps, "_countries"),
        ("labels of the graticule", maps, "_graticule_labels"),
        ("scale, pins, middle", maps, "_scale_bar"),
        ("reducing to a palette", Image.Image, "quantize"),
        ("PNG", Image.Image, "save"),
    ]
    return Pair(
        lambda: references.map_by_matplotlib(rings, 48.8, 9.2, 7.0, 640),
        ours,
        20,
        "matplotlib",
        8,
        floor=lambda: finished.save(io.BytesIO(), "PNG", compress_level=1),
        floor_what="compressing the finished map, nothing drawn",
        stages=lambda: stage_shares(ours, parts, 20),
    )


def _points(count: int) -> list[tuple[float, float]]:
    from env_service.geography import geography

    dice = np.random.default_rng(7)
    return [geography().random_land_point(dice) for _ in range(count)]


def _country() -> Pair:
    import shapely

    from env_service.geography import DATA, geography

    rows = json.loads(gzip.decompress((DATA / "countries.json.gz").read_bytes()))["polygons"]
    polygons = [(row["code"], shapely.Polygon(row["rings"][0], row["rings"][1:])) for row in rows]
    points = _points(200)

    def plain() -> None:
        for lat, lon in points:
            references.country_by_scan(polygons, lat, lon)

    def ours() -> None:
        for lat, lon in points:
            geography().country_at(lat, lon)

    return Pair(plain, ours, 9, "scan of all polygons", 20, plain_count=200, ours_count=200)


def _place() -> Pair:
    from env_service.geography import geography

    places = geography().places
    lats, lons = np.asarray(places.lat), np.asarray(places.lon)
    points = _points(20)

    def plain() -> None:
        for lat, lon in points:
            references.nearest_by_scan(lats, lons, lat, lon)

    def ours() -> None:
        for lat, lon in points:
            geography().nearest_place(lat, lon)

    reference = f"scan of {len(lats):,} places"
    return Pair(plain, ours, 9, reference, 100, plain_count=20, ours_count=20)


ROWS = {
    "view 640 px, 90 deg, from 2048": lambda: _view(2048, 90.0, 12),
    "view 640 px, 30 deg, from 7680": lambda: _view(7680, 30.0, 80),
    "map 640 px": _map,
    "country of a point": _country,
    "nearest of all places": _place,
    "look step, WebSocket, 8 sessions": lambda: look_steps([panorama(2048, seed) for seed in range(8)]),
}
