"""Imagery backends: what each can do, walking along frames, originals for deep zoom."""

import numpy as np
import pytest
import simplejpeg

from env_service.geodesy import destination, haversine_km
from env_service.imagery import Abilities, MapillaryBackend, Move, PerspectiveBackend
from env_service.store import BadPicture, MissingFrame, PanoramaStore, UnreadableFrame
from env_service.tasks import Frame, Task
from env_service.views import decode_jpeg


def drive(steps_m, is_pano=True) -> Task:
    lat, lon, frames = 50.0, 4.0, []
    for number, step in enumerate([0.0, *steps_m]):
        lat, lon = destination(lat, lon, 90.0, step / 1000.0)
        frames.append(Frame(image_id=f"f{number}", lat=lat, lon=lon, compass_angle=90.0, is_pano=is_pano))
    return Task(
        task_index=0, task_id="t", country="Belgium", sequence_id="s", provider="mapillary", start_frame=0,
        frames=tuple(frames),
    )  # fmt: skip


def flat(color, height=64, width=None) -> bytes:
    picture = np.full((height, width or 2 * height, 3), color, np.uint8)
    return simplejpeg.encode_jpeg(picture, quality=100, colorsubsampling="444")


@pytest.fixture
def store(tmp_path):
    store = PanoramaStore(tmp_path)
    store.put("f0", flat((255, 0, 0)))
    store.put("f1", flat((0, 255, 0)))
    store.put("f1", flat((0, 0, 255)), original=True)
    return store


def color_of(data: bytes) -> tuple[int, ...]:
    return tuple((decode_jpeg(data)[4, 4] > 128).astype(int))


def test_a_panorama_looks_and_a_lone_frame_does_not_move(store):
    backend = MapillaryBackend(store)
    assert backend.abilities(drive([3.3])) == Abilities(look=True, zoom=True, move=True)
    assert backend.abilities(drive([])) == Abilities(look=True, zoom=True, move=False)
    assert not backend.abilities(drive([3.3], is_pano=False)).look


def test_the_original_serves_below_45_degrees_where_there_is_one(store):
    backend, task = MapillaryBackend(store), drive([3.3])
    assert color_of(backend.view(task, 1, 0, 0, 45, 32)) == (0, 1, 0)
    assert color_of(backend.view(task, 1, 0, 0, 44, 32)) == (0, 0, 1)
    assert color_of(backend.view(task, 0, 0, 0, 44, 32)) == (1, 0, 0)


def test_a_missing_frame_is_named(store):
    with pytest.raises(MissingFrame, match="f2"):
        MapillaryBackend(store).view(drive([3, 3]), 2, 0, 0, 90)


UNUSABLE = {
    "square": (flat((9, 9, 9), 64, 64), "64x64 pixels; a full panorama is twice as wide as high"),
    "one column too many": (flat((9, 9, 9), 64, 129), "129x64"),
    "empty": (b"", "not a complete JPEG"),
    "torn": (flat((9, 9, 9))[:-40], "does not decode as JPEG"),
    "no picture": (b"<html>not found</html>", "not a complete JPEG"),
}


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_picture_that_cannot_be_shown_is_named_with_what_to_do(store, tmp_path, name, original):
    data, words = UNUSABLE[name]
    (tmp_path / ("f1.orig.jpg" if original else "f1.jpg")).write_bytes(data)
    backend, task = MapillaryBackend(store), drive([3])
    for _ in range(2):
        with pytest.raises(BadPicture, match="frame f1 in the store") as caught:
            backend.view(task, 1, 0, 0, 30 if original else 90)
        assert words in str(caught.value) and str(tmp_path) in str(caught.value) and caught.value.fix
        assert ("original" in str(caught.value)) == original
    assert backend.view(task, 0, 0, 0, 90)


def test_a_huge_picture_is_refused_by_its_header(store, tmp_path):
    data = flat((9, 9, 9))
    start = data.index(b"\xff\xc0") + 5
    (tmp_path / "f1.jpg").write_bytes(data[:start] + bytes.fromhex("4e209c40") + data[start + 4 :])
    with pytest.raises(BadPicture, match=r"frame f1 .* 40000x20000 pixels, more than is decoded"):
        MapillaryBackend(store).view(drive([3]), 1, 0, 0, 90)


def test_a_flat_photograph_among_panoramas_has_any_shape_and_must_decode(store, tmp_path):
    (tmp_path / "f0.jpg").write_bytes(flat((255, 0, 0), 64, 64))
    task = drive([], is_pano=False)
    for backend in (MapillaryBackend(store), PerspectiveBackend(store)):
        assert decode_jpeg(backend.view(task, 0, 0, 0, 90, 32)).shape == (32, 32, 3)
    (tmp_path / "f0.jpg").write_bytes(b"")
    for backend in (MapillaryBackend(PanoramaStore(tmp_path)), PerspectiveBackend(PanoramaStore(tmp_path))):
        with pytest.raises(BadPicture, match="frame f0"):
            backend.view(task, 0, 0, 0, 90, 32)


def test_a_frame_that_the_store_does_not_give_out_is_named(store, tmp_path):
    (tmp_path / "f2.jpg").mkdir()
    with pytest.raises(UnreadableFrame, match="frame f2 in the store"):
        MapillaryBackend(store).view(drive([3, 3]), 2, 0, 0, 90)


@pytest.mark.parametrize(
    ("meters", "frame"), [(0.1, 1), (10, 1), (14, 1), (16, 2), (20, 2), (26, 3), (45, 4), (1000, 4)]
)
def test_a_walk_ends_at_the_frame_nearest_to_the_distance_asked_for(store, meters, frame):
    task = drive([10, 10, 10, 10])
    move = MapillaryBackend(store).move(task, 0, "forward", meters)
    assert move.frame_index == frame
    assert move.moved_meters == pytest.approx(10 * frame, abs=0.01)


def test_walking_back_and_the_ends_of_the_drive(store):
    backend, task = MapillaryBackend(store), drive([3.3, 57.0])
    assert backend.move(task, 2, "backward", 10).moved_meters == pytest.approx(57.0, abs=0.01)
    assert backend.move(task, 2, "forward", 10) == Move(2, 0.0)
    assert backend.move(task, 0, "backward", 10) == Move(0, 0.0)
    assert [backend.can_move(task, i, "forward") for i in range(3)] == [True, True, False]
    assert [backend.can_move(task, i, "backward") for i in range(3)] == [False, True, True]
    first, last = task.frames[0], task.frames[2]
    assert 1000 * haversine_km(first.lat, first.lon, last.lat, last.lon) == pytest.approx(60.3, abs=0.01)


def test_a_photograph_neither_turns_nor_moves_and_keeps_its_shape(tmp_path):
    store, task = PanoramaStore(tmp_path), drive([3.3], is_pano=False)
    photo = np.zeros((300, 500, 3), np.uint8)
    photo[100:200, 167:333] = 255
    store.put("f0", simplejpeg.encode_jpeg(photo, quality=100), panorama=False)
    backend = PerspectiveBackend(store)
    assert backend.abilities(task) == Abilities(look=False, zoom=True, move=False)
    whole = backend.view(task, 0, 0, 0, 90, 320)
    assert whole == backend.view(task, 0, 77, 30, 90, 320) == backend.view(task, 0, 0, 0, 120, 320)
    assert decode_jpeg(whole).shape == (192, 320, 3)
    close = decode_jpeg(backend.view(task, 0, 0, 0, 30, 320))
    assert close.mean() > 200 > decode_jpeg(whole).mean()
    assert backend.move(task, 0, "forward", 10) == Move(0, 0.0)
    with pytest.raises(ValueError, match="fov_deg"):
        backend.view(task, 0, 0, 0, 5)


def test_bytes_do_not_depend_on_the_backend_object(store):
    task = drive([3.3])
    first = MapillaryBackend(store).view(task, 0, 12.5, -10, 80)
    assert first == MapillaryBackend(PanoramaStore(store.url)).view(task, 0, 12.5, -10, 80)
