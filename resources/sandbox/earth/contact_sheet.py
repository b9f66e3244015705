"""One picture to judge the synthetic Earth by: what a driver sees in a dozen countries.

python -m resources.sandbox.earth.contact_sheet OUT.png [CODE ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from env_service.views import render_view
from resources.sandbox.earth.climate import hilliness_at
from resources.sandbox.earth.glyphs import latin_text
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.earth.roads import trace_road
from resources.sandbox.earth.scene import Scene

PLACES: dict[str, tuple[float, float]] = {
    "NO": (61.2, 7.4),
    "KE": (-0.6, 37.2),
    "JP": (35.4, 138.6),
    "BR": (-16.0, -49.5),
    "US": (40.2, -97.5),
    "IN": (20.5, 78.0),
    "FR": (46.9, 2.4),
    "AU": (-24.0, 133.6),
    "ZA": (-27.5, 28.2),
    "RU": (56.3, 41.0),
    "TH": (15.8, 102.6),
    "MX": (20.8, -101.5),
    "GB": (52.4, -1.4),
    "DE": (50.4, 10.2),
    "ES": (38.6, -3.9),
    "IT": (43.3, 11.4),
    "SE": (60.2, 15.1),
    "FI": (62.8, 26.1),
    "GR": (39.4, 22.4),
    "EG": (30.4, 31.0),
    "MA": (32.2, -7.4),
    "NG": (7.6, 4.6),
    "CN": (30.4, 114.8),
    "KR": (36.6, 127.8),
    "VN": (20.8, 105.9),
    "ID": (-7.4, 110.4),
    "AR": (-35.2, -61.0),
    "CL": (-38.4, -72.2),
    "PE": (-13.2, -72.6),
    "CA": (52.0, -106.6),
    "NZ": (-39.8, 175.9),
    "TR": (38.9, 32.6),
    "IL": (32.0, 35.0),
    "ET": (9.2, 38.9),
    "MN": (47.4, 105.8),
    "SA": (24.8, 46.2),
    "PL": (52.2, 19.6),
    "NL": (52.1, 5.4),
    "IE": (53.2, -7.8),
    "IS": (64.2, -20.6),
}
"""Where a country's picture is taken."""
DEFAULT_COUNTRIES = ("NO", "KE", "JP", "BR", "US", "IN", "FR", "AU", "ZA", "RU", "TH", "MX")


def sample_scene(code: str, seed: int, urban: float, kind: str | None = None, s: float = 420.0) -> Scene:
    """A scene in a country of PLACES, with season and hour drawn from the seed."""
    lat, lon = PLACES[code]
    rng = np.random.default_rng([seed, ord(code[0]), ord(code[1])])
    lat, lon = lat + float(rng.normal(0, 0.3)), lon + float(rng.normal(0, 0.3))
    road = trace_road(lat, lon, seed, 900.0, kind, urban, hilliness_at(lat, lon))
    month = int(rng.integers(4, 11)) if lat >= 0 else (int(rng.integers(4, 11)) + 5) % 12 + 1
    return Scene(
        lat=lat,
        lon=lon,
        country_code=code,
        sequence_seed=seed,
        road=road,
        s=s,
        month=month,
        hour=float(rng.uniform(8.5, 16.5)),
        urban=urban,
        heading_deg=road.at(s).heading_deg,
    )


def contact_sheet(
    countries: Sequence[str] = DEFAULT_COUNTRIES,
    seed: int = 1,
    view_px: int = 320,
    turn_deg: float = 0.0,
    fov_deg: float = 90.0,
    pano_width: int = 2048,
) -> NDArray[np.uint8]:
    """Two views per country, out of town and in town, three countries to a row.

    `turn_deg` turns the views away from the direction of travel. Returns (height, width, 3) uint8. Raises
    KeyError for a country without a place in PLACES.
    """
    tiles = []
    for index, code in enumerate(countries):
        for urban, kind in ((0.18, "rural road"), (0.72, "urban street")):
            scene = sample_scene(code, seed + 17 * index, urban, kind)
            panorama = draw_panorama(scene, pano_width)
            view = render_view(
                panorama, scene.heading_deg, scene.heading_deg + turn_deg, 0.0, fov_deg, view_px
            )
            tiles.append(_labelled(view, f"{code} month {scene.month}"))
    per_row = 6
    blank = np.zeros_like(tiles[0])
    tiles += [blank] * (-len(tiles) % per_row)
    rows = [np.hstack(tiles[first : first + per_row]) for first in range(0, len(tiles), per_row)]
    return np.vstack(rows)


def _labelled(view: NDArray[np.uint8], text: str) -> NDArray[np.uint8]:
    image = Image.fromarray(view)
    label = latin_text(text, 18, (255, 255, 255))
    image.paste((0, 0, 0), (0, 0, label.width + 8, 20))
    image.paste(label, (4, 1), label)
    return np.asarray(image)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a contact sheet to the file named on the command line."""
    parser = argparse.ArgumentParser(description="Draw a contact sheet of the synthetic Earth.")
    parser.add_argument("out", type=Path, help="file to write, .png")
    parser.add_argument("countries", nargs="*", default=DEFAULT_COUNTRIES, help="two-letter country codes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turn", type=float, default=0.0, help="degrees away from the direction of travel")
    parser.add_argument("--fov", type=float, default=90.0, help="field of view, degrees")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.countries) - set(PLACES))
    if unknown:
        parser.error(f"no place for {', '.join(unknown)}; known: {' '.join(PLACES)}")
    sheet = contact_sheet(options.countries, options.seed, turn_deg=options.turn, fov_deg=options.fov)
    Image.fromarray(sheet).save(options.out)


if __name__ == "__main__":
    main()
