"""The drives of the synthetic Earth: who drove where and when, frame by frame, all of it from one seed.

`World.build` places clusters of drives around real towns and gives each drive its contributor, camera, month
and frames; this takes a fraction of a second. Roads, and with them exact positions, are traced when somebody
asks (`WorldSequence.road`, `.frames`), a millisecond each. `World.scene` is what a picture is drawn from.

Honest by construction: towns, countries and coasts are real; no road runs into the sea or across a border if
another one can be laid. What the metadata says about a frame may still be wrong: see `quirks`.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from env_service.geography import geography
from resources.sandbox._world_places import Anchor, place_anchors
from resources.sandbox.earth.climate import hilliness_at, sun_position
from resources.sandbox.earth.roads import Road, trace_road
from resources.sandbox.earth.scene import Scene

SEQUENCE_ID_CHARS = 22
ID_ALPHABET = np.array(list(string.ascii_letters + string.digits))
FIRST_IMAGE_ID, LAST_IMAGE_ID = 10**16, 10**17
"""Image ids have seventeen digits: a float (53 bits) would lose the last one."""

MOST_FRAMES = 60
ID_STRIDE = 38_196_601_125_010_007
"""Shares no factor with the number of ids, so that counting in strides meets each id once."""
SHORTEST_STEP_M, LONGEST_STEP_M = 3.0, 57.0
STEP_CLASSES_M = ((3.2, 4.0, 0.40), (5.0, 12.0, 0.32), (12.0, 28.0, 0.18), (28.0, 54.0, 0.10))
"""Frame spacings of drives: from, to, share."""

ROAD_MARGIN_M = 60.0
"""Road laid before the first and behind the last frame, so that every picture has road both ways."""

LOWEST_SUN_DEG = 10.0
ROAD_TRIES = 6
FIRST_DAY, LAST_DAY = datetime(2014, 5, 1, tzinfo=UTC), datetime(2025, 9, 1, tzinfo=UTC)
PANORAMIC_CAMERAS = (
    ("GoPro", "Max", 5760),
    ("GoPro", "Fusion FS1.04", 5760),
    ("RICOH", "RICOH THETA V", 5376),
    ("Insta360", "Insta360 X3", 5952),
    ("LG Electronics", "LG-R105", 5660),
    ("Labpano", "Pilot One", 7680),
)
FLAT_CAMERAS = (("Apple", "iPhone", 4032), ("samsung", "SM-G991B", 4000), ("GoPro", "HERO9", 4000))


@dataclass(frozen=True)
class WorldSpec:
    """What a world is made from; equal specs give equal worlds.

    Attributes:
        seed: fixes everything.
        pano_sequences, perspective_sequences: panoramic and flat drives.
        min_countries: countries that get panoramic drives, as far as there are enough drives.
        quirks: whether the metadata has the faults that Mapillary's has.
    """

    seed: int = 7
    pano_sequences: int = 520
    perspective_sequences: int = 480
    min_countries: int = 72
    quirks: bool = True


@dataclass(frozen=True)
class WorldFrame:
    """One captured position: metres along the road, degrees, travel direction, milliseconds since 1970."""

    image_id: int
    s: float
    lat: float
    lon: float
    heading_deg: float
    captured_at_ms: int


@dataclass(frozen=True)
class WorldSequence:
    """One drive.

    `lat`, `lon` is where its road begins, `ROAD_MARGIN_M` before the first frame; `s` the metres along the
    road of its frames; `image_ids` their ids. `quality` in [0, 1]. Road and frames are traced on first use.
    """

    sequence_id: str
    index: int
    creator_id: int
    creator_username: str
    is_pano: bool
    country_code: str
    lat: float
    lon: float
    urban: float
    camera_make: str
    camera_model: str
    camera_width: int
    quality: float
    captured_at_ms: int
    metres_per_second: float
    seed: int
    image_ids: tuple[int, ...]
    s: tuple[float, ...]

    @property
    def reach_m(self) -> float:
        """No frame is further from (`lat`, `lon`) than this."""
        return self.s[-1] + 1.0

    @cached_property
    def road(self) -> Road:
        """Its road: the first of a few that stays on land and in the country, else the last of them."""
        length = self.s[-1] + ROAD_MARGIN_M
        hills = hilliness_at(self.lat, self.lon)
        for attempt in range(ROAD_TRIES):
            road = trace_road(
                self.lat, self.lon, self.seed + attempt, length, urban=self.urban, hilliness=hills
            )
            if _stays_in(road, self.country_code):
                break
        return road

    @cached_property
    def frames(self) -> tuple[WorldFrame, ...]:
        """Its frames in the order of the drive."""
        along = np.array(self.s)
        lat, lon = self.road.latlon_array(along)
        heading = np.degrees(self.road.sample(along).heading) % 360.0
        rows = zip(self.image_ids, self.s, lat.tolist(), lon.tolist(), heading.tolist(), strict=True)
        return tuple(
            WorldFrame(image_id, s, frame_lat, frame_lon, frame_heading % 360.0, self._captured_ms(s))
            for image_id, s, frame_lat, frame_lon, frame_heading in rows
        )

    def _captured_ms(self, s: float) -> int:
        return self.captured_at_ms + round(1000.0 * (s - self.s[0]) / self.metres_per_second)

    def scene(self, position: int) -> Scene:
        """What the frame at `position` (0-based) shows."""
        frame = self.frames[position]
        moment = datetime.fromtimestamp(frame.captured_at_ms / 1000, tz=UTC)
        hour = moment.hour + moment.minute / 60.0 + moment.second / 3600.0 + frame.lon / 15.0
        return Scene(
            lat=frame.lat,
            lon=frame.lon,
            country_code=self.country_code,
            sequence_seed=self.seed,
            road=self.road,
            s=frame.s,
            month=moment.month,
            hour=hour % 24.0,
            urban=self.urban,
            heading_deg=frame.heading_deg,
        )


@dataclass(frozen=True)
class World:
    """All drives, panoramic ones first, with look-up by id."""

    spec: WorldSpec
    sequences: tuple[WorldSequence, ...]
    _by_id: Mapping[str, WorldSequence] = field(repr=False)
    _by_image: Mapping[int, tuple[WorldSequence, int]] = field(repr=False)

    @staticmethod
    def build(spec: WorldSpec) -> "World":
        """The world of a spec; the same one every time, on every machine."""
        rng = np.random.default_rng([spec.seed, 1])
        anchors = place_anchors(rng, spec.pano_sequences, spec.perspective_sequences, spec.min_countries)
        sequences = tuple(_drive(spec.seed, index, anchor) for index, anchor in enumerate(anchors))
        by_image = {
            image_id: (sequence, position)
            for sequence in sequences
            for position, image_id in enumerate(sequence.image_ids)
        }
        return World(spec, sequences, {each.sequence_id: each for each in sequences}, by_image)

    def sequence(self, sequence_id: str) -> WorldSequence | None:
        """The drive of that id, or None."""
        return self._by_id.get(sequence_id)

    def sequence_of(self, image_id: int | str) -> WorldSequence | None:
        """The drive that an image belongs to, or None."""
        found = self.locate(image_id)
        return found[0] if found else None

    def locate(self, image_id: int | str) -> tuple[WorldSequence, int] | None:
        """The drive of an image and the position in it, or None."""
        return self._by_image.get(int(image_id))

    def scene(self, image_id: int | str) -> Scene:
        """What an image shows.

        Raises:
            KeyError: there is no such image.
        """
        sequence, position = self._by_image[int(image_id)]
        return sequence.scene(position)


def _drive(seed: int, index: int, anchor: Anchor) -> WorldSequence:
    """The drive at an anchor, with random numbers of its own, so that one drive does not shift the next."""
    rng = np.random.default_rng([seed, 2, index])
    along = _positions_along(rng)
    cameras = PANORAMIC_CAMERAS if anchor.is_pano else FLAT_CAMERAS
    make, model, camera_width = cameras[int(rng.integers(len(cameras)))]
    return WorldSequence(
        sequence_id="".join(ID_ALPHABET[rng.integers(0, len(ID_ALPHABET), SEQUENCE_ID_CHARS)]),
        index=index,
        creator_id=anchor.creator_id,
        creator_username=anchor.creator_username,
        is_pano=anchor.is_pano,
        country_code=anchor.country_code,
        lat=anchor.lat,
        lon=anchor.lon,
        urban=anchor.urban,
        camera_make=make,
        camera_model=model,
        camera_width=camera_width,
        quality=round(float(rng.beta(6.0, 2.0)), 4),
        captured_at_ms=_daylight_ms(rng, anchor.lat, anchor.lon),
        metres_per_second=float(rng.uniform(4.0, 16.0)),
        seed=int(rng.integers(0, 2**31)),
        image_ids=tuple(_image_id(index * MOST_FRAMES + position) for position in range(len(along))),
        s=tuple(along),
    )


def _image_id(number: int) -> int:
    """A different id for every number below 9 * 10^16, as unordered as Mapillary's."""
    return FIRST_IMAGE_ID + (number + 1) * ID_STRIDE % (LAST_IMAGE_ID - FIRST_IMAGE_ID)


def _positions_along(rng: np.random.Generator) -> list[float]:
    """Metres along the road of 2 to 60 frames, steps of 3 to 57 m, much alike within a drive."""
    count = int(np.clip(round(float(np.exp(rng.normal(2.55, 0.65)))), 2, MOST_FRAMES))
    shares = [share for _, _, share in STEP_CLASSES_M]
    low, high, _ = STEP_CLASSES_M[int(rng.choice(len(STEP_CLASSES_M), p=shares))]
    steps = rng.uniform(low, high) * rng.uniform(0.92, 1.08, count - 1)
    steps = np.clip(steps, SHORTEST_STEP_M, LONGEST_STEP_M)
    along: list[float] = np.round(
        np.concatenate([[ROAD_MARGIN_M], ROAD_MARGIN_M + np.cumsum(steps)]), 2
    ).tolist()
    return along


def _daylight_ms(rng: np.random.Generator, lat: float, lon: float) -> int:
    """A moment when the sun stands high enough to take pictures: milliseconds since 1970 UTC."""
    days = (LAST_DAY - FIRST_DAY).days
    while True:
        day = FIRST_DAY.timestamp() + 86400.0 * int(rng.integers(days))
        hour = float(rng.uniform(7.5, 17.5))
        moment = day + 3600.0 * (hour - lon / 15.0)
        month = datetime.fromtimestamp(moment, tz=UTC).month
        if sun_position(lat, month, hour)[1] > LOWEST_SUN_DEG:
            return round(moment * 1000.0)


def _stays_in(road: Road, country_code: str) -> bool:
    lat, lon = road.latlon_array(np.linspace(0.0, road.length_m, 9))
    earth = geography()
    if any(code != country_code for code in earth.codes_at(lat, lon)):
        return False
    points = zip(lat.tolist(), lon.tolist(), strict=True)
    return all(earth.land_intersects_bbox(x, y, x, y) for y, x in points)
