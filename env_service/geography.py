"""What is where: countries by polygon, towns by distance, land, and outlines to draw.

Countries come from border polygons that carry ISO 3166-1 codes for islands and overseas territories too and
reach a little way out to sea (`env_service/data`, sources and licences there). Country lookup reads a grid of
quarter degrees; only in cells on a border an R-tree names the few polygons there, and those are tested,
prepared. Towns lie in a k-d tree of unit vectors (`_place_tree`). One `geography()` is loaded once
per process and shared; every method is read-only and safe to call from any thread.
"""

import gzip
import json
import math
import re
import threading
import unicodedata
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import shapely
from numpy.typing import ArrayLike, NDArray

from env_service._border_distance import border_distance_km, boxes_around
from env_service._place_tree import PlaceTree
from env_service.geodesy import bearing_deg, chord_to_km, compass_point, unit_vectors, wrap_longitude

DATA = Path(__file__).parent / "data"
NEAREST_COUNTRY_KM = 25.0
Detail = Literal["110m", "50m"]

_UNITS_PER_DEGREE = 10_000
# Border polygons stop about a metre short of 180 degrees.
_SEAM_DEG = 179.99998


@dataclass(frozen=True, slots=True)
class Country:
    """ISO 3166-1 alpha-2 code, English name, continent (seven-continent model) and UN M49 subregion."""

    code: str
    name: str
    continent: str
    subregion: str


@dataclass(frozen=True, slots=True)
class Place:
    """A town: name, ISO country code, position in degrees, population."""

    name: str
    country_code: str
    lat: float
    lon: float
    population: int


@dataclass(frozen=True, slots=True)
class PlaceDescription:
    """What a position is near to.

    Attributes:
        country: the country there, or the nearest one within 25 km; None on the open sea.
        nearest_city: the nearest town of 15,000 people or more.
        distance_km, bearing_deg: from the position to that town.
    """

    country: Country | None
    nearest_city: Place
    distance_km: float
    bearing_deg: float

    @property
    def subregion(self) -> str | None:
        """UN M49 subregion of the country."""
        return self.country.subregion if self.country else None

    @property
    def text(self) -> str:
        """For example "Belgium, Western Europe; nearest city Brussels (3.2 km NE)"."""
        where = "Open sea"
        if self.country:
            parts = dict.fromkeys((self.country.name, self.country.subregion))
            where = ", ".join(parts)
        far = f"{self.distance_km:.1f}" if self.distance_km < 100 else f"{self.distance_km:,.0f}"
        return f"{where}; nearest city {self.nearest_city.name} ({far} km {compass_point(self.bearing_deg)})"


@dataclass(frozen=True, slots=True)
class Places:
    """All towns as arrays of equal length, most populous first."""

    names: list[str]
    country_codes: list[str]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    population: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Place:
        return Place(
            self.names[index],
            self.country_codes[index],
            float(self.lat[index]),
            float(self.lon[index]),
            int(self.population[index]),
        )


@lru_cache(maxsize=1)
def geography() -> "Geography":
    """The one Geography of this process; the first call reads the files (a fraction of a second)."""
    return Geography()


class Geography:
    """Countries, towns, land and outlines over the vendored files in `folder`."""

    def __init__(self, folder: Path = DATA) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        content = json.loads(gzip.decompress((folder / "countries.json.gz").read_bytes()))
        self._countries = {
            row["code"]: Country(row["code"], row["name"], row["continent"], row["subregion"])
            for row in content["countries"]
        }
        self._capitals = {row["code"]: row["capital"] for row in content["countries"] if row["capital"]}
        self._by_name = {
            key: row["code"] for row in content["countries"] for name in row["names"] for key in _keys(name)
        }
        # A country's own display name beats another one's alias.
        self._by_name |= {key: c.code for c in self._countries.values() for key in _keys(c.name)}
        self._codes: list[str] = [polygon["code"] for polygon in content["polygons"]]
        self._owners: list[Country] = [self._countries[code] for code in self._codes]
        self._polygons: NDArray[Any] = np.array(
            [shapely.Polygon(p["rings"][0], p["rings"][1:]) for p in content["polygons"]], dtype=object
        )
        shapely.prepare(self._polygons)
        # The first test inside a prepared polygon builds its index: now, before threads share it.
        inner = shapely.point_on_surface(self._polygons)
        shapely.intersects_xy(self._polygons, shapely.get_x(inner), shapely.get_y(inner))
        self._tree = shapely.STRtree(self._polygons)
        with np.load(folder / "country-cells.npz", allow_pickle=False) as archive:
            cells = archive["cells"]
        self._cell_rows, self._cell_columns = cells.shape
        self._rows_per_degree, self._columns_per_degree = cells.shape[0] / 180.0, cells.shape[1] / 360.0
        # Plain Python integers come out of an array.array several times faster than out of numpy.
        self._cells = array("h", cells.tobytes())
        self._in_cell: dict[int, list[int]] = {}
        # Towns that have been the nearest to something: made once, and never more than there are towns.
        self._met: dict[int, Place] = {}

    # Countries

    @property
    def countries(self) -> tuple[Country, ...]:
        """All countries and territories with a code, by code."""
        return tuple(self._countries.values())

    def country_at(self, lat: float, lon: float) -> Country | None:
        """The country whose polygon holds the position; None on the open sea or on no country's land."""
        if not -90.0 <= lat <= 90.0:
            return None
        # Most of the time of this method is Python's own, so nothing is called that need not be.
        x = lon if -_SEAM_DEG <= lon <= _SEAM_DEG else _border_longitude(lon)
        row = int((lat + 90.0) * self._rows_per_degree)
        if row == self._cell_rows:
            row -= 1
        cell = row * self._cell_columns + int((x + 180.0) * self._columns_per_degree)
        found: int = self._cells[cell]
        if found >= 0:
            return self._owners[found]
        if found == -1:
            return None
        for index in self._in_cell.get(cell) or self._candidates(cell):
            if shapely.intersects_xy(self._polygons[index], x, lat):
                return self._owners[index]
        return None

    def _candidates(self, cell: int) -> list[int]:
        """Polygons that reach into a cell on a border, found once per cell."""
        row, column = divmod(cell, self._cell_columns)
        high, wide = 180.0 / self._cell_rows, 360.0 / self._cell_columns
        west, south = column * wide - 180.0, row * high - 90.0
        box = shapely.box(west, south, west + wide, south + high)
        found = sorted(self._tree.query(box, predicate="intersects").tolist())
        self._in_cell[cell] = found
        return found

    def codes_at(self, lat: ArrayLike, lon: ArrayLike) -> list[str | None]:
        """`country_at` for arrays of n positions: n ISO codes or None."""
        y = np.atleast_1d(np.asarray(lat, np.float64))
        x = np.array([_border_longitude(value) for value in np.atleast_1d(np.asarray(lon)).tolist()])
        codes: list[str | None] = [None] * len(x)
        points, polygons = self._tree.query(shapely.points(x, y), predicate="intersects")
        # Where polygons touch the lowest number wins, as in `country_at`.
        order = np.argsort(-polygons, kind="stable")
        for point, polygon in zip(points[order].tolist(), polygons[order].tolist(), strict=True):
            codes[point] = self._codes[polygon]
        return codes

    def nearest_country(
        self, lat: float, lon: float, max_km: float = NEAREST_COUNTRY_KM
    ) -> tuple[Country, float] | None:
        """The country there (0 km) or the nearest one within `max_km`, with the distance on the sphere.

        Borders within reach are brought into an azimuthal equidistant projection around the position, where
        the distance to the middle is the great-circle distance, at 180 degrees and at the poles too.
        """
        inside = self.country_at(lat, lon)
        if inside is not None:
            return inside, 0.0
        best: tuple[float, str] | None = None
        for box in boxes_around(lat, lon, max_km):
            for index in self._tree.query(shapely.box(*box)).tolist():
                distance = border_distance_km(self._polygons[index], box, lat, lon)
                if distance <= max_km and (best is None or (distance, self._codes[index]) < best):
                    best = distance, self._codes[index]
        return (self._countries[best[1]], best[0]) if best else None

    def country_by_code(self, code: str) -> Country | None:
        """By ISO 3166-1 alpha-2 code, in any case."""
        return self._countries.get(code.strip().upper())

    def country_by_name(self, name: str) -> Country | None:
        """By English name or a usual variant of it; accents, case, punctuation and "the" do not matter."""
        code = next((self._by_name[key] for key in _keys(name) if key in self._by_name), None)
        return self._countries[code] if code else None

    def capital_of(self, code: str) -> Place | None:
        """The capital of a country by ISO code; None where it has none on record."""
        row = self._capitals.get(code.strip().upper())
        if row is None:
            return None
        return Place(row["name"], code.strip().upper(), row["lat"], row["lon"], row["population"])

    # Towns

    @cached_property
    def places(self) -> Places:
        """All towns of 15,000 people or more (and capitals of provinces), most populous first."""
        # Neither `pq.read_table` nor Arrow's `to_numpy`: both import pandas, which costs a service with no
        # use for it start-up time and memory.
        with pq.ParquetFile(self._folder / "places.parquet") as file:
            table = file.read()
        return Places(
            table["name"].to_pylist(),
            table["country_code"].to_pylist(),
            np.from_dlpack(table["lat"].combine_chunks()).astype(np.float64),
            np.from_dlpack(table["lon"].combine_chunks()).astype(np.float64),
            np.from_dlpack(table["population"].combine_chunks()).astype(np.int64),
        )

    @cached_property
    def _place_tree(self) -> PlaceTree:
        return PlaceTree(unit_vectors(self.places.lat, self.places.lon))

    def nearest_place(self, lat: float, lon: float) -> tuple[Place, float]:
        """The nearest town (of two equally near the more populous) and the distance to it in kilometres."""
        phi, lam = math.radians(lat), math.radians(lon)
        x, y, z = math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)
        index, square = self._place_tree.nearest(x, y, z)
        place = self._met.get(index)
        if place is None:
            place = self._met[index] = self.places[index]
        return place, chord_to_km(math.sqrt(square))

    def describe(self, lat: float, lon: float) -> PlaceDescription:
        """Country, subregion and nearest town; the bearing runs from the position to the town."""
        nearest = self.nearest_country(lat, lon)
        place, distance = self.nearest_place(lat, lon)
        bearing = bearing_deg(lat, lon, place.lat, place.lon)
        return PlaceDescription(nearest[0] if nearest else None, place, distance, bearing)

    # Land

    def land_intersects_bbox(self, west: float, south: float, east: float, north: float) -> bool:
        """Whether any land lies in the box (degrees, edges included). West above east crosses 180 degrees."""
        if west > east:
            return self.land_intersects_bbox(west, south, 180.0, north) or self.land_intersects_bbox(
                -180.0, south, east, north
            )
        found = self._land_tree.query(shapely.box(west, south, east, north), predicate="intersects")
        return len(found) > 0

    def random_land_point(self, rng: np.random.Generator) -> tuple[float, float]:
        """A position drawn evenly by area from the land of all countries, Antarctica left out."""
        while True:
            lat = math.degrees(math.asin(float(rng.uniform(-1.0, 1.0))))
            lon = float(rng.uniform(-180.0, 180.0))
            if not len(self._land_tree.query(shapely.Point(lon, lat), predicate="intersects")):
                continue
            country = self.country_at(lat, lon)
            if country is not None and country.code != "AQ":
                return lat, lon

    @cached_property
    def _land_tree(self) -> shapely.STRtree:
        polygons: dict[int, list[NDArray[np.float32]]] = {}
        owners = self._outlines("50m")["land_polygons"].tolist()
        for owner, ring in zip(owners, self.land_outlines("50m"), strict=True):
            polygons.setdefault(owner, []).append(ring)
        land = [shapely.make_valid(shapely.Polygon(p[0], p[1:])) for p in polygons.values()]
        small = [shapely.make_valid(shapely.Polygon(ring)) for ring in self.island_outlines()]
        return shapely.STRtree([*land, *small])

    # Outlines

    def country_outlines(self, detail: Detail = "50m") -> list[NDArray[np.float32]]:
        """Outer rings of all countries, each (n, 2) float32 longitude/latitude; split at 180 degrees."""
        return self._lines(detail, "country")

    def country_outline_codes(self, detail: Detail = "50m") -> list[str]:
        """ISO codes of `country_outlines`, ring by ring; "" where the source has none."""
        return [str(code) for code in self._outlines(detail)["country_codes"]]

    def land_outlines(self, detail: Detail = "50m") -> list[NDArray[np.float32]]:
        """Rings of all land, each (n, 2) float32 lon/lat; the Caspian Sea is a ring in Eurasia's."""
        return self._lines(detail, "land")

    def island_outlines(self) -> list[NDArray[np.float32]]:
        """Rings of some 2,000 small islands that the 50m outlines leave out, each (n, 2) float32 lon/lat."""
        return self._lines("50m", "island")

    def coast_lines(self, detail: Detail = "50m") -> list[NDArray[np.float32]]:
        """Coasts, each (n, 2) float32 lon/lat; longitudes run on past 180 where a line crosses it."""
        return self._lines(detail, "coast")

    def border_lines(self, detail: Detail = "50m") -> list[NDArray[np.float32]]:
        """Borders between two countries, as `coast_lines`."""
        return self._lines(detail, "border")

    def country_labels(self) -> list[tuple[Country, float, float, float]]:
        """Where to write a country's name: country, latitude, longitude, degrees of room around it."""
        arrays = self._outlines("50m")
        rows = zip(arrays["label_codes"].tolist(), arrays["labels"].tolist(), strict=True)
        return [(self._countries[c], lat, lon, room) for c, (lon, lat, room) in rows if c in self._countries]

    def _lines(self, detail: Detail, kind: str) -> list[NDArray[np.float32]]:
        arrays = self._outlines(detail)
        points, starts = arrays[f"{kind}_points"], arrays[f"{kind}_starts"]
        return [points[a:b] for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]

    def _outlines(self, detail: Detail) -> dict[str, NDArray[Any]]:
        with self._lock:
            return _read_outlines(self._folder / f"outlines-{detail}.npz")


@lru_cache(maxsize=4)
def _read_outlines(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name in [name for name in arrays if name.endswith("_deltas")]:
        degrees = np.cumsum(arrays.pop(name), axis=0) / _UNITS_PER_DEGREE
        arrays[name.replace("_deltas", "_points")] = degrees.astype(np.float32)
    return arrays


def _keys(name: str) -> Sequence[str]:
    """What a country name is looked up by: without accents, case, punctuation and articles."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).casefold()
    words = re.sub(r"[^a-z]+", " ", plain.replace("&", " and ")).split()
    words = ["saint" if word == "st" else word for word in words if word != "the"]
    return (" ".join(words),) if words else ()


def _border_longitude(lon: float) -> float:
    """Longitude as the border polygons have it: from just above -180 to just below 180."""
    inside = lon if -180.0 <= lon <= 180.0 else wrap_longitude(lon)
    return max(-_SEAM_DEG, min(_SEAM_DEG, inside))
