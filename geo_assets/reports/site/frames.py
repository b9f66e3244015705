"""Pictures of the page: episodes played again and checked against their hashes, reduced, each kept once.

An episode keeps hashes and no pictures, so its frames come from the environment by the replay that sweeps use
too: a frame whose hash differs is not shown. What is kept is a smaller copy under the hash of its own bytes;
views that several episodes share are one file.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from env_service.canonical import sha256_hex
from env_service.geodesy import wrap_longitude
from env_service.maps import render_map
from env_service.models import Pin
from env_service.views import encode_jpeg
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.replay import ReplayDiffers, Step

FOLDER = "frames"
VIEW_PX, MAP_PX = 512, 480
NAME_DIGITS = 20
ROOM, SETTLED = 1.45, 60
NEAREST_SPAN_DEG, FARTHEST_SPAN_DEG, ALONE_SPAN_DEG = 0.5, 180.0, 50.0
"""Half a degree shows the towns around a guess that hit; nearer there is nothing to see."""

Replay = Callable[[EpisodeRecord], tuple[Step, ...]]


@dataclass(frozen=True)
class Shown:
    """A picture of the page: its path below the page's folder, and its edges in pixels."""

    path: str
    width: int
    height: int


@dataclass
class Shelf:
    """The pictures so far, by path; `weight` is what they weigh together."""

    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """Weight of all pictures."""
        return sum(map(len, self.files.values()))

    def keep(self, data: bytes) -> Shown:
        """Keep a picture as it is, once."""
        with Image.open(io.BytesIO(data)) as picture:
            width, height, kind = picture.width, picture.height, picture.format
        path = f"{FOLDER}/{sha256_hex(data)[:NAME_DIGITS]}.{'png' if kind == 'PNG' else 'jpg'}"
        self.files[path] = data
        return Shown(path, width, height)

    def without(self, paths: set[str]) -> None:
        """Put pictures back that turned out not to fit."""
        for path in paths:
            self.files.pop(path, None)


@dataclass(frozen=True)
class Frames:
    """Pictures of one episode.

    Attributes:
        views: one per step, the opening first; None where the call showed none.
        reveal: map of guess and truth.
        missing: why there are no views; empty where there are.
    """

    views: tuple[Shown | None, ...]
    reveal: Shown
    missing: str = ""


def frames_of(record: EpisodeRecord, replay: Replay, shelf: Shelf) -> Frames:
    """Play an episode again and keep its pictures.

    An episode that does not replay keeps its words and loses its views: it belongs to another version of the
    environment, and other pictures than it was shown would be false.
    """
    reveal = shelf.keep(reveal_map(record))
    try:
        steps = replay(record)
    except ReplayDiffers as error:
        return Frames((None,) * (len(record.turns) + 1), reveal, error.problem)
    views = (shelf.keep(reduced(step.picture, step.kind)) if step.picture else None for step in steps)
    return Frames(tuple(views), reveal)


def reduced(picture: bytes, kind: str) -> bytes:
    """A view as a smaller JPEG; a map as it is, whose lines and letters a smaller copy would lose."""
    if kind == "map":
        return picture
    with Image.open(io.BytesIO(picture)) as opened:
        view = opened.convert("RGB")
        if max(view.size) > VIEW_PX:
            view.thumbnail((VIEW_PX, VIEW_PX), Image.Resampling.LANCZOS)
        return encode_jpeg(np.asarray(view, dtype=np.uint8))


def reveal_map(record: EpisodeRecord) -> bytes:
    """PNG with guess and truth, or the truth alone."""
    result = record.result
    truth = result.true_lat, result.true_lon
    if result.guess_lat is None or result.guess_lon is None:
        return render_map(*truth, ALONE_SPAN_DEG, [_pin(1, *truth, "Truth")], MAP_PX)
    guess = result.guess_lat, result.guess_lon
    lat, lon, span = window(*guess, *truth)
    return render_map(lat, lon, span, [_pin(1, *guess, "Guess"), _pin(2, *truth, "Truth")], MAP_PX)


def window(lat1: float, lon1: float, lat2: float, lon2: float) -> tuple[float, float, float]:
    """Middle and span in degrees of a square map, true to scale at its middle, that holds both positions."""
    lat, turn = (lat1 + lat2) / 2, wrap_longitude(lon2 - lon1)
    high, span = abs(lat2 - lat1), NEAREST_SPAN_DEG
    for _ in range(SETTLED):  # the middle moves off a pole as the span grows, and degrees widen there
        room = max(0.0, 90.0 - span / 2)
        wide = abs(turn) * float(np.cos(np.radians(max(-room, min(room, lat)))))
        span = min(FARTHEST_SPAN_DEG, max(NEAREST_SPAN_DEG, ROOM * max(high, wide)))
    return lat, wrap_longitude(lon1 + turn / 2), round(span, 6)


def _pin(index: int, lat: float, lon: float, label: str) -> Pin:
    return Pin(index=index, lat=lat, lon=lon, label=label, description=label)
