"""Where an episode's pictures come from, behind one protocol.

A backend says what it can do for a task; the environment registers no tool that the answer rules out. Both
backends here read a `PanoramaStore` and never the network: a frame that is not there is a `MissingFrame`, one
that cannot be shown (torn, no JPEG, a panorama that is not twice as wide as high) is a `BadPicture`; both
name frame and store. The live source, which must not be kept at all, is in `street_view`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from env_service.geodesy import haversine_km
from env_service.store import BadPicture, PanoramaStore, require_decodable, require_panorama
from env_service.tasks import Task
from env_service.views import (
    MAX_FOV_DEG,
    MIN_FOV_DEG,
    NADIR_CAP_DEG,
    PanoramaCache,
    Picture,
    UnreadablePicture,
    encode_jpeg,
    hide_nadir,
    render_view,
)

ORIGINAL_BELOW_FOV_DEG = 45.0
"""Below this field of view the full-size original is used where the store has one."""

PHOTO_FOV_DEG = 90.0
"""Field of view that a whole photograph is taken to have; a zoom below it crops around the middle, and a
wider one shows the whole."""

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Abilities:
    """What a backend can do for one task; `map` says whether its pictures may be shown beside a map."""

    look: bool
    zoom: bool
    move: bool
    map: bool = True


@dataclass(frozen=True)
class Move:
    """Where a walk ended: index of the frame, and the metres really travelled along the frames."""

    frame_index: int
    moved_meters: float


class ImageryBackend(Protocol):
    """What the environment asks of a source of pictures. Safe to share between sessions."""

    name: str

    def abilities(self, task: Task) -> Abilities:
        """Which of look, zoom and move make sense for this task."""
        ...

    def view(
        self,
        task: Task,
        frame_index: int,
        heading_deg: float,
        pitch_deg: float,
        fov_deg: float,
        size_px: int = 640,
    ) -> bytes:
        """A JPEG of what the camera sees; the same bytes for the same arguments, always.

        Raises:
            MissingFrame: the store does not hold the frame.
            BadPicture: what the store holds cannot be shown.
            ValueError: an argument is out of range (see `views.render_view`).
        """
        ...

    def flat(self, task: Task, frame_index: int) -> bool:
        """Whether the frame is shown as a flat photograph, whose direction nobody can change."""
        ...

    def can_move(self, task: Task, frame_index: int, direction: Direction) -> bool:
        """Whether there is a frame further on in that direction."""
        ...

    def move(self, task: Task, frame_index: int, direction: Direction, meters: float) -> Move:
        """Walk along the captured frames; stays in place (0 m) where there is nothing further."""
        ...


class MapillaryBackend:
    """Full panoramas from a store: looks anywhere, walks along the drive, zooms into originals.

    Args:
        store: where the pictures lie.
        cache: decoded panoramas; pass one to share it between backends. Keys carry the store's address.
        nadir_cap_deg: radius of the cap that hides contributors' logos straight below the camera; 0 for none.
    """

    name = "mapillary"

    def __init__(
        self,
        store: PanoramaStore,
        cache: PanoramaCache | None = None,
        nadir_cap_deg: float = NADIR_CAP_DEG,
    ) -> None:
        self.store = store
        self.cache = cache if cache is not None else PanoramaCache()
        self.nadir_cap_deg = nadir_cap_deg

    def abilities(self, task: Task) -> Abilities:
        """Looking needs panoramas throughout, walking a second frame."""
        around = all(frame.is_pano for frame in task.frames)
        return Abilities(look=around, zoom=around, move=len(task.frames) > 1)

    def view(
        self,
        task: Task,
        frame_index: int,
        heading_deg: float,
        pitch_deg: float,
        fov_deg: float,
        size_px: int = 640,
    ) -> bytes:
        """See `ImageryBackend.view`. A frame that is a flat photograph is shown as it is."""
        frame = task.frames[frame_index]
        if self.flat(task, frame_index):
            return _photo(_decoded(self.store, self.cache, frame.image_id), fov_deg, size_px)
        original = fov_deg < ORIGINAL_BELOW_FOV_DEG and self.store.exists(frame.image_id, original=True)
        pano = _decoded(self.store, self.cache, frame.image_id, original, self.nadir_cap_deg)
        # A view out of any other shape would look plausible and point in wrong directions.
        require_panorama(self.store.name(frame.image_id, original), pano.shape[1], pano.shape[0])
        return encode_jpeg(render_view(pano, frame.compass_angle, heading_deg, pitch_deg, fov_deg, size_px))

    def flat(self, task: Task, frame_index: int) -> bool:
        """What the task row says."""
        return not task.frames[frame_index].is_pano

    def can_move(self, task: Task, frame_index: int, direction: Direction) -> bool:
        """See `frame_ahead`."""
        return frame_ahead(task, frame_index, direction)

    def move(self, task: Task, frame_index: int, direction: Direction, meters: float) -> Move:
        """See `walk`."""
        return walk(task, frame_index, direction, meters)


def frame_ahead(task: Task, frame_index: int, direction: Direction) -> bool:
    """Whether the drive goes on. Frames are in its order: forward is the next one."""
    return frame_index + 1 < len(task.frames) if direction == "forward" else frame_index > 0


def walk(task: Task, frame_index: int, direction: Direction, meters: float) -> Move:
    """Go to the frame whose distance along the drive is closest to `meters`, at least one frame on.

    A walk is bounded by where frames exist, so the distance travelled may differ from the one asked for
    either way. Of two frames equally close the nearer wins.
    """
    step = 1 if direction == "forward" else -1
    best = Move(frame_index, 0.0)
    travelled = 0.0
    at = frame_index
    while frame_ahead(task, at, direction):
        here, there = task.frames[at], task.frames[at + step]
        travelled += 1000.0 * haversine_km(here.lat, here.lon, there.lat, there.lon)
        at += step
        if best.frame_index != frame_index and abs(travelled - meters) >= abs(best.moved_meters - meters):
            break
        best = Move(at, travelled)
    return best


class PerspectiveBackend:
    """Single photographs: no looking around and no walking; a zoom crops around the middle."""

    name = "perspective"

    def __init__(self, store: PanoramaStore, cache: PanoramaCache | None = None) -> None:
        self.store = store
        self.cache = cache if cache is not None else PanoramaCache()

    def abilities(self, task: Task) -> Abilities:
        """Zoom alone."""
        return Abilities(look=False, zoom=True, move=False)

    def view(
        self,
        task: Task,
        frame_index: int,
        heading_deg: float,
        pitch_deg: float,
        fov_deg: float,
        size_px: int = 640,
    ) -> bytes:
        """The photograph or its middle, longest edge `size_px`; heading and pitch change nothing."""
        frame = task.frames[frame_index]
        return _photo(_decoded(self.store, self.cache, frame.image_id), fov_deg, size_px)

    def flat(self, task: Task, frame_index: int) -> bool:
        """Always."""
        return True

    def can_move(self, task: Task, frame_index: int, direction: Direction) -> bool:
        """Never."""
        return False

    def move(self, task: Task, frame_index: int, direction: Direction, meters: float) -> Move:
        """Stays where it is."""
        return Move(frame_index, 0.0)


def _decoded(
    store: PanoramaStore,
    cache: PanoramaCache,
    image_id: str,
    original: bool = False,
    nadir_cap_deg: float = 0.0,
) -> Picture:
    def load() -> bytes:
        data = store.get(image_id, original)
        require_decodable(store.name(image_id, original), data)
        return data

    try:
        key = (store.url, image_id, original, nadir_cap_deg)
        return cache.get(key, load, partial(hide_nadir, radius_deg=nadir_cap_deg))
    except UnreadablePicture as error:
        raise BadPicture(
            f"{store.name(image_id, original)} cannot be shown: {error.problem}", error.fix
        ) from error


def _photo(picture: Picture, fov_deg: float, size_px: int) -> bytes:
    if not MIN_FOV_DEG <= fov_deg <= MAX_FOV_DEG:
        raise ValueError(f"fov_deg {fov_deg} is outside {MIN_FOV_DEG:g}..{MAX_FOV_DEG:g}")
    share = min(1.0, float(np.tan(np.radians(fov_deg) / 2) / np.tan(np.radians(PHOTO_FOV_DEG) / 2)))
    height, width = picture.shape[:2]
    crop_h, crop_w = max(1, round(height * share)), max(1, round(width * share))
    top, left = (height - crop_h) // 2, (width - crop_w) // 2
    return encode_jpeg(fit(picture[top : top + crop_h, left : left + crop_w, :3], size_px))


def fit(picture: Picture, size_px: int) -> Picture:
    """The picture (height x width x 3) with a longest edge of `size_px`, its shape kept."""
    height, width = picture.shape[:2]
    scale = size_px / max(height, width)
    rows = _resample(picture, max(1, round(height * scale)), axis=0)
    return _resample(rows, max(1, round(width * scale)), axis=1)


def _resample(picture: Picture, count: int, axis: int) -> Picture:
    """Box-average down or repeat up along one axis, in integers alone so that bytes never differ."""
    length = picture.shape[axis]
    if count >= length:
        index = np.arange(count, dtype=np.int64) * length // count
        repeated: Picture = np.take(picture, index, axis=axis)
        return repeated
    edges = np.arange(count + 1, dtype=np.int64) * length // count
    sums: NDArray[np.int64] = np.add.reduceat(picture, edges[:-1], axis=axis, dtype=np.int64)
    widths = np.diff(edges)
    shape = [1] * picture.ndim
    shape[axis] = count
    divisor = widths.reshape(shape)
    averaged: Picture = ((2 * sums + divisor) // (2 * divisor)).astype(np.uint8)
    return averaged
