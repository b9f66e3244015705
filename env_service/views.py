"""Perspective views out of equirectangular panoramas, the same bytes everywhere.

The camera looks from the middle of the panorama's sphere. The panorama's centre column faces `compass_angle`
(degrees clockwise from true north), so a view at heading h is centred on image yaw h - compass_angle. Pixel
(i, j) stands for its centre (i + 0.5, j + 0.5), in the view as in the panorama.

Which panorama pixel a view pixel takes is an integer table, built once in float64 per (pitch, field of view,
size, panorama size) for a camera that faces the centre column, with columns in 1/256 of a column; turning the
camera adds an integer to them. The pixel on which the ray falls is taken as it is: no interpolation, so
nothing depends on threads or on how a library rounds, and a view is never turned by more than 1/512 of a
panorama column, far below one of its own pixels at any zoom. The table itself is made with nothing but the
operations that IEEE 754 fixes to the last bit (see `_exact_angles`), so it is the same on every processor.
"""

import math
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from env_service._exact_angles import arctan2_exact
from env_service.errors import GeoError
from env_service.geodesy import wrap_degrees

Picture = NDArray[np.uint8]
"""Height x width x 3 (RGB) or x 4 (RGB and an unused byte), uint8."""

JPEG_QUALITY = 85
MIN_FOV_DEG = 10.0
MAX_FOV_DEG = 120.0
MAX_SIZE_PX = 2048
DEFAULT_CACHE_BYTES = 512 << 20
NADIR_CAP_DEG = 32.0
"""Radius of the cap around straight down. The logos seen in the wild end 29.7 degrees from it; a level camera
with a field of view of 90 degrees sees nothing within 45."""

CAP_GRAY = 128
DECODES_AT_ONCE = 2

TABLE_BYTES = 80 << 20
"""Memory for look-up tables, beside that for panoramas: 24 of 640 x 640 (3.3 MB each, half of that for a
level camera), or two of 2048 x 2048. Agents choose pitch and field of view: a number alone bounds nothing."""

# View rows worked on at once: their indexes stay in a core's own cache, which is worth a third of the time.
_ROWS_AT_ONCE = 64
_PARTS_BITS = 8
# Keeps rays that fall exactly on the border of two parts on one side, whatever a CPU's last bit says.
_BORDER = 1e-7


class UnreadablePicture(GeoError):
    """Bytes that do not decode as a JPEG."""


@dataclass(frozen=True)
class _Table:
    """Which panorama pixel each view pixel takes, for a camera that faces the centre column.

    Attributes:
        row_starts: (size, size) uint32, flat index of the first pixel of the panorama row.
        columns: (size, size) uint32, the column in parts of 1/256, in [0, 256 * width); for a level camera,
            whose columns are the same all the way down, (1, size).
        first, last: extent of `columns`.
    """

    row_starts: NDArray[np.uint32]
    columns: NDArray[np.uint32]
    first: int
    last: int

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.row_starts.nbytes + self.columns.nbytes


class _Tables:
    """Look-up tables, least recently used out first, bounded by bytes. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._held: OrderedDict[tuple[float, float, int, int, int], _Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, pitch: float, fov: float, size: int, width: int, height: int) -> _Table:
        """The table of a camera, see `_make_table`. Two threads may make one at once; one of them is kept."""
        key = (pitch, fov, size, width, height)
        with self._lock:
            if (held := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return held
        made = _make_table(*key)
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self.held_bytes += made.nbytes
            while self.held_bytes > self.max_bytes:
                self.held_bytes -= self._held.popitem(last=False)[1].nbytes
        return made


_TABLES = _Tables(TABLE_BYTES)
_table = _TABLES.get


def render_view(
    pano: Picture,
    compass_angle: float,
    heading_deg: float,
    pitch_deg: float,
    fov_deg: float,
    size_px: int = 640,
) -> Picture:
    """A square view out of a panorama.

    Args:
        pano: equirectangular panorama, height x width x 3 or 4, uint8; four bytes per pixel are faster.
        compass_angle: direction of the panorama's centre column, degrees clockwise from true north.
        heading_deg: absolute direction of the view's middle, any finite angle.
        pitch_deg: -90 (down) to 90 (up).
        fov_deg: horizontal and vertical field of view, 10 to 120.
        size_px: edge of the view in pixels, 1 to 2048.

    Returns:
        size_px x size_px with the panorama's number of bytes per pixel.

    Raises:
        ValueError: an angle, size or array outside what is stated above.
    """
    _check(pano, compass_angle, heading_deg, pitch_deg, fov_deg, size_px)
    height, width, channels = pano.shape
    around = width << _PARTS_BITS
    turn = math.floor(wrap_degrees(heading_deg - compass_angle) / 360.0 * around + 0.5) % around
    table = _table(float(pitch_deg), float(fov_deg), size_px, width, height)

    # A view that straddles the panorama's edge continues at column 0.
    straddles = table.first + turn < around <= table.last + turn
    if table.first + turn >= around:
        turn -= around
    # One item per pixel: where a pixel has three bytes its number stands for it.
    flat = np.ascontiguousarray(pano).reshape(height * width, channels)
    pixels = flat.view(np.uint32).ravel() if channels == 4 else None
    view = np.empty((size_px, size_px, channels), np.uint8)
    view_pixels = view.view(np.uint32)[..., 0] if channels == 4 else None
    level = len(table.columns) == 1
    columns = _turned(table.columns, turn, width, straddles) if level else table.columns
    for top in range(0, size_px, _ROWS_AT_ONCE):
        rows = slice(top, min(top + _ROWS_AT_ONCE, size_px))
        across = columns if level else _turned(columns[rows], turn, width, straddles)
        index = np.add(table.row_starts[rows], across, dtype=np.intp)
        # "clip" only spares a test: every index lies inside.
        if pixels is not None and view_pixels is not None:
            np.take(pixels, index, out=view_pixels[rows], mode="clip")
        else:
            np.take(flat, index, axis=0, out=view[rows], mode="clip")
    return view


def _turned(columns: NDArray[np.uint32], turn: int, width: int, straddles: bool) -> NDArray[np.uint32]:
    """Whole columns of a turned camera, from columns in parts."""
    # A turn below zero wraps round in 32 bits and comes out right, for no sum is below zero.
    whole = columns + np.uint32(turn % (1 << 32))
    whole >>= np.uint32(_PARTS_BITS)
    if straddles:
        # Below the edge the difference wraps round to a huge number, and the minimum keeps the column.
        np.minimum(whole, whole - np.uint32(width), out=whole)
    return whole


def encode_jpeg(image: Picture) -> bytes:
    """JPEG bytes with fixed settings: quality 85, 4:2:0, exact integer DCT, no metadata.

    Args:
        image: height x width x 3 or 4; both give the same bytes for the same colours.
    """
    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(image),
        quality=JPEG_QUALITY,
        colorspace="RGBX" if image.shape[2] == 4 else "RGB",
        colorsubsampling="420",
        fastdct=False,
    )
    return data


def decode_jpeg(data: bytes, channels: int = 3, own_pages: bool = False) -> Picture:
    """Decode a JPEG to height x width x `channels` (3: RGB, 4: RGB and an unused byte).

    Args:
        data: the file.
        channels: 3 or 4.
        own_pages: put the picture into pages of its own, which go back to the system when it is dropped. From
            the heap, a long-lived server with many threads gets them back only in part.

    Raises:
        UnreadablePicture: the bytes are no complete JPEG.
    """
    try:
        room = None
        if own_pages:
            height, width, _, _ = simplejpeg.decode_jpeg_header(data)
            room = mmap.mmap(-1, height * width * channels)
        image: Picture = simplejpeg.decode_jpeg(
            data,
            colorspace="RGBX" if channels == 4 else "RGB",
            fastdct=False,
            fastupsample=False,
            buffer=room,
        )
    except (ValueError, RuntimeError, TypeError) as error:
        raise UnreadablePicture(
            f"a picture does not decode as JPEG ({error})", "Put a fresh copy of it into the store."
        ) from error
    return image


def hide_nadir(pano: Picture, radius_deg: float) -> None:
    """Grey out, in place, what lies straight below the camera: contributors put their logo there.

    Done once when a panorama is decoded, so a view costs no more than without. Flat grey says that something
    is hidden; a patch made up from its surroundings would pass for ground.

    Args:
        pano: equirectangular panorama, height x width x channels, writeable.
        radius_deg: from straight down, 0 (nothing is hidden) to 90; a pixel counts by its centre.
    """
    height = len(pano)
    first = math.ceil(height * (1.0 - radius_deg / 180.0) - 0.5 + _BORDER)
    pano[first:] = CAP_GRAY


class PanoramaCache:
    """Decoded panoramas, least recently used out first, bounded by bytes. Safe to share between threads.

    Two threads that want the same panorama at once decode it once. Arrays are read-only, and a panorama
    larger than the whole cache is handed out without being kept. No more than `DECODES_AT_ONCE` are decoded
    at a time, because what is being decoded is not yet counted: a full-size original takes 118 MB.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[Hashable, Picture] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._loading: dict[Hashable, threading.Lock] = {}
        self._decoding = threading.BoundedSemaphore(DECODES_AT_ONCE)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """Bytes of all panoramas held now."""
        return self._bytes

    def get(
        self, key: Hashable, load: Callable[[], bytes], finish: Callable[[Picture], None] | None = None
    ) -> Picture:
        """The decoded panorama (height x width x 4) under `key`.

        Args:
            key: what names the panorama, and whatever `finish` depends on.
            load: gives its JPEG bytes; called only when it is not held. What it raises passes through.
            finish: changes the decoded panorama in place before it is kept.

        Raises:
            UnreadablePicture: the loaded bytes do not decode.
        """
        with self._lock:
            held = self._touch(key)
            if held is not None:
                return held
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:
            with self._lock:
                held = self._touch(key)
                if held is not None:
                    return held
                self.misses += 1
            try:
                data = load()
                with self._decoding:
                    pano = decode_jpeg(data, channels=4, own_pages=True)
                    if finish is not None:
                        finish(pano)
                    pano.flags.writeable = False
                    with self._lock:
                        self._keep(key, pano)
                return pano
            finally:
                with self._lock:
                    self._loading.pop(key, None)

    def _touch(self, key: Hashable) -> Picture | None:
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
            self.hits += 1
        return held

    def _keep(self, key: Hashable, pano: Picture) -> None:
        earlier = self._held.pop(key, None)
        self._bytes -= earlier.nbytes if earlier is not None else 0
        if pano.nbytes > self.max_bytes:
            return
        self._held[key] = pano
        self._bytes += pano.nbytes
        while self._bytes > self.max_bytes:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped.nbytes


def _check(pano: Picture, compass: float, heading: float, pitch: float, fov: float, size: int) -> None:
    if pano.ndim != 3 or pano.shape[2] not in (3, 4) or pano.dtype != np.uint8 or pano.size == 0:
        raise ValueError(f"a panorama is height x width x 3 or 4 of uint8, not {pano.shape} of {pano.dtype}")
    if not (math.isfinite(compass) and math.isfinite(heading)):
        raise ValueError(f"compass_angle {compass} and heading_deg {heading} must be finite")
    if not -90.0 <= pitch <= 90.0:
        raise ValueError(f"pitch_deg {pitch} is outside -90..90")
    if not MIN_FOV_DEG <= fov <= MAX_FOV_DEG:
        raise ValueError(f"fov_deg {fov} is outside {MIN_FOV_DEG:g}..{MAX_FOV_DEG:g}")
    if not 1 <= size <= MAX_SIZE_PX:
        raise ValueError(f"size_px {size} is outside 1..{MAX_SIZE_PX}")


def _make_table(pitch: float, fov: float, size: int, width: int, height: int) -> _Table:
    half = _settled(math.tan(math.radians(fov) / 2.0))
    cos_pitch, sin_pitch = _settled(math.cos(math.radians(pitch))), _settled(math.sin(math.radians(pitch)))
    edge = (np.arange(size, dtype=np.float64) + 0.5) * (2.0 / size) - 1.0
    # The left half mirrors the right one: the dear functions run on one half only.
    half_size = (size + 1) // 2
    right = (edge * half)[np.newaxis, size - half_size :]
    up = (-edge * half)[:, np.newaxis]
    ahead = cos_pitch - up * sin_pitch
    above = sin_pitch + up * cos_pitch
    # A level camera has every row's columns in the first.
    half_yaw = arctan2_exact(right, ahead[:1] if sin_pitch == 0.0 else ahead)
    half_latitude = arctan2_exact(above, np.sqrt(right * right + ahead * ahead))
    mirrored = slice(None, None, -1) if size % 2 == 0 else slice(None, 0, -1)
    yaw = np.concatenate([-half_yaw[:, mirrored], half_yaw], axis=1)
    latitude = np.concatenate([half_latitude[:, mirrored], half_latitude], axis=1)

    around = width << _PARTS_BITS
    parts = np.floor((yaw / (2.0 * math.pi) + 0.5) * around + _BORDER).astype(np.int64) % around
    rows = np.floor((0.5 - latitude / math.pi) * height + _BORDER).astype(np.int64)
    row_starts = (np.clip(rows, 0, height - 1) * width).astype(np.uint32)
    columns = parts.astype(np.uint32)
    row_starts.flags.writeable = columns.flags.writeable = False
    return _Table(row_starts, columns, int(columns.min()), int(columns.max()))


def _settled(value: float) -> float:
    """Rounded to 12 decimals: sine, cosine and tangent may differ in the last bit between C libraries."""
    return round(value, 12)
