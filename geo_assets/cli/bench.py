"""`geo bench`: what the product does fast, as ratios against the plain method in the same run, medians.

Left out: whole stages (the README's table has those, from the assets' own metadata) and anything on a GPU.
"""

import gzip
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import typer

from env_service.errors import GeoError
from geo_assets.cli import references


@dataclass(frozen=True)
class Measured:
    """One row: milliseconds of both methods and their ratio, with the ratio that is wanted."""

    what: str
    reference: str
    reference_ms: float
    ours_ms: float
    ratio: float
    goal: float


def bench(
    only: str = typer.Option("", help="Run the rows whose name contains this."),
    as_json: bool = typer.Option(False, "--json", help="Rows as JSON."),
) -> None:
    """Measure against reference methods, in one process, one after the other."""
    rows = []
    for what, reference, goal, make in _table():
        if only not in what:
            continue
        plain, ours, repeats = make()
        reference_ms, ours_ms = _median_ms(plain, min(repeats, 5)), _median_ms(ours, repeats)
        rows.append(Measured(what, reference, reference_ms, ours_ms, reference_ms / ours_ms, goal))
        if not as_json:
            row = rows[-1]
            print(
                f"{what:36s} {row.reference_ms:9.2f} ms -> {row.ours_ms:8.3f} ms  {row.ratio:7.1f}x", end=""
            )
            print(f"  (goal {goal:g}x)", flush=True)
    if as_json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2))


Pair = tuple[Callable[[], Any], Callable[[], Any], int]


def _table() -> Iterator[tuple[str, str, float, Callable[[], Pair]]]:
    yield "view 640 px, 90 deg, from 2048", "rays in float64, Pillow", 12, lambda: _view(2048, 90.0)
    yield "view 640 px, 30 deg, from 7680", "rays in float64, Pillow", 80, lambda: _view(7680, 30.0)
    yield "map 640 px", "matplotlib", 8, _map
    yield "country of a point", "scan of all polygons", 20, _country
    yield "nearest of all places", "scan", 100, _place
    yield "tile of 70,000 sequences", "mapbox_vector_tile", 6, _tile
    yield "split of 3,673 x 24 frames", "loop over pairs of start frames", 50, _split


def _median_ms(call: Callable[[], Any], repeats: int) -> float:
    call()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000.0)
    return statistics.median(taken)


def _view(width: int, fov: float) -> Pair:
    from env_service.views import PanoramaCache, encode_jpeg, render_view

    noise = np.random.default_rng(7).integers(0, 255, (width // 32, width // 16, 3), np.uint8)
    pano = np.repeat(np.repeat(noise, 16, axis=0), 16, axis=1)
    jpeg = encode_jpeg(pano)
    cache = PanoramaCache()
    headings = iter(range(10**9))

    def ours() -> bytes:
        decoded = cache.get("pano", lambda: jpeg)
        return encode_jpeg(render_view(decoded, 37.0, float(next(headings) * 31 % 360), 0.0, fov, 640))

    return lambda: references.view_by_rays(jpeg, 53.0, fov, 640), ours, 40


def _map() -> Pair:
    from env_service.geography import geography
    from env_service.maps import render_map

    rings = geography().country_outlines("50m")
    return (
        lambda: references.map_by_matplotlib(rings, 48.8, 9.2, 7.0, 640),
        (lambda: render_map(48.8, 9.2, 7.0)),
        20,
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

    return plain, ours, 9


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

    return plain, ours, 9


def _tile() -> Pair:
    from resources.vector_tiles import TileFeature, decode_sequences, encode_tile

    dice = np.random.default_rng(7)
    features = []
    for number in range(70_000):
        x, y = dice.integers(0, 4096, 2).tolist()
        line = [(x, y), (x + 5, y + 3), (x + 9, y + 4)]
        properties: dict[str, str | bool | int | float] = {
            "id": f"sequence{number:014d}",
            "image_id": 2**53 + number,
            "creator_id": 100_000 + number % 900,
            "captured_at": 1_600_000_000_000 + number,
            "is_pano": number % 5 == 0,
            "quality_score": round(number % 97 / 97, 3),
        }
        features.append(TileFeature(tuple(line), properties))
    data = encode_tile({"sequence": features})
    return lambda: references.tile_by_library(data), lambda: decode_sequences(data, 6, 10, 20), 5


def _split() -> Pair:
    from geo_assets.config.settings import SplitSpec
    from geo_assets.data._positions import positions_of
    from geo_assets.data._split import split

    dice = np.random.default_rng(7)
    starts = [(float(lat), float(lon)) for lat, lon in _points(3673)]

    def row(number: int, lat: float, lon: float) -> dict[str, Any]:
        frames = [
            {"image_id": f"{number}-{k}", "lat": lat + k * 3e-5, "lon": lon, "compass_angle": 0.0}
            for k in range(24)
        ]
        return {
            "task_index": number, "task_id": f"pool-{number:05d}", "sequence_id": f"s{number}",
            # As many countries as the published eval split has, so that the cap per country can be met.
            "country": f"country {number % 73}", "country_code": f"{number % 73:02d}",
            "start_frame": 12, "frames": frames,
            "attribution": {"creator_id": str(dice.integers(900))},
            "meta": {"quality_score": 0.5, "offline_ready": True},
        }  # fmt: skip

    pool = positions_of(row(number, *start) for number, start in enumerate(starts))
    where = np.asarray(starts)
    # Rows that are not fully mirrored are never carved, and the split would be measured doing nothing.
    done = split(pool, SplitSpec())
    if len(done.eval) != SplitSpec().eval_size or not done.train:
        raise GeoError("The benchmark's pool does not split into a full eval side and a training side")
    return lambda: references.closest_by_loop(where), lambda: split(pool, SplitSpec()), 5
