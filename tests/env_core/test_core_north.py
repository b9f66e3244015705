"""True north through the whole of a backend, and the cap over what lies straight below the camera."""

import math

import numpy as np
import pytest
import simplejpeg

from env_service.imagery import MapillaryBackend
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task
from env_service.views import CAP_GRAY, NADIR_CAP_DEG, decode_jpeg, hide_nadir

COMPASS = [0.0, 37.0, 90.0, 180.0, 270.0, 359.5]
WHITE, GREEN = (255, 255, 255), (0, 255, 0)


def standing(compass_angle: float) -> Task:
    frame = Frame(image_id="f", lat=50.0, lon=4.0, compass_angle=compass_angle)
    return Task(
        task_index=0, task_id="t", country="Belgium", sequence_id="s", provider="mapillary", start_frame=0,
        frames=(frame,),
    )  # fmt: skip


def with_mark(width: int, compass_angle: float, color: tuple[int, int, int]) -> bytes:
    """A dark panorama with a mark one degree wide at true north, drawn column by column."""
    centres = (np.arange(width) + 0.5) / width * 360.0 - 180.0 + compass_angle
    away = np.abs((centres + 180.0) % 360.0 - 180.0)
    # A column on the mark's edge is lit by the share of it that the mark covers.
    light = np.clip((0.5 - away) / (360.0 / width) + 0.5, 0.0, 1.0)
    row = np.round(light[:, np.newaxis] * np.array(color)).astype(np.uint8)
    pano = np.broadcast_to(row, (width // 2, width, 3))
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pano), quality=95, colorsubsampling="444")
    return data


def middle_of_light(line: np.ndarray) -> float:
    light = np.where(line > 60, line, 0).astype(np.float64)
    return float((light * (np.arange(len(line)) + 0.5)).sum() / light.sum())


@pytest.mark.parametrize("compass_angle", COMPASS)
def test_a_mark_at_true_north_is_in_the_middle_of_look_0_and_not_in_look_90(tmp_path, compass_angle):
    store, task = PanoramaStore(tmp_path), standing(compass_angle)
    store.put("f", with_mark(2048, compass_angle, WHITE))
    store.put("f", with_mark(7680, compass_angle, GREEN), original=True)
    backend = MapillaryBackend(store)

    def look(heading: float, fov: float) -> np.ndarray:
        return decode_jpeg(backend.view(task, 0, heading, 0.0, fov))

    wide, close = look(0.0, 90.0), look(0.0, 30.0)
    for row in (100, 320, 540):
        assert abs(middle_of_light(wide[row, :, 0]) - 320.0) < 1.0
        assert abs(middle_of_light(close[row, :, 1]) - 320.0) < 1.0
    assert wide[320, 320].min() > 200, "the stored panorama"
    assert close[320, 320, 1] > 200 > 90 > close[320, 320, 0], "the original"
    for heading in (90.0, 180.0, 270.0):
        assert look(heading, 90.0).max() < 40
        assert look(heading, 30.0).max() < 40


def white_store(tmp_path, width=512) -> PanoramaStore:
    store = PanoramaStore(tmp_path)
    white = np.full((width // 2, width, 3), 255, np.uint8)
    store.put("f", simplejpeg.encode_jpeg(white))
    store.put("f", simplejpeg.encode_jpeg(white), original=True)
    return store


@pytest.mark.parametrize("fov", [30.0, 90.0, 120.0])
def test_the_cap_is_a_grey_disc_straight_below(tmp_path, fov):
    backend = MapillaryBackend(white_store(tmp_path, 2048))
    seen = decode_jpeg(backend.view(standing(77.0), 0, 200.0, -90.0, fov)).astype(int)
    edge = (np.arange(640) + 0.5) / 320.0 - 1.0
    far = np.degrees(np.arctan(np.hypot(*np.meshgrid(edge, edge)) * math.tan(math.radians(fov / 2))))
    assert np.abs(seen[far < NADIR_CAP_DEG - 1.0] - CAP_GRAY).max() < 40
    if (far > NADIR_CAP_DEG + 1.0).any():
        assert seen[far > NADIR_CAP_DEG + 1.0].min() > 215


def test_a_level_camera_of_90_degrees_never_sees_the_cap(tmp_path):
    store, task = white_store(tmp_path), standing(123.0)
    capped, bare = MapillaryBackend(store, nadir_cap_deg=45.0), MapillaryBackend(store, nadir_cap_deg=0.0)
    for heading in range(0, 360, 30):
        assert capped.view(task, 0, heading, 0.0, 90.0) == bare.view(task, 0, heading, 0.0, 90.0)
    assert capped.view(task, 0, 0, -30.0, 90.0) != bare.view(task, 0, 0, -30.0, 90.0)
    assert decode_jpeg(bare.view(task, 0, 0, -90.0, 90.0)).min() > 240


def test_backends_with_different_caps_share_a_cache_and_not_a_picture(tmp_path):
    store, task = white_store(tmp_path), standing(0.0)
    capped = MapillaryBackend(store)
    bare = MapillaryBackend(store, capped.cache, nadir_cap_deg=0.0)
    for _ in range(2):
        assert decode_jpeg(capped.view(task, 0, 0, -90, 90)).min() < 150
        assert decode_jpeg(bare.view(task, 0, 0, -90, 90)).min() > 240


@pytest.mark.parametrize(("radius", "rows"), [(0.0, 0), (0.05, 0), (0.1, 1), (18.0, 100), (90.0, 500)])
def test_rows_count_by_their_centres(radius, rows):
    pano = np.zeros((1000, 4, 3), np.uint8)
    hide_nadir(pano, radius)
    assert int((pano == CAP_GRAY).all(axis=(1, 2)).sum()) == rows
    assert rows == 0 or pano[-1].min() == CAP_GRAY


def test_logos_of_real_contributors_lie_under_the_cap(shared):
    for path in sorted((shared / "data" / "mapillary" / "panos").glob("*.jpg")):
        pano = decode_jpeg(path.read_bytes())
        # Their disc is black with white letters: more than half of a row's pixels are near black.
        black = (pano.max(axis=2) < 40).mean(axis=1) > 0.5
        first = int(np.flatnonzero(black & (np.arange(len(pano)) > 700))[0])
        radius = 180.0 * (1.0 - first / len(pano))
        assert 25.0 < radius < NADIR_CAP_DEG - 1.0
