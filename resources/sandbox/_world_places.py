"""Where the drives of the synthetic Earth begin, and who drove them: clusters around towns, Europe first."""

import math
from dataclasses import dataclass

import numpy as np

from env_service.geodesy import destination
from env_service.geography import Geography, geography

CONTINENT_SHARES = {
    "Europe": 0.46,
    "North America": 0.16,
    "Asia": 0.17,
    "South America": 0.09,
    "Africa": 0.07,
    "Oceania": 0.05,
}
"""Share of clusters by continent: what volunteers cover, not where people live."""

LARGEST_CLUSTER = 6
CLOSE_SHARE = 0.4
"""Share of drives that begin within a kilometre of another one, so that a distance rule has work."""

DRIVES_PER_CREATOR = 7
PLACE_TRIES = 12


@dataclass(frozen=True)
class Anchor:
    """Where a drive begins: degrees, country, how built-up (0 to 1), who drove, with what kind of camera."""

    lat: float
    lon: float
    country_code: str
    urban: float
    creator_id: int
    creator_username: str
    is_pano: bool


@dataclass(frozen=True)
class _Countries:
    """Countries with towns: code, region, weight (its share of clusters) and rows of its towns."""

    codes: list[str]
    subregions: list[str]
    weights: np.ndarray[tuple[int], np.dtype[np.float64]]
    towns: list[np.ndarray[tuple[int], np.dtype[np.int64]]]


def place_anchors(rng: np.random.Generator, panoramic: int, flat: int, min_countries: int) -> list[Anchor]:
    """Anchors of all drives, panoramic ones first; the first clusters go to different countries each."""
    earth = geography()
    countries = _countries_with_towns(earth)
    order = rng.choice(
        len(countries.codes), size=len(countries.codes), replace=False, p=countries.weights
    ).tolist()
    anchors = []
    for count, is_pano in ((panoramic, True), (flat, False)):
        spread = order[: min(min_countries, count)]
        anchors += _clusters(rng, earth, countries, spread, count, is_pano)
    return anchors


def _countries_with_towns(earth: Geography) -> _Countries:
    places = earth.places
    rows: dict[str, list[int]] = {}
    for row, code in enumerate(places.country_codes):
        rows.setdefault(code, []).append(row)
    known = [(code, earth.country_by_code(code)) for code in sorted(rows)]
    found = [country for _, country in known if country is not None and country.continent in CONTINENT_SHARES]
    towns = [np.array(rows[country.code]) for country in found]
    people = [np.maximum(places.population[each], 1).astype(np.float64) for each in towns]
    size = np.array([float(np.sqrt(each).sum()) ** 0.5 for each in people])
    weights = np.zeros(len(found))
    for continent, share in CONTINENT_SHARES.items():
        here = np.array([country.continent == continent for country in found])
        weights[here] = share * size[here] / size[here].sum()
    codes, subregions = [country.code for country in found], [country.subregion for country in found]
    return _Countries(codes, subregions, weights / weights.sum(), towns)


def _clusters(
    rng: np.random.Generator,
    earth: Geography,
    countries: _Countries,
    spread: list[int],
    count: int,
    is_pano: bool,
) -> list[Anchor]:
    """`count` anchors: one cluster per country of `spread`, the rest wherever the weights say."""
    creators = _Creators(rng, count)
    anchors: list[Anchor] = []
    waiting = list(spread)
    while len(anchors) < count:
        left = count - len(anchors) - len(waiting)
        country = waiting.pop(0) if waiting else int(rng.choice(len(countries.codes), p=countries.weights))
        size = 1 + min(int(rng.integers(LARGEST_CLUSTER)), max(0, left))
        town = int(rng.choice(countries.towns[country], p=_town_shares(earth, countries.towns[country])))
        starts: list[tuple[float, float]] = []
        for _ in range(size):
            lat, lon, urban = _start(rng, earth, countries.codes[country], town, starts)
            starts.append((lat, lon))
            creator_id, username = creators.one_of(countries.subregions[country])
            anchors.append(Anchor(lat, lon, countries.codes[country], urban, creator_id, username, is_pano))
    return anchors[:count]


def _town_shares(
    earth: Geography, towns: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    people = np.sqrt(np.maximum(earth.places.population[towns].astype(np.float64), 1.0))
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = people / people.sum()
    return shares


def _start(
    rng: np.random.Generator, earth: Geography, code: str, town: int, starts: list[tuple[float, float]]
) -> tuple[float, float, float]:
    """Latitude, longitude and built-up share of a drive's beginning: near a town, on its country's land."""
    place = earth.places[town]
    close = bool(starts) and float(rng.random()) < CLOSE_SHARE
    middle = starts[int(rng.integers(len(starts)))] if close else (place.lat, place.lon)
    lat, lon = place.lat, place.lon
    for _ in range(PLACE_TRIES):
        distance = float(rng.uniform(0.1, 0.95)) if close else min(14.0, float(rng.lognormal(1.0, 0.8)))
        lat, lon = destination(*middle, float(rng.uniform(0.0, 360.0)), distance)
        country = earth.country_at(lat, lon)
        if country is not None and country.code == code and earth.land_intersects_bbox(lon, lat, lon, lat):
            break
    else:
        lat, lon = middle
    return lat, lon, _built_up(rng, earth, town, lat, lon)


def _built_up(rng: np.random.Generator, earth: Geography, town: int, lat: float, lon: float) -> float:
    """0 (open land) to 1 (city centre): larger towns are denser and reach further out."""
    place = earth.places[town]
    north = (lat - place.lat) * 111.2
    east = ((lon - place.lon + 180.0) % 360.0 - 180.0) * 111.2 * math.cos(math.radians(lat))
    size = min(1.0, max(0.2, (math.log10(max(place.population, 1000)) - 3.3) / 3.2))
    fade = math.exp(-math.hypot(north, east) / (1.5 + 9.0 * size))
    return round(min(1.0, max(0.02, math.sqrt(size) * fade + float(rng.normal(0.0, 0.08)))), 3)


class _Creators:
    """Contributors, each at home in one region: a few per region, some of them busier than others."""

    def __init__(self, rng: np.random.Generator, drives: int) -> None:
        self._rng = rng
        self._drives = drives
        self._known: dict[str, list[tuple[int, str]]] = {}
        self._given: dict[str, int] = {}

    def one_of(self, subregion: str) -> tuple[int, str]:
        """A contributor of the region; a new one joins for every few drives."""
        people = self._known.setdefault(subregion, [])
        given = self._given[subregion] = self._given.get(subregion, 0) + 1
        if len(people) < 2 or given > DRIVES_PER_CREATOR * len(people):
            name = "".join(letter for letter in subregion.lower() if letter.isalpha())
            people.append((int(self._rng.integers(10**14, 10**15)), f"{name}-{len(people) + 1}"))
            return people[-1]
        return people[int(len(people) * float(self._rng.random()) ** 1.5)]
