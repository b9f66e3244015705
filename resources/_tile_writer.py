"""Vector tile bytes, written field by field; the other half is `_tile_reader`.

Kept plain: the sandbox writes a few hundred features a tile, so speed is no concern here.
"""

import struct
from dataclasses import dataclass

EXTENT = 4096
POINT, LINE = 1, 2
_MOVE_TO, _LINE_TO = 1, 2

PropertyValue = str | bool | int | float


@dataclass(frozen=True)
class TileFeature:
    """A point or a line in tile pixels (x east, y down), with its properties.

    One point makes a point feature, more make a line. `feature_id` is the optional numeric id of the format.
    """

    points: tuple[tuple[int, int], ...]
    properties: dict[str, PropertyValue]
    feature_id: int | None = None


def encode_layers(layers: dict[str, list[TileFeature]], extent: int) -> bytes:
    """The tile message: one length-delimited layer after another."""
    return b"".join(_field(3, _layer(name, features, extent)) for name, features in layers.items())


def _layer(name: str, features: list[TileFeature], extent: int) -> bytes:
    keys: dict[str, int] = {}
    values: dict[tuple[str, PropertyValue], int] = {}
    encoded = []
    for feature in features:
        tags = []
        for key, value in feature.properties.items():
            tags.append(keys.setdefault(key, len(keys)))
            # Python holds True == 1 == 1.0 for one dictionary key; the format does not.
            tags.append(values.setdefault((type(value).__name__, value), len(values)))
        encoded.append(_feature(feature, tags))
    parts = [_field(1, name.encode())]
    parts += [_field(2, feature) for feature in encoded]
    parts += [_field(3, key.encode()) for key in keys]
    parts += [_field(4, _value(value)) for _, value in values]
    parts += [_varint(5 << 3) + _varint(extent), _varint(15 << 3) + _varint(2)]
    return b"".join(parts)


def _feature(feature: TileFeature, tags: list[int]) -> bytes:
    parts = [] if feature.feature_id is None else [_varint(1 << 3) + _varint(feature.feature_id)]
    parts.append(_field(2, b"".join(map(_varint, tags))))
    parts.append(_varint(3 << 3) + _varint(POINT if len(feature.points) == 1 else LINE))
    parts.append(_field(4, b"".join(map(_varint, _commands(feature.points)))))
    return b"".join(parts)


def _commands(points: tuple[tuple[int, int], ...]) -> list[int]:
    commands: list[int] = []
    last_x = last_y = 0
    for index, (x, y) in enumerate(points):
        if index == 0:
            commands.append(_MOVE_TO | 1 << 3)
        elif index == 1:
            commands.append(_LINE_TO | (len(points) - 1) << 3)
        commands += (_zigzag(x - last_x), _zigzag(y - last_y))
        last_x, last_y = x, y
    return commands


def _value(value: PropertyValue) -> bytes:
    if isinstance(value, bool):
        return _varint(7 << 3) + _varint(int(value))
    if isinstance(value, str):
        return _field(1, value.encode())
    if isinstance(value, int):
        if value >= 0:
            return _varint(5 << 3) + _varint(value)
        return _varint(6 << 3) + _varint(_zigzag(value))
    if isinstance(value, float):
        return _varint(3 << 3 | 1) + struct.pack("<d", value)
    raise TypeError(f"a tile property is str, bool, int or float, not {type(value).__name__}")


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
