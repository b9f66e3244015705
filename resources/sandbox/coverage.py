"""A drawn world as a catalogue: coverage tiles, entities with their quirks, and pictures drawn on request.

Stated positions are what a receiver would say: `geometry` is some metres off, `computed_geometry` is where
the picture was taken. Headings likewise. The truth of a picture is the scene it is drawn from.
"""

import math
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from env_service.geodesy import destination
from resources.sandbox.catalogue import Box, Entity
from resources.sandbox.quirks import (
    ABSENT,
    NO_FRAME_QUIRKS,
    NO_SEQUENCE_QUIRKS,
    FrameQuirks,
    SequenceQuirks,
    changed,
    frame_quirks,
    sequence_quirks,
)
from resources.sandbox.world import World, WorldFrame, WorldSequence
from resources.vector_tiles import EXTENT, TileFeature, encode_tile, lonlat_to_pixel, tile_bounds

JPEG_QUALITY = 88
PICTURE_WIDTHS = {"2048": 2048, "original": 3072}
KEPT_BYTES = 32 << 20
"""Drawn pictures kept for whoever asks again, after an answer that broke off for one."""

IMAGE_LAYER_ZOOM = 14
TILE_BUFFER_PX = 64
METRES_PER_DEGREE = 111_194.9
RECEIVER_ERROR_M, COMPASS_ERROR_DEG = 2.5, 6.0


class WorldCatalogue:
    """The catalogue of a world; see `catalogue.Catalogue` for what each method means."""

    def __init__(self, world: World) -> None:
        self._world = world
        starts = [(each.lon, each.lat, each.reach_m / METRES_PER_DEGREE) for each in world.sequences]
        self._starts = np.array(starts, dtype=np.float64).reshape(-1, 3)
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()
        self._drawing: dict[tuple[str, str], threading.Lock] = {}
        # Drawing is thousands of short calls; threads that draw at once spend twice the processor time, most
        # of it on handing the interpreter to each other, and none of them is done earlier.
        self._one_at_a_time = threading.Lock()

    # --- coverage ---------------------------------------------------------------------------------------

    def tile(self, z: int, x: int, y: int) -> bytes | None:
        """The drives that touch a tile as lines, at zoom 14 their images as points too."""
        lines, points = [], []
        for sequence in self._near(tile_bounds(z, x, y)):
            pixels = [_tile_pixel(frame, z, x, y) for frame in sequence.frames]
            inside = [pixel for pixel in pixels if _within(pixel, TILE_BUFFER_PX)]
            if not any(_within(pixel, 0) for pixel in inside):
                continue
            lines.append(TileFeature(_line(inside), self._sequence_properties(sequence)))
            if z == IMAGE_LAYER_ZOOM:
                points += [
                    TileFeature((pixel,), self._image_properties(sequence, frame), frame.image_id)
                    for frame, pixel in zip(sequence.frames, pixels, strict=True)
                    if _within(pixel, 0)
                ]
        return encode_tile({"image": points, "sequence": lines}) if lines else None

    def images_in(self, box: Box) -> Iterator[str]:
        """Images whose true position lies within the box."""
        west, south, east, north = box
        for sequence in self._near(box):
            for frame in sequence.frames:
                if west <= frame.lon <= east and south <= frame.lat <= north:
                    yield str(frame.image_id)

    def _near(self, box: Box) -> list[WorldSequence]:
        """Drives that may reach into a box (which does not cross 180°; drives may)."""
        west, south, east, north = box
        lon, lat, reach = self._starts.T
        wide = reach / np.maximum(0.02, np.cos(np.radians(np.minimum(89.0, np.abs(lat) + reach))))
        rows: NDArray[np.bool_] = (lat + reach >= south) & (lat - reach <= north)
        # Shifted by whole turns, so that a drive beyond one edge of the map is found at the other.
        beside = np.zeros(len(lon), dtype=np.bool_)
        for turn in (-360.0, 0.0, 360.0):
            beside |= (lon + turn + wide >= west) & (lon + turn - wide <= east)
        return [self._world.sequences[row] for row in np.flatnonzero(rows & beside).tolist()]

    def _sequence_properties(self, sequence: WorldSequence) -> dict[str, str | bool | int | float]:
        quirks = self._sequence_quirks(sequence)
        anchor = sequence.image_ids[len(sequence.image_ids) // 2]
        properties: dict[str, str | bool | int | float] = {
            "captured_at": quirks.captured_at(sequence.captured_at_ms),
            "id": sequence.sequence_id,
            "image_id": anchor,
            "is_pano": quirks.pano_flag if sequence.is_pano else False,
            "creator_id": sequence.creator_id,
        }
        quality = _quality(sequence, quirks)
        if quality is not None:
            properties["quality_score"] = quality
        return properties

    def _image_properties(
        self, sequence: WorldSequence, frame: WorldFrame
    ) -> dict[str, str | bool | int | float]:
        return {
            "captured_at": self._sequence_quirks(sequence).captured_at(frame.captured_at_ms),
            "compass_angle": frame.heading_deg,
            "id": frame.image_id,
            "is_pano": sequence.is_pano,
            "sequence_id": sequence.sequence_id,
            "creator_id": sequence.creator_id,
        }

    # --- the graph --------------------------------------------------------------------------------------

    def image_ids(self, sequence_id: str) -> list[str]:
        """All images of a drive, those that cannot be fetched among them."""
        sequence = self._world.sequence(sequence_id)
        return [str(image_id) for image_id in sequence.image_ids] if sequence else []

    def entity(self, image_id: str) -> Entity | None:
        """The entity with the faults of its frame and its drive."""
        found = self._world.locate(image_id)
        if found is None:
            return None
        sequence, position = found
        frame = sequence.frames[position]
        own, shared = self._frame_quirks(frame), self._sequence_quirks(sequence)
        if not own.exists:
            return None
        rng = random.Random(f"{self._world.spec.seed}/receiver/{image_id}")
        stated = destination(
            frame.lat, frame.lon, rng.uniform(0, 360), abs(rng.gauss(0, RECEIVER_ERROR_M)) / 1000
        )
        make, model = sequence.camera_make, sequence.camera_model
        entity: Entity = {
            "id": image_id,
            "sequence": sequence.sequence_id,
            "geometry": _point(stated[1], stated[0]),
            "computed_geometry": _point(frame.lon, frame.lat),
            "compass_angle": round((frame.heading_deg + rng.gauss(0, COMPASS_ERROR_DEG)) % 360.0, 6),
            "computed_compass_angle": frame.heading_deg,
            "captured_at": shared.captured_at(frame.captured_at_ms),
            "is_pano": sequence.is_pano,
            "camera_type": "spherical" if sequence.is_pano else "perspective",
            "quality_score": _quality(sequence, shared),
            "creator": {"username": sequence.creator_username, "id": str(sequence.creator_id)},
            "make": "none" if shared.camera == "none" else make,
            "model": "none" if shared.camera == "none" else model,
            "width": sequence.camera_width,
            "height": sequence.camera_width // 2 if sequence.is_pano else sequence.camera_width * 3 // 4,
        }
        gone = ["quality_score"] if shared.quality == "absent" else []
        gone += ["make", "model"] if shared.camera == "absent" else []
        return changed(entity, {**dict.fromkeys(gone, ABSENT), **own.changes})

    def perspective_sequences(self) -> list[str]:
        """Ids of the flat drives, sorted."""
        return sorted(each.sequence_id for each in self._world.sequences if not each.is_pano)

    def _sequence_quirks(self, sequence: WorldSequence) -> SequenceQuirks:
        if not self._world.spec.quirks:
            return NO_SEQUENCE_QUIRKS
        return sequence_quirks(self._world.spec.seed, sequence.sequence_id)

    def _frame_quirks(self, frame: WorldFrame) -> FrameQuirks:
        if not self._world.spec.quirks:
            return NO_FRAME_QUIRKS
        return frame_quirks(self._world.spec.seed, str(frame.image_id), frame.heading_deg)

    # --- pictures ---------------------------------------------------------------------------------------

    def picture_sizes(self, image_id: str) -> frozenset[str]:
        """Which pictures there are: neither, either or both."""
        found = self._world.locate(image_id)
        if found is None:
            return frozenset()
        sequence, position = found
        quirks = self._frame_quirks(sequence.frames[position])
        reduced = quirks.picture and self._sequence_quirks(sequence).derivatives
        return frozenset(
            size
            for size, there in (("2048", reduced), ("original", quirks.original))
            if there and quirks.exists
        )

    def picture(self, image_id: str, size: str) -> bytes | None:
        """The JPEG, drawn now or kept from before; the same bytes every time."""
        if size not in self.picture_sizes(image_id):
            return None
        key = (image_id, size)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            drawing = self._drawing.setdefault(key, threading.Lock())
        with drawing:  # who asks for a picture that is being drawn waits for it
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            with self._one_at_a_time:
                picture = draw_picture(self._world, image_id, PICTURE_WIDTHS[size])
            with self._lock:
                self._keep(key, picture)
                self._drawing.pop(key, None)
        return picture

    def _keep(self, key: tuple[str, str], picture: bytes) -> None:
        self._kept[key] = picture
        self._kept_bytes += len(picture)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])


def draw_picture(world: World, image_id: str, width: int) -> bytes:
    """The JPEG of an image: a panorama 2:1, or for a flat camera the middle of one at 4:3.

    Raises:
        KeyError: there is no such image.
    """
    # Drawing loads textures and fonts; whoever only reads metadata does not wait for them.
    from resources.sandbox.earth.panorama import draw_panorama

    sequence = world.sequence_of(image_id)
    pixels: NDArray[np.uint8] = draw_panorama(world.scene(image_id), width)
    if sequence is not None and not sequence.is_pano:
        pixels = flat_crop(pixels)
    jpeg: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), quality=JPEG_QUALITY, colorspace="RGB", colorsubsampling="420"
    )
    return jpeg


def flat_crop(panorama: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The middle quarter of a panorama's width at 4:3, twice as large: a stand-in for a flat one."""
    height, width = panorama.shape[:2]
    half_width, half_height = width // 8, width * 3 // 32
    middle = panorama[
        height // 2 - half_height : height // 2 + half_height,
        width // 2 - half_width : width // 2 + half_width,
    ]
    return middle.repeat(2, axis=0).repeat(2, axis=1)


def _quality(sequence: WorldSequence, quirks: SequenceQuirks) -> float | None:
    return {"stated": sequence.quality, "absent": None, "zero": 0.0}[quirks.quality]


def _point(lon: float, lat: float) -> dict[str, object]:
    return {"type": "Point", "coordinates": [lon, lat]}


def _tile_pixel(frame: WorldFrame, z: int, x: int, y: int) -> tuple[int, int]:
    world_x, world_y = lonlat_to_pixel(frame.lon, frame.lat, z)
    return math.floor(world_x) - x * EXTENT, math.floor(world_y) - y * EXTENT


def _within(pixel: tuple[int, int], buffer: int) -> bool:
    return -buffer <= pixel[0] < EXTENT + buffer and -buffer <= pixel[1] < EXTENT + buffer


def _line(pixels: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The pixels of a line without repeats; a drive within one pixel gets a second one: a line needs two."""
    line = [pixel for index, pixel in enumerate(pixels) if index == 0 or pixel != pixels[index - 1]]
    if len(line) == 1:
        line.append((line[0][0] + 1, line[0][1]))
    return tuple(line)
