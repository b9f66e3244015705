"""Climate, soil, relief and sun of a place: smooth functions of latitude, longitude, month and hour.

The world's dry, wet, red-soiled and mountainous parts are sums of Gaussian regions. Temperature falls with
latitude and swings with the month, more in the interior of continents. The bedrock changes over thousands of
kilometres and gives its colour to the soil, to what grows on it, to roads, walls and dust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from resources.sandbox.earth.palette import Colour, mix, tinted


@dataclass(frozen=True)
class Region:
    """A Gaussian patch of the globe: centre, spreads in degrees, weight at the centre."""

    name: str
    lat: float
    lon: float
    spread_lat: float
    spread_lon: float
    weight: float


ARID = (
    Region("Sahara", 24, 5, 9, 28, 1.1),
    Region("Arabia", 24, 45, 10, 14, 1.1),
    Region("Iran", 33, 57, 6, 9, 0.8),
    Region("Turkestan", 42, 62, 6, 13, 0.8),
    Region("Gobi", 42, 101, 6, 15, 1.0),
    Region("Australian interior", -25, 132, 7, 12, 1.0),
    Region("Kalahari and Namib", -23, 20, 7, 6, 0.9),
    Region("Atacama", -22, -69, 9, 3, 1.0),
    Region("American South-West", 35, -111, 6, 7, 0.9),
    Region("Thar", 27, 71, 5, 5, 0.8),
    Region("Patagonia", -43, -68, 8, 4, 0.7),
    Region("Spanish plateau", 39, -3, 3.5, 4.5, 0.42),
    Region("Anatolia", 38.5, 33, 2.5, 5, 0.4),
    Region("Horn of Africa", 8, 45, 6, 6, 0.75),
    Region("Chihuahua", 27.5, -105, 5, 5, 0.7),
    Region("Greece", 37.5, 23, 2.5, 4, 0.3),
    Region("Sahel", 15, 0, 3.5, 28, 0.4),
    Region("Kazakh steppe", 49, 72, 5, 16, 0.5),
    Region("Mongolian steppe", 47, 105, 4, 10, 0.5),
    Region("Sertao", -9, -40, 5, 4, 0.45),
    Region("Karoo", -32, 22, 3, 5, 0.5),
)
WET = (
    Region("Amazon", -3, -62, 9, 12, 1.0),
    Region("Congo", 1, 22, 7, 12, 0.8),
    Region("Maritime Asia", 3, 108, 12, 18, 0.9),
    Region("British Isles", 54, -6, 7, 7, 0.8),
    Region("Gulf of Guinea", 7, 4, 4, 14, 0.6),
    Region("Japan", 35, 136, 7, 7, 0.65),
    Region("Bengal", 24, 90, 5, 5, 0.75),
    Region("New Zealand", -42, 173, 7, 6, 0.6),
    Region("Norwegian coast", 62, 6, 5, 4, 0.6),
    Region("Pacific North-West", 47, -123, 6, 4, 0.65),
    Region("South China", 25, 114, 7, 9, 0.6),
    Region("Central America", 11, -84, 5, 6, 0.6),
)
RED_SOIL = (
    Region("East Africa", -2, 34, 11, 7, 1.0),
    Region("West Africa", 8, 2, 6, 15, 0.9),
    Region("Brazilian plateau", -15, -51, 12, 9, 1.0),
    Region("Red centre", -25, 133, 8, 12, 1.2),
    Region("Indochina", 15, 103, 6, 5, 0.7),
    Region("Highveld", -24, 29, 6, 5, 0.7),
    Region("Deccan", 14, 77, 6, 4, 0.7),
    Region("Madagascar", -19, 46.5, 6, 4, 1.0),
    Region("Congo basin", 0, 22, 7, 8, 0.7),
    Region("Morocco", 32, -6.5, 2.5, 4, 0.5),
    Region("Georgia clay", 33, -83, 2.5, 3, 0.45),
)
MOUNTAINS = (
    Region("Alps", 46.4, 10, 1.6, 5, 1.0),
    Region("Southern Norway", 61.5, 8, 3.5, 3, 0.9),
    Region("Lofoten", 68, 16, 3, 4, 0.85),
    Region("Japanese Alps", 36, 138, 3.5, 3.5, 0.8),
    Region("Southern Alps", -43.5, 170, 3, 2.5, 0.9),
    Region("Central Andes", -14, -73, 12, 4.5, 1.0),
    Region("Southern Andes", -36, -70.5, 11, 2, 1.0),
    Region("Rocky Mountains", 43, -112, 11, 7, 0.75),
    Region("Himalaya", 30, 84, 3.5, 11, 1.0),
    Region("Caucasus", 42.5, 44, 1.6, 5, 0.95),
    Region("Zagros", 33, 50, 4, 5, 0.8),
    Region("Ethiopian highlands", 9.5, 39, 4, 3, 0.75),
    Region("Rift", -0.5, 36.5, 3, 2.5, 0.5),
    Region("Korea", 37.3, 128, 2, 1.6, 0.65),
    Region("Balkans", 42.3, 20.5, 2.5, 3.5, 0.65),
    Region("Atlas", 32, -6, 2, 4, 0.75),
    Region("Anatolian mountains", 39, 39, 2.5, 5, 0.65),
    Region("Khangai", 47.5, 101, 3, 8, 0.5),
    Region("Taiwan", 23.8, 121, 1.6, 0.8, 0.9),
    Region("Scotland", 57, -5, 1.6, 1.8, 0.55),
    Region("Northern Andes", 4, -75, 6, 2.5, 0.85),
    Region("Pyrenees", 42.5, 0, 0.8, 3, 0.7),
    Region("Iceland", 65, -19, 2, 5, 0.6),
    Region("Carpathians", 46, 25, 1.6, 2.5, 0.6),
    Region("Mexican highlands", 19.5, -99, 4, 5, 0.6),
    Region("Drakensberg", -29.5, 29, 1.6, 1.2, 0.8),
    Region("Appalachians", 38, -80, 4, 2.5, 0.45),
    Region("Tien Shan", 42, 76, 2, 7, 0.95),
)
CONTINENTAL = (
    Region("Siberia", 55, 90, 18, 42, 0.8),
    Region("Canadian interior", 50, -97, 14, 18, 0.6),
    Region("Atlantic Europe", 55, -3, 13, 12, -0.45),
)


# Per surface two waves over the globe: what multiplies the unit vector of a place, and a phase. Lengths
# of 2 to 5 mean that a tint turns into its opposite over 4,000 to 10,000 km.
STONE_WAVES = (((1.9, 0.6, 1.1), 0.4), ((-0.7, 2.1, 0.9), 2.0))
SOIL_WAVES = (((3.4, -2.2, 2.1), 1.1), ((-2.0, -3.6, 2.4), 4.1))
GRASS_WAVES = (((-1.4, 2.2, 2.6), 0.2), ((2.9, 1.7, -1.5), 5.2))
DUST_WAVES = (((0.8, -2.7, 1.4), 3.3), ((-2.5, 0.9, 2.2), 0.9))
STONE_STRENGTH, SOIL_STRENGTH, GRASS_STRENGTH, DUST_STRENGTH = 22.0, 30.0, 26.0, 16.0
Waves = tuple[tuple[tuple[float, float, float], float], tuple[tuple[float, float, float], float]]


def bedrock_tint(lat: float, lon: float, waves: Waves, strength: float) -> Colour:
    """A tint of up to about `strength` per channel: warm or cold, and to a lesser degree green or rosy."""
    phi, theta = math.radians(lat), math.radians(lon)
    at = (math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi))
    warm, green = (
        math.sin(sum(k * x for k, x in zip(wave, at, strict=True)) + phase) for wave, phase in waves
    )
    return (
        strength * (0.8 * warm - 0.3 * green),
        strength * 0.45 * green,
        strength * (-0.8 * warm - 0.3 * green),
    )


def weight(regions: tuple[Region, ...], lat: float, lon: float) -> float:
    """Sum of the regions' Gaussians at a place."""
    total = 0.0
    for region in regions:
        east = ((lon - region.lon + 180.0) % 360.0 - 180.0) / region.spread_lon
        north = (lat - region.lat) / region.spread_lat
        total += region.weight * math.exp(-north * north - east * east)
    return total


def hilliness_at(lat: float, lon: float) -> float:
    """Hilliness in [0, 1] for `trace_road` and for the mountains on the horizon."""
    return min(1.0, 0.06 + weight(MOUNTAINS, lat, lon))


@dataclass(frozen=True)
class Climate:
    """What grows and lies at a place in a month.

    `arid`, `wet`, `red`, `snow`, `hills` in [0, 1]; `mean_c` and `now_c` temperatures in degrees Celsius
    (of the year, of the month); colours for tree leaves, grass and bare soil; `stone`, `clay` and `dust` are
    the tints of roads and paving, of walls, and of the air near the horizon.
    """

    arid: float
    wet: float
    red: float
    mean_c: float
    now_c: float
    snow: float
    hills: float
    leaf: Colour
    grass: Colour
    soil: Colour
    stone: Colour
    clay: Colour
    dust: Colour


def climate_at(lat: float, lon: float, month: int) -> Climate:
    """The climate of a place in a month (1 to 12)."""
    dryness = weight(ARID, lat, lon) - 0.5 * weight(WET, lat, lon)
    arid = min(1.0, max(0.0, dryness))
    wet = min(1.0, 0.35 + weight(WET, lat, lon)) * (1.0 - arid)
    red = min(1.0, weight(RED_SOIL, lat, lon))
    hills = hilliness_at(lat, lon)
    gulf_stream = 7.0 * weight((Region("Gulf Stream", 57, 5, 13, 17, 1.0),), lat, lon)
    mean = 28.0 - 0.62 * max(0.0, abs(lat) - 14.0) + gulf_stream - 3.0 * hills
    swing = 0.35 * max(0.0, abs(lat) - 8.0) * (1.0 + weight(CONTINENTAL, lat, lon))
    season = math.cos((month - 7) * math.pi / 6.0) * (1.0 if lat >= 0 else -1.0)
    now = mean + swing * season
    boreal, temperate, tropical = (70.0, 104.0, 62.0), (112.0, 146.0, 70.0), (72.0, 132.0, 58.0)
    leaf = mix(mix(boreal, temperate, (mean - 2.0) / 11.0), tropical, (mean - 17.0) / 9.0)
    leaf = mix(leaf, (150.0, 146.0, 74.0), (arid - 0.12) / 0.45)
    soil = mix(mix((112.0, 92.0, 70.0), (222.0, 192.0, 138.0), arid * 1.3), (192.0, 78.0, 42.0), red)
    grass = mix(mix(leaf, (156.0, 178.0, 98.0), 0.45), (212.0, 194.0, 108.0), (arid - 0.1) / 0.35)
    soil = tinted(soil, bedrock_tint(lat, lon, SOIL_WAVES, SOIL_STRENGTH))
    grass = tinted(grass, bedrock_tint(lat, lon, GRASS_WAVES, GRASS_STRENGTH))
    grass = mix(mix(grass, soil, (arid - 0.4) / 0.3), (170.0, 158.0, 96.0), (7.0 - now) / 12.0)
    return Climate(
        arid=arid,
        wet=wet,
        red=red,
        mean_c=mean,
        now_c=now,
        snow=min(1.0, max(0.0, (-0.5 - now) / 4.0)),
        hills=hills,
        leaf=leaf,
        grass=grass,
        soil=soil,
        stone=bedrock_tint(lat, lon, STONE_WAVES, STONE_STRENGTH),
        clay=bedrock_tint(lat, lon, SOIL_WAVES, SOIL_STRENGTH),
        dust=bedrock_tint(lat, lon, DUST_WAVES, DUST_STRENGTH),
    )


def sun_position(lat: float, month: int, hour: float) -> tuple[float, float]:
    """Azimuth (degrees clockwise from north) and elevation (degrees) of the sun at local solar time.

    Declination from the cosine formula for the middle of the month; hour angle 15 degrees an hour.
    """
    declination = math.radians(-23.44 * math.cos(2.0 * math.pi * (month - 0.5 + 0.33) / 12.0))
    angle = math.radians(15.0 * (hour - 12.0))
    phi = math.radians(lat)
    up = math.sin(phi) * math.sin(declination) + math.cos(phi) * math.cos(declination) * math.cos(angle)
    east = -math.cos(declination) * math.sin(angle)
    north = math.sin(declination) * math.cos(phi) - math.cos(declination) * math.sin(phi) * math.cos(angle)
    elevation = math.degrees(math.asin(max(-1.0, min(1.0, up))))
    return math.degrees(math.atan2(east, north)) % 360.0, elevation
