"""Rows of `geo bench data`: reading a vector tile, and splitting a pool."""

from typing import Any

import numpy as np

from env_service.errors import GeoError
from geo_assets.cli import references
from geo_assets.cli._bench_rows import Pair


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
    return Pair(
        lambda: references.tile_by_library(data),
        lambda: decode_sequences(data, 6, 10, 20),
        5,
        "mapbox_vector_tile",
        6,
    )


def _split() -> Pair:
    from env_service.geography import geography
    from geo_assets.config.settings import SplitSpec
    from geo_assets.data._positions import positions_of
    from geo_assets.data._split import split

    dice = np.random.default_rng(7)
    places = np.random.default_rng(7)
    starts = [geography().random_land_point(places) for _ in range(3673)]

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
    return Pair(
        lambda: references.closest_by_loop(where),
        lambda: split(pool, SplitSpec()),
        5,
        "loop over pairs of start frames",
        50,
    )


ROWS = {"tile of 70,000 sequences": _tile, "split of 3,673 x 24 frames": _split}
