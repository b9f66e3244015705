"""The `image` layer of a zoom-14 coverage tile, counted: how many images are panoramic, how many are not.

Only for saying honestly what was left out; nothing is chosen from it. A plain walk over the protobuf wire
format (https://github.com/mapbox/vector-tile-spec, version 2.1), written for thousands of images, not for
millions.
"""

import gzip
from collections import Counter
from collections.abc import Iterator

from env_service.errors import GeoError

LAYER = b"image"
_LAYER, _NAME, _FEATURE, _KEY, _VALUE, _TAGS = 3, 1, 2, 3, 4, 2
_STRING = 1


def count_images(data: bytes, tile: str) -> Counter[str]:
    """Images of a tile by kind, `panoramic` or `perspective`.

    Raises:
        GeoError: the bytes are no vector tile.
    """
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    counts: Counter[str] = Counter()
    try:
        for number, layer in _fields(plain):
            if number == _LAYER and isinstance(layer, bytes):
                counts.update(_kinds(layer))
    except (IndexError, ValueError) as error:
        raise GeoError(
            f"Tile {tile} is no readable vector tile: {error}",
            "Delete its stored bytes and materialize coverage_tiles again to fetch it anew",
        ) from error
    return counts


def _kinds(layer: bytes) -> Iterator[str]:
    fields = list(_fields(layer))
    if (_NAME, LAYER) not in fields:
        return
    keys = [body for number, body in fields if number == _KEY]
    values = [_truth(body) for number, body in fields if number == _VALUE and isinstance(body, bytes)]
    for number, feature in fields:
        if number != _FEATURE or not isinstance(feature, bytes):
            continue
        tags = [tag for kind, body in _fields(feature) if kind == _TAGS for tag in _packed(body)]
        stated = {keys[key]: values[value] for key, value in zip(tags[::2], tags[1::2], strict=True)}
        yield "panoramic" if stated.get(b"is_pano") else "perspective"


def _truth(value: bytes) -> bool:
    for number, body in _fields(value):
        if number == _STRING:
            return body == b"true"
        return body == 1
    return False


def _packed(body: int | bytes) -> list[int]:
    if isinstance(body, int):
        return [body]
    found, position = [], 0
    while position < len(body):
        value, position = _varint(body, position)
        found.append(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        header, position = _varint(data, position)
        number, wire = header >> 3, header & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == 2:
            length, position = _varint(data, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire} at byte {position}")
        if position + length > len(data):
            raise ValueError(f"a record at byte {position} runs past the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"a number at byte {position} does not end")
