"""Mapillary coverage tiles: where they lie, and their Mapbox Vector Tile bytes, written and read.

`tiles_covering`, `tile_bounds` and `lonlat_to_tile` are the usual Web Mercator tile arithmetic;
`encode_tile` writes a tile as the sandbox serves it; `decode_sequences` reads the `sequence` layer of a
tile into columns. Only what the harvest needs is read: five properties and the first vertex of a line,
the rest of the geometry and the other layers are stepped over, so a dense city of 70,000 sequences takes a
fifth of a second where a general decoder takes three.

Format: https://github.com/mapbox/vector-tile-spec (version 2.1). The y axis of a tile points down.
"""

import gzip
import math
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from env_service.errors import GeoError
from resources._tile_reader import BrokenTile, read_sequence_layers
from resources._tile_writer import EXTENT, TileFeature, encode_layers

__all__ = [
    "EXTENT",
    "MERCATOR_LIMIT_DEG",
    "SequenceColumns",
    "TileFeature",
    "TileId",
    "TileUnreadable",
    "decode_sequences",
    "encode_tile",
    "lonlat_to_pixel",
    "lonlat_to_tile",
    "pixel_to_lonlat",
    "tile_bounds",
    "tiles_covering",
]

MERCATOR_LIMIT_DEG = 85.0511287798066
MAX_TILE_BYTES = 512 << 20
"""A tile that unpacks to more than this is a fault or an attack, not coverage."""


class TileId(NamedTuple):
    """A tile of the Web Mercator pyramid; x grows east, y grows south."""

    z: int
    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.z}/{self.x}/{self.y}"


class TileUnreadable(GeoError):
    """A coverage tile whose bytes are no vector tile; the sentence names the tile."""


@dataclass(frozen=True)
class SequenceColumns:
    """The `sequence` features of one tile, column by column, in the order of the file.

    All columns have one length. Identifiers are decimal or opaque strings, never floats: image ids go
    beyond 2^53. `quality_score` is None where the tile says nothing; `captured_at` is milliseconds since
    1970 UTC as stated (it may be 0), None where absent. `lon` and `lat` are WGS84 degrees of the first
    vertex, exact to half a tile pixel.
    """

    id: list[str]
    image_id: list[str]
    creator_id: list[str]
    quality_score: list[float | None]
    captured_at: list[int | None]
    is_pano: list[bool]
    lon: list[float]
    lat: list[float]

    def __len__(self) -> int:
        return len(self.id)


# --- where tiles lie ------------------------------------------------------------------------------------


def lonlat_to_pixel(lon: float, lat: float, z: int, extent: int = EXTENT) -> tuple[float, float]:
    """World pixel of a position at zoom `z`, tiles being `extent` pixels wide; y grows south.

    Latitudes beyond ±85.0511° are put on the edge of the map.
    """
    size = float(extent << z)
    lat = max(-MERCATOR_LIMIT_DEG, min(MERCATOR_LIMIT_DEG, lat))
    x = (lon + 180.0) / 360.0 * size
    y = (1.0 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2.0 * size
    return x, y


def pixel_to_lonlat(x: float, y: float, z: int, extent: int = EXTENT) -> tuple[float, float]:
    """Longitude and latitude in degrees of a world pixel; the inverse of `lonlat_to_pixel`."""
    size = float(extent << z)
    lon = x / size * 360.0 - 180.0
    lat = math.degrees(math.atan(math.sinh(math.pi * (1.0 - 2.0 * y / size))))
    return lon, lat


def lonlat_to_tile(lon: float, lat: float, z: int) -> TileId:
    """The tile that holds a position; +180° belongs to the easternmost column."""
    x, y = lonlat_to_pixel(lon, lat, z, extent=1)
    last = (1 << z) - 1
    return TileId(z, min(last, max(0, math.floor(x))), min(last, max(0, math.floor(y))))


def tile_bounds(z: int, x: int, y: int) -> tuple[float, float, float, float]:
    """West, south, east and north edge of a tile in degrees.

    Raises:
        ValueError: there is no such tile.
    """
    if not 0 <= z <= 30 or not (0 <= x < 1 << z and 0 <= y < 1 << z):
        raise ValueError(f"there is no tile {z}/{x}/{y}")
    west, north = pixel_to_lonlat(x, y, z, extent=1)
    east, south = pixel_to_lonlat(x + 1, y + 1, z, extent=1)
    return west, south, east, north


def tiles_covering(bbox: tuple[float, float, float, float], z: int) -> list[TileId]:
    """Tiles whose area intersects a box (west, south, east, north), row by row from the north-west.

    A box with west > east crosses the 180° meridian. Touching an edge is not intersecting: the bounds of a
    tile are covered by that tile alone.

    Raises:
        ValueError: south is above north, or a figure is not finite.
    """
    west, south, east, north = bbox
    if not all(map(math.isfinite, bbox)) or south > north:
        raise ValueError(f"not a box (west, south, east, north): {bbox}")
    if west > east:
        return sorted(
            {
                *tiles_covering((west, south, 180.0, north), z),
                *tiles_covering((-180.0, south, east, north), z),
            },
            key=lambda tile: (tile.y, tile.x),
        )
    left, top = lonlat_to_pixel(west, north, z, extent=1)
    right, bottom = lonlat_to_pixel(east, south, z, extent=1)
    return [TileId(z, x, y) for y in _spanned(top, bottom, z) for x in _spanned(left, right, z)]


def _spanned(low: float, high: float, z: int) -> range:
    last_tile = (1 << z) - 1
    # Bounds that went through atan and back miss the edge by some 1e-12 of a tile; a point needs no slack.
    slack = 1e-9 if high - low > 1e-8 else 0.0
    first = max(0, min(last_tile, math.floor(low + slack)))
    last = max(first, min(last_tile, math.ceil(high - slack) - 1))
    return range(first, last + 1)


# --- the bytes ------------------------------------------------------------------------------------------


def encode_tile(layers: dict[str, list[TileFeature]], extent: int = EXTENT) -> bytes:
    """One vector tile with the given layers, in their order; layers without features are left out.

    Raises:
        TypeError: a property is neither str, bool, int nor float.
    """
    return encode_layers({name: features for name, features in layers.items() if features}, extent)


def decode_sequences(data: bytes, z: int, x: int, y: int) -> SequenceColumns:
    """The `sequence` layer of tile z/x/y, read into columns; a gzip-compressed tile is unpacked first.

    `is_pano` is true for the values true, 1 and "true". A feature without geometry, id or image id is a
    broken tile. Empty bytes, and a tile without that layer, hold no sequences.

    Raises:
        TileUnreadable: the bytes are no vector tile; the sentence names the tile and the fault.
    """
    try:
        layers = read_sequence_layers(_unpacked(data))
    except BrokenTile as fault:
        problem = str(fault)
    else:
        columns = SequenceColumns([], [], [], [], [], [], [], [])
        for layer in layers:
            columns.id.extend(layer.id)
            columns.image_id.extend(layer.image_id)
            columns.creator_id.extend(layer.creator_id)
            columns.quality_score.extend(layer.quality_score)
            columns.captured_at.extend(layer.captured_at)
            columns.is_pano.extend(layer.is_pano)
            for px, py in zip(layer.first_x, layer.first_y, strict=True):
                lon, lat = pixel_to_lonlat(x * layer.extent + px, y * layer.extent + py, z, layer.extent)
                columns.lon.append(lon)
                columns.lat.append(lat)
        return columns
    raise TileUnreadable(
        f"Tile {z}/{x}/{y} ({len(data)} bytes) is no readable vector tile: {problem}",
        "Delete its stored bytes and materialize coverage_tiles again to fetch it anew.",
    )


def _unpacked(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        plain = unzip.decompress(data, MAX_TILE_BYTES)
    except zlib.error as fault:
        raise BrokenTile(f"its gzip stream is damaged ({fault})") from None
    if not unzip.eof:
        raise BrokenTile("its gzip stream ends early or unpacks to more than 512 MB")
    return plain


def gzipped(tile: bytes) -> bytes:
    """A tile as a server with compressed storage keeps it; the same bytes every time."""
    return gzip.compress(tile, mtime=0)
