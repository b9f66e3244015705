"""Vector tiles: the decoder against a general one, damage, and tile arithmetic."""

import gzip
import math
import struct
from pathlib import Path

import mapbox_vector_tile
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.errors import GeoError
from resources.vector_tiles import (
    TileFeature,
    TileId,
    TileUnreadable,
    decode_sequences,
    encode_tile,
    gzipped,
    lonlat_to_tile,
    pixel_to_lonlat,
    tile_bounds,
    tiles_covering,
)

BEYOND_FLOAT = 2**53 + 1


def feature(points: tuple[tuple[int, int], ...] = ((10, 20), (30, 40)), **properties: object) -> TileFeature:
    return TileFeature(points, {"id": "s" * 22, "image_id": BEYOND_FLOAT, **properties})  # type: ignore[arg-type]


def as_general_decoder_sees(data: bytes, z: int, x: int, y: int) -> list[dict[str, object]]:
    layer = mapbox_vector_tile.decode(data, default_options={"y_coord_down": True}).get("sequence")
    rows = []
    for found in layer["features"] if layer else []:
        stated, geometry = found["properties"], found["geometry"]
        first = geometry["coordinates"]
        while isinstance(first[0], list | tuple):
            first = first[0]
        lon, lat = pixel_to_lonlat(x * 4096 + first[0], y * 4096 + first[1], z)
        rows.append(
            {
                "id": stated["id"],
                "image_id": str(stated["image_id"]),
                "creator_id": str(stated.get("creator_id", "")),
                "quality_score": stated.get("quality_score"),
                "captured_at": stated.get("captured_at"),
                "is_pano": stated.get("is_pano") in (True, 1, "true"),
                "lon": lon,
                "lat": lat,
            }
        )
    return rows


def as_we_see(data: bytes, z: int, x: int, y: int) -> list[dict[str, object]]:
    columns = decode_sequences(data, z, x, y)
    return [{name: getattr(columns, name)[row] for name in vars(columns)} for row in range(len(columns))]


points = st.lists(
    st.tuples(st.integers(-200, 4300), st.integers(-200, 4300)), min_size=2, max_size=5, unique=True
)
properties = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=22),
        "image_id": st.integers(1, 2**63 - 1),
        "is_pano": st.sampled_from([True, False, 1, 0, "true", "false", "True"]).filter(
            lambda v: v != "True"
        ),
    },
    optional={
        "creator_id": st.integers(1, 2**62),
        "quality_score": st.one_of(st.floats(0, 1), st.integers(0, 1)),
        "captured_at": st.integers(-(10**12), 4 * 10**12),
        "organization_id": st.integers(0, 10**9),
        "note": st.text(max_size=5),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.builds(lambda p, q: TileFeature(tuple(p), q), points, properties), max_size=8), st.booleans()
)
def test_decoder_agrees_with_a_general_one(features: list[TileFeature], with_images: bool) -> None:
    layers = {"sequence": features}
    if with_images:
        layers = {"image": [TileFeature(((1, 2),), {"id": 7, "is_pano": True}, feature_id=7)], **layers}
    data = encode_tile(layers)
    assert as_we_see(data, 6, 33, 22) == as_general_decoder_sees(data, 6, 33, 22)


def test_recorded_tiles_read_as_by_a_general_decoder(shared: Path) -> None:
    paths = sorted((shared / "data" / "mapillary" / "tiles" / "14").glob("*/*.mvt"))
    assert paths
    for path in paths:
        z, x, y = 14, int(path.parent.name), int(path.stem)
        seen = as_we_see(path.read_bytes(), z, x, y)
        assert seen
        assert seen == as_general_decoder_sees(path.read_bytes(), z, x, y)
        west, south, east, north = tile_bounds(z, x, y)
        assert all(west <= row["lon"] <= east and south <= row["lat"] <= north for row in seen)  # type: ignore[operator]


def test_written_tiles_read_by_a_general_decoder_keep_ids_and_types() -> None:
    data = encode_tile({"sequence": [feature(is_pano=True, quality_score=0.25, captured_at=-5)]})
    stated = mapbox_vector_tile.decode(data)["sequence"]["features"][0]["properties"]
    assert stated == {
        "id": "s" * 22, "image_id": BEYOND_FLOAT, "is_pano": True, "quality_score": 0.25, "captured_at": -5,
    }  # fmt: skip


def test_y_points_down_so_a_larger_y_is_further_south() -> None:
    columns = decode_sequences(
        encode_tile({"sequence": [feature(((0, 100), (1, 1))), feature(((0, 4000), (1, 1)))]}), 6, 33, 22
    )
    assert columns.lat[0] > columns.lat[1]


@pytest.mark.parametrize("stated", [True, 1, "true", 1.0])
def test_is_pano_is_true_for_every_spelling(stated: object) -> None:
    assert decode_sequences(encode_tile({"sequence": [feature(is_pano=stated)]}), 6, 0, 0).is_pano == [True]


@pytest.mark.parametrize("stated", [False, 0, "false", "", 2])
def test_is_pano_is_false_for_everything_else(stated: object) -> None:
    assert decode_sequences(encode_tile({"sequence": [feature(is_pano=stated)]}), 6, 0, 0).is_pano == [False]


def test_absent_values_are_none_and_ids_keep_every_digit() -> None:
    columns = decode_sequences(
        encode_tile({"sequence": [feature(), feature(creator_id="c1", quality_score=1)]}), 6, 0, 0
    )
    assert columns.image_id == ["9007199254740993"] * 2
    assert columns.creator_id == ["", "c1"]
    assert columns.quality_score == [None, 1.0]
    assert columns.captured_at == [None, None]


def test_gzip_empty_and_foreign_layers() -> None:
    data = encode_tile({"sequence": [feature()]})
    assert decode_sequences(gzipped(data), 6, 0, 0) == decode_sequences(data, 6, 0, 0)
    assert len(decode_sequences(b"", 6, 0, 0)) == 0
    assert len(decode_sequences(encode_tile({"image": [feature()]}), 6, 0, 0)) == 0


def test_unknown_fields_of_every_wire_type_are_stepped_over() -> None:
    data = encode_tile({"sequence": [feature()]})
    extra = b"\x78\x01" + b"\x71" + bytes(8) + b"\x6d" + bytes(4) + b"\x7a\x02ab"  # varint, 64, 32 bit, sized
    assert decode_sequences(extra + data + extra, 6, 0, 0).id == ["s" * 22]


@pytest.mark.parametrize(
    "data",
    [
        b"<html>not a tile</html>",
        b"\x1a\xff\x01short",
        encode_tile({"sequence": [feature()]})[:-9],
        gzipped(encode_tile({"sequence": [feature()]}))[:-12],
        b"\x1f\x8bnot gzip",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        encode_tile({"sequence": [TileFeature(((1, 1), (2, 2)), {"id": "only an id"})]}),
        encode_tile({"sequence": [TileFeature(((1, 1), (2, 2)), {"image_id": 5})]}),
        encode_tile({"sequence": [TileFeature((), {"id": "a", "image_id": 5})]}),
        encode_tile({"sequence": [TileFeature(((1, 1), (2, 2)), {"id": "a", "image_id": 1e300})]}),
        encode_tile({"sequence": [feature()]}).replace(b"s" * 22, b"\xff" * 22),
    ],
)
def test_damaged_tiles_are_one_error_that_names_the_tile(data: bytes) -> None:
    with pytest.raises(TileUnreadable, match="Tile 6/33/22 ") as caught:
        decode_sequences(data, 6, 33, 22)
    assert isinstance(caught.value, GeoError)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_ends_in_anything_but_that_error(data: st.DataObject) -> None:
    tile = bytearray(
        encode_tile({"sequence": [feature(is_pano=True, quality_score=0.5), feature(captured_at=3)]})
    )
    for _ in range(data.draw(st.integers(1, 6))):
        tile[data.draw(st.integers(0, len(tile) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(tile)))
    try:
        columns = decode_sequences(bytes(tile[:cut]), 6, 33, 22)
    except TileUnreadable as fault:
        assert "6/33/22" in str(fault)
    else:
        assert {len(getattr(columns, name)) for name in vars(columns)} == {len(columns)}


def test_a_feature_that_points_beyond_the_values_is_refused() -> None:
    tags, geometry = b"\x12\x02\x00\x63", b"\x22\x03\x09\x02\x02"
    body = tags + geometry
    layer = b"\x0a\x08sequence" + b"\x12" + bytes([len(body)]) + body + b"\x1a\x02id"
    with pytest.raises(TileUnreadable, match="not there"):
        decode_sequences(b"\x1a" + bytes([len(layer)]) + layer, 6, 0, 0)


def test_a_gzip_bomb_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resources.vector_tiles.MAX_TILE_BYTES", 1 << 16)
    with pytest.raises(TileUnreadable, match="gzip"):
        decode_sequences(gzip.compress(bytes(1 << 20)), 6, 0, 0)


def test_encoder_refuses_what_the_format_cannot_say() -> None:
    with pytest.raises(TypeError, match="bytes"):
        encode_tile({"sequence": [TileFeature(((1, 1),), {"id": b"raw"})]})  # type: ignore[dict-item]


def test_float_values_keep_their_eight_bytes() -> None:
    data = encode_tile({"sequence": [feature(quality_score=math.pi)]})
    assert struct.pack("<d", math.pi) in data
    assert decode_sequences(data, 6, 0, 0).quality_score == [math.pi]


# --- arithmetic -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lon", "lat", "z", "tile"),
    [
        (9.1653, 48.7640, 14, (14, 8609, 5642)),
        (103.8139, 1.3159, 14, (14, 12916, 8132)),
        (-180.0, 85.06, 6, (6, 0, 0)),
        (180.0, -89.0, 6, (6, 63, 63)),
        (0.0, 0.0, 1, (1, 1, 1)),
    ],
)
def test_positions_fall_into_known_tiles(lon: float, lat: float, z: int, tile: tuple[int, int, int]) -> None:
    assert lonlat_to_tile(lon, lat, z) == TileId(*tile)


@given(st.integers(0, 16).flatmap(lambda z: st.tuples(st.just(z), *[st.integers(0, (1 << z) - 1)] * 2)))
def test_a_tile_covers_its_own_bounds_alone_and_holds_its_middle(tile: tuple[int, int, int]) -> None:
    west, south, east, north = tile_bounds(*tile)
    assert tiles_covering((west, south, east, north), tile[0]) == [tile]
    assert lonlat_to_tile((west + east) / 2, (south + north) / 2, tile[0]) == tile


@given(st.floats(-180, 180), st.floats(-85, 85), st.integers(0, 18))
def test_pixels_and_positions_are_inverse(lon: float, lat: float, z: int) -> None:
    tile = lonlat_to_tile(lon, lat, z)
    assert tile in tiles_covering((lon, lat, lon, lat), z)
    west, south, east, north = tile_bounds(*tile)
    assert west - 1e-9 <= lon <= east + 1e-9
    assert south - 1e-9 <= lat <= north + 1e-9


def test_the_world_and_a_box_across_the_date_line() -> None:
    assert len(tiles_covering((-180, -85.06, 180, 85.06), 6)) == 4096
    across = tiles_covering((179.0, -1.0, -179.0, 1.0), 6)
    assert sorted({tile.x for tile in across}) == [0, 63]
    assert len(across) == len(set(across)) == 4


@pytest.mark.parametrize("bbox", [(0, 1, 1, 0), (float("nan"), 0, 1, 1), (0, 0, float("inf"), 1)])
def test_boxes_that_are_none_are_refused(bbox: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="not a box"):
        tiles_covering(bbox, 6)


def test_tiles_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no tile 6/64/0"):
        tile_bounds(6, 64, 0)
