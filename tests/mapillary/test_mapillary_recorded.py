"""Real recorded rows, tiles and pictures through the same server and the same client."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from env_service.errors import GeoError
from env_service.geodesy import haversine_km
from resources.mapillary import MapillaryClient, NotFound
from resources.mapillary_frames import UsableFrame, usable_frame
from resources.sandbox.faults import Faults
from resources.sandbox.links import LinkSigner
from resources.sandbox.mapillary_app import SANDBOX_TOKEN, Habits, MapillaryApp
from resources.sandbox.mapillary_server import MapillaryServer
from resources.sandbox.rate_limit import RateWindow
from resources.sandbox.recorded import RecordedCatalogue
from resources.vector_tiles import decode_sequences, tile_bounds

TILES = ((14, 8609, 5642), (14, 12916, 8132))


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "data" / "mapillary"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[MapillaryClient]:
    app = MapillaryApp(
        RecordedCatalogue(folder), LinkSigner(3600), RateWindow(0), Faults(0.0), Habits(dense_limit=60)
    )
    server = MapillaryServer(app)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield MapillaryClient(server.url, server.url, SANDBOX_TOKEN, attempts=2, backoff_s=0.01)
    server.shutdown()
    server.server_close()


def test_tiles_come_byte_for_byte_and_lead_to_every_frame(client: MapillaryClient, folder: Path) -> None:
    frames, drives = 0, 0
    for z, x, y in TILES:
        data = client.tile(z, x, y)
        assert data == (folder / "tiles" / str(z) / str(x) / f"{y}.mvt").read_bytes()
        for name, anchor in zip(
            *[getattr(decode_sequences(data, z, x, y), n) for n in ("id", "image_id")], strict=True
        ):
            ids = client.image_ids(name)
            assert anchor in ids
            frames += len(ids)
            drives += 1
    assert (drives, frames) == (28, 1892)
    assert client.tile(14, 1, 1) == b""


def test_the_panoramic_drive_is_playable_and_nine_frames_have_pictures(
    client: MapillaryClient, folder: Path
) -> None:
    z, x, y = TILES[0]
    columns = decode_sequences(client.tile(z, x, y), z, x, y)
    panoramic = [name for name, is_pano in zip(columns.id, columns.is_pano, strict=True) if is_pano]
    assert len(panoramic) == 1
    ids = client.image_ids(panoramic[0])
    frames = [usable_frame(entity, needs_picture=False) for entity in client.images(ids).values()]
    usable = [frame for frame in frames if isinstance(frame, UsableFrame)]
    assert len(usable) == len(ids) == 660
    assert {frame.camera_type for frame in usable} == {"spherical"}
    assert {frame.captured_at for frame in usable} == {"2024-07"}
    row = columns.id.index(panoramic[0])
    assert haversine_km(columns.lat[row], columns.lon[row], usable[0].lat, usable[0].lon) < 0.005
    pictured = [frame.image_id for frame in usable if frame.has_picture]
    assert sorted(pictured) == sorted(path.stem for path in (folder / "panos").glob("*.jpg"))
    assert client.picture(pictured[0]) == (folder / "panos" / f"{pictured[0]}.jpg").read_bytes()
    with pytest.raises(NotFound, match="no original"):
        client.picture(pictured[0], original=True)
    without = next(frame.image_id for frame in usable if not frame.has_picture)
    with pytest.raises(NotFound, match="no 2048"):
        client.picture(without)


def test_frames_come_in_the_order_of_the_drive(client: MapillaryClient, folder: Path) -> None:
    rows = pq.read_table(folder / "frames.parquet").to_pylist()
    name = rows[0]["sequence_id"]
    expected = sorted((r["sequence_index"], r["image_id"]) for r in rows if r["sequence_id"] == name)
    assert client.image_ids(name) == [image_id for _, image_id in expected]


def test_entities_state_what_was_recorded_and_nothing_else(client: MapillaryClient, folder: Path) -> None:
    row = pq.read_table(folder / "frames.parquet").to_pylist()[0]
    entity = client.image(row["image_id"])
    assert entity["geometry"] == {"type": "Point", "coordinates": [row["lon"], row["lat"]]}
    assert entity["creator"] == {"id": row["creator_id"]}
    assert entity["captured_at"] == row["captured_at"]
    assert not any(value is None for value in entity.values())
    assert "thumb_original_url" not in entity


def test_a_dense_search_finds_every_image_of_a_tile(client: MapillaryClient, folder: Path) -> None:
    west, south, east, north = tile_bounds(*TILES[0])
    rows = pq.read_table(folder / "frames.parquet").to_pylist()
    inside = {r["image_id"] for r in rows if west <= r["lon"] <= east and south <= r["lat"] <= north}
    assert len(inside) > 1000
    found = client.images_in_bbox(west, south, east, north, fields=("id",))
    assert {row["id"] for row in found} == inside
    assert client.counts["boxes split"] > 10


def test_flat_drives_are_listed_as_a_data_set(client: MapillaryClient) -> None:
    listed = requests.get(f"{client.base_url}/datasets/osv5m/sequences?limit=40", timeout=5).json()["data"]
    assert len(listed) == 27
    image = client.image(client.image_ids(listed[0]["id"])[0], ("is_pano", "camera_type"))
    assert image["camera_type"] == "perspective"


def test_a_folder_of_another_layout_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GeoError, match=r"no .*frames\.parquet.*GEO_RECORDED"):
        RecordedCatalogue(tmp_path)
    pq.write_table(pa.table({"image_id": ["1"]}), tmp_path / "frames.parquet")
    with pytest.raises(GeoError, match="lacks the columns"):
        RecordedCatalogue(tmp_path)


def test_ids_are_no_way_out_of_the_folder(folder: Path) -> None:
    catalogue: Any = RecordedCatalogue(folder)
    for name in ("../frames", "..", "/etc/passwd", ""):
        assert catalogue.picture(name, "2048") is None
        assert catalogue.entity(name) is None
