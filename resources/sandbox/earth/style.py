"""Everything that the frames of one drive share: weather, light, colours of ground and sky, kinds of trees.

Weather, exposure and road surface vary from drive to drive within a country; they are the noise that a
reader of the pictures has to see through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from resources.sandbox.earth.chance import unit
from resources.sandbox.earth.climate import Climate, climate_at, sun_position
from resources.sandbox.earth.coast import sea_bearings
from resources.sandbox.earth.countries import CountryTraits, traits
from resources.sandbox.earth.palette import Colour, mix, scale, tinted
from resources.sandbox.earth.scene import Scene
from resources.sandbox.earth.trees import tree_mix


@dataclass(frozen=True)
class Style:
    """The look of one drive. Colours are 0 to 255; shares, covers and strengths are 0 to 1."""

    seed: int
    traits: CountryTraits
    climate: Climate
    urban: float
    kind: str
    half_width_m: float
    lanes: int
    sun_azimuth: float
    sun_elevation: float
    direct: float
    cloud_cover: float
    haze_m: float
    zenith: Colour
    horizon: Colour
    sunlight: Colour
    asphalt: Colour
    shoulder: Colour
    pavement: Colour
    grass: Colour
    crop: Colour
    woods: Colour
    unpaved: bool
    kerbed: bool
    lines_worn: float
    trees: tuple[str, ...]
    leaf: Colour
    sea: tuple[float, ...]
    sea_level_m: float
    gain: tuple[float, float, float]
    contrast: float

    def draw(self, *keys: int) -> float:
        """A number in [0, 1) of this drive."""
        return unit(self.seed, *keys)


def style_of(scene: Scene) -> Style:
    """The style of the drive that a scene belongs to; the same for all its frames."""
    seed = scene.sequence_seed
    look = traits(scene.country_code)
    # The origin, not the frame's own place: frames of one drive must agree to the last bit.
    lat, lon = scene.road.origin_lat, scene.road.origin_lon
    climate = climate_at(lat, lon, scene.month)
    azimuth, elevation = sun_position(lat, scene.month, scene.hour)
    cover = _cloud_cover(unit(seed, 11), climate)
    direct = max(0.0, 1.0 - max(0.0, cover - 0.45) * 2.2) * min(1.0, max(0.0, elevation) / 8.0)
    dust = climate.arid * unit(seed, 12)
    humid = climate.wet * max(0.0, (climate.now_c - 14.0) / 16.0)
    haze = (900.0 + 5200.0 * unit(seed, 13) ** 1.5) / (1.0 + 1.2 * dust + 1.3 * humid + cover)
    zenith, horizon = _sky(climate, cover, elevation, dust, humid)
    unpaved = scene.road.kind == "track" or (
        scene.road.kind == "rural road" and unit(seed, 14) < look.unpaved_share
    )
    kerbed = scene.urban > 0.42 and scene.road.kind == "urban street"
    exposure = 0.93 + 0.16 * unit(seed, 15)
    warmth = 0.035 * (unit(seed, 16) - 0.5)
    ground = _ground_colours(seed, look, climate, unpaved)
    return Style(
        seed=seed,
        traits=look,
        climate=climate,
        urban=scene.urban,
        kind=scene.road.kind,
        half_width_m=scene.road.half_width_m,
        lanes=scene.road.lanes,
        sun_azimuth=azimuth,
        sun_elevation=elevation,
        direct=direct,
        cloud_cover=cover,
        haze_m=haze,
        zenith=zenith,
        horizon=tinted(horizon, climate.dust),
        sunlight=mix((255.0, 196.0, 130.0), (255.0, 250.0, 240.0), elevation / 25.0),
        unpaved=unpaved,
        kerbed=kerbed,
        lines_worn=0.55 * unit(seed, 17) * (1.0 if look.unpaved_share > 0.1 else 0.4),
        trees=tree_mix(look.code, climate, seed),
        leaf=_leaf_now(climate, unit(seed, 18)),
        sea=sea_bearings(lat, lon),
        sea_level_m=-6.0 - 14.0 * unit(seed, 19),
        gain=(exposure * (1.0 + warmth), exposure, exposure * (1.0 - warmth)),
        contrast=0.92 + 0.2 * unit(seed, 20),
        **ground,
    )


def _cloud_cover(draw: float, climate: Climate) -> float:
    """Share of sky under cloud: mostly clear where it is dry, often closed where it is wet or cold."""
    bias = 0.55 * climate.wet + 0.15 * (climate.now_c < 8.0) - 0.5 * climate.arid
    return min(1.0, max(0.0, draw + 0.5 * bias * math.sqrt(draw) - 0.08))


def _sky(
    climate: Climate, cover: float, elevation: float, dust: float, humid: float
) -> tuple[Colour, Colour]:
    zenith: Colour = mix((44.0, 100.0, 190.0), (62.0, 128.0, 206.0), climate.wet)
    zenith = mix(zenith, (34.0, 84.0, 182.0), 0.6 * climate.arid)
    horizon: Colour = mix((176.0, 206.0, 232.0), (222.0, 206.0, 176.0), 0.75 * dust)
    horizon = mix(horizon, (208.0, 216.0, 220.0), 0.6 * humid)
    low_sun = max(0.0, 1.0 - elevation / 18.0)
    horizon = mix(horizon, (246.0, 206.0, 160.0), 0.5 * low_sun * (1.0 - cover))
    zenith = mix(zenith, (110.0, 132.0, 170.0), 0.3 * low_sun + 0.35 * humid)
    closed = max(0.0, (cover - 0.5) * 2.0)
    return mix(zenith, (150.0, 158.0, 168.0), closed), mix(horizon, (198.0, 202.0, 206.0), 0.8 * closed)


def _leaf_now(climate: Climate, draw: float) -> Colour:
    """Leaf colour in this month: autumn gold where winters are cold, never in the tropics."""
    leaf = climate.leaf
    if climate.mean_c < 14.0 and climate.arid < 0.4:
        spring = (118.0, 162.0, 66.0)
        leaf = mix(leaf, spring, 0.35 * draw if climate.now_c > 9.0 else 0.0)
        leaf = mix(leaf, (176.0, 128.0, 48.0), (9.0 - climate.now_c) / 8.0 * (0.4 + 0.4 * draw))
    # In coarse steps, so that many drives share the pictures of their trees.
    return (round(leaf[0] / 10.0) * 10.0, round(leaf[1] / 10.0) * 10.0, round(leaf[2] / 10.0) * 10.0)


def _ground_colours(seed: int, look: CountryTraits, climate: Climate, unpaved: bool) -> dict[str, Colour]:
    fresh: Colour = (72.0, 72.0, 76.0)
    worn: Colour = mix((134.0, 132.0, 130.0), (164.0, 152.0, 134.0), climate.arid)
    stone = climate.stone
    asphalt = tinted(tinted(mix(fresh, worn, 0.25 + 0.6 * unit(seed, 21)), look.asphalt_tint), stone)
    if unpaved:
        asphalt = mix(scale(climate.soil, 0.88), (190.0, 180.0, 165.0), 0.3 * unit(seed, 22))
    harvest = climate.arid < 0.5 and unit(seed, 23) < 0.4
    crop = (
        mix(climate.grass, (214.0, 188.0, 96.0), 0.75)
        if harvest
        else mix(climate.grass, climate.soil, unit(seed, 24))
    )
    white: Colour = (236.0, 240.0, 246.0)
    snow = climate.snow
    dusted = climate.red * 0.35 + climate.arid * 0.2
    return {
        "asphalt": mix(asphalt, climate.soil, 0.5 * dusted * (0.3 + 0.7 * unit(seed, 25))),
        "shoulder": mix(
            mix(climate.soil, climate.grass, 0.3 * (climate.arid < 0.15 and climate.red < 0.4)),
            white,
            0.85 * snow,
        ),
        "pavement": mix(tinted(tinted((170.0, 166.0, 160.0), look.paving_tint), stone), white, 0.4 * snow),
        "grass": mix(climate.grass, white, 0.92 * snow),
        "crop": mix(crop, white, 0.95 * snow),
        "woods": mix(scale(climate.leaf, 0.72), white, 0.35 * snow),
    }


def haze_share(style: Style, distance: float) -> float:
    """How far the colour of something `distance` metres away has gone towards the horizon's."""
    return 1.0 - math.exp(-distance / style.haze_m)
