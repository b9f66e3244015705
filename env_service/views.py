"""Perspective views out of equirectangular panoramas, the same bytes everywhere.

The camera looks from the middle of the panorama's sphere. The panorama's centre column faces `compass_angle`
(degrees clockwise from true north), so a view at heading h is centred on image yaw h - compass_angle. Pixel
(i, j) stands for its centre (i + 0.5, j + 0.5), in the view as in the panorama.

Which panorama pixel a view pixel takes is an integer table, built once in float64 per (pitch, field of view,
size, panorama size) for a camera that faces the centre column, with columns in 1/256 of a column; turning the
camera adds an integer to them. The pixel on which the ray falls is taken as it is: no interpolation, so
nothing depends on threads or on how a library rounds, and a view is never turned by more than 1/512 of a
panorama column, far below one of its own pixels at any zoom.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from env_service.errors import GeoError
from env_service.geodesy import wrap_degrees

Picture = NDArray[np.uint8]
"""Height x width x 3 (RGB) or x 4 (RGB and an unused byte), uint8."""

JPEG_QUALITY = 85
MIN_FOV_DEG = 10.0
MAX_FOV_DEG = 120.0
MAX_SIZE_PX = 2048
DEFAULT_CACHE_BYTES = 512 << 20

# One table of 640 x 640 takes 4.9 MB.
_TABLES = 24
_PARTS_BITS = 8
# Keeps rays that fall exactly on the border of two parts on one side, whatever a CPU's last bit says.
_BORDER = 1e-7


class UnreadablePicture(GeoError):
    """Bytes that do not decode as a JPEG."""


@dataclass(frozen=True)
class _Table:
    """Which panorama pixel each view pixel takes, for a camera that faces the centre column.

    Attributes:
        row_starts: (size * size,) intp, flat index of the first pixel of the panorama row.
        columns: (size * size,) int32, the column in parts of 1/256, in [0, 256 * width).
        first, last: extent of `columns`.
    """

    row_starts: NDArray[np.intp]
    columns: NDArray[np.int32]
    first: int
    last: int


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

    wraps_everywhere = table.first + turn >= around
    columns = table.columns + np.int32(turn - around if wraps_everywhere else turn)
    columns >>= _PARTS_BITS
    if not wraps_everywhere and table.last + turn >= around:
        # The view straddles the panorama's edge: the part beyond it continues at column 0.
        columns -= (columns >= width) * np.int32(width)
    index = table.row_starts + columns
    flat = np.ascontiguousarray(pano).reshape(height * width, channels)
    view: Picture
    if channels == 4:
        view = np.take(flat.view(np.uint32).ravel(), index).view(np.uint8)
    else:
        view = np.take(flat, index, axis=0)
    return view.reshape(size_px, size_px, channels)


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


def decode_jpeg(data: bytes, channels: int = 3) -> Picture:
    """Decode a JPEG to height x width x `channels` (3: RGB, 4: RGB and an unused byte).

    Raises:
        UnreadablePicture: the bytes are no complete JPEG.
    """
    try:
        image: Picture = simplejpeg.decode_jpeg(
            data, colorspace="RGBX" if channels == 4 else "RGB", fastdct=False, fastupsample=False
        )
    except (ValueError, RuntimeError, TypeError) as error:
        raise UnreadablePicture(
            f"a picture does not decode as JPEG ({error})", "Put a fresh copy of it into the store."
        ) from error
    return image


class PanoramaCache:
    """Decoded panoramas, least recently used out first, bounded by bytes. Safe to share between threads.

    Two threads that want the same panorama at once decode it once. Arrays are read-only, and a panorama
    larger than the whole cache is handed out without being kept.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[Hashable, Picture] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._loading: dict[Hashable, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """Bytes of all panoramas held now."""
        return self._bytes

    def get(self, key: Hashable, load: Callable[[], bytes]) -> Picture:
        """The decoded panorama (height x width x 4) under `key`.

        Args:
            key: what names the panorama.
            load: gives its JPEG bytes; called only when it is not held. What it raises passes through.

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
                pano = decode_jpeg(load(), channels=4)
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


@lru_cache(maxsize=_TABLES)
def _table(pitch: float, fov: float, size: int, width: int, height: int) -> _Table:
    half = math.tan(math.radians(fov) / 2.0)
    edge = (np.arange(size, dtype=np.float64) + 0.5) * (2.0 / size) - 1.0
    # The left half mirrors the right one: the dear functions run on one half only.
    half_size = (size + 1) // 2
    right = (edge * half)[np.newaxis, size - half_size :]
    up = (-edge * half)[:, np.newaxis]
    cos_pitch, sin_pitch = math.cos(math.radians(pitch)), math.sin(math.radians(pitch))
    ahead = cos_pitch - up * sin_pitch
    above = sin_pitch + up * cos_pitch
    half_yaw = np.arctan2(right, ahead)
    half_latitude = np.arctan2(above, np.sqrt(right * right + ahead * ahead))
    mirrored = slice(None, None, -1) if size % 2 == 0 else slice(None, 0, -1)
    yaw = np.concatenate([-half_yaw[:, mirrored], half_yaw], axis=1)
    latitude = np.concatenate([half_latitude[:, mirrored], half_latitude], axis=1)

    around = width << _PARTS_BITS
    parts = np.floor((yaw / (2.0 * math.pi) + 0.5) * around + _BORDER).astype(np.int64) % around
    rows = np.floor((0.5 - latitude / math.pi) * height + _BORDER).astype(np.int64)
    row_starts = (np.clip(rows, 0, height - 1) * width).ravel().astype(np.intp)
    columns = parts.ravel().astype(np.int32)
    row_starts.flags.writeable = columns.flags.writeable = False
    return _Table(row_starts, columns, int(columns.min()), int(columns.max()))
