"""Countries can be told apart from small views of drives that were not seen before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from env_service.views import render_view
from resources.sandbox.earth.contact_sheet import sample_scene
from resources.sandbox.earth.panorama import draw_panorama

_COUNTRIES = ("NO", "KE", "JP", "BR", "US", "IN", "FR", "AU", "RU", "SA")
_TRAINING, _HELD_OUT = 7, 4


def _features(code: str, seed: int) -> NDArray[np.float64]:
    scene = sample_scene(code, seed, 0.1 + 0.7 * ((seed * 37) % 10) / 10.0)
    picture = draw_panorama(scene, 320)
    parts = []
    for turn in (0.0, 90.0, 180.0):
        view = render_view(picture, scene.heading_deg, scene.heading_deg + turn, 0.0, 90.0, 64)
        blocks = view.astype(np.float64).reshape(8, 8, 8, 8, 3).mean(axis=(1, 3))
        parts.append(blocks.mean(axis=1).ravel())  # a row of colours from sky to road
        spread = view.reshape(-1, 3).astype(np.float64)
        parts.append(np.percentile(spread[:, 0] - spread[:, 2], (5, 50, 95)))
        parts.append(np.percentile(spread[:, 1] - spread[:, 0], (5, 50, 95)))
    return np.concatenate(parts)


def test_nearest_centroids_tell_ten_countries_apart_well_above_chance() -> None:
    train = {code: np.array([_features(code, 100 + n) for n in range(_TRAINING)]) for code in _COUNTRIES}
    everything = np.concatenate(list(train.values()))
    middle, spread = everything.mean(axis=0), everything.std(axis=0) + 4.0
    centroids = np.array([(rows.mean(axis=0) - middle) / spread for rows in train.values()])
    right = 0
    for index, code in enumerate(_COUNTRIES):
        for number in range(_HELD_OUT):
            seen = (_features(code, 900 + number) - middle) / spread
            right += int(np.argmin(np.linalg.norm(centroids - seen, axis=1))) == index
    share = right / (_HELD_OUT * len(_COUNTRIES))
    print(f"{share:.2f} of held-out drives; chance is 0.10")
    assert share > 0.35
