"""Views: the geometry, the same bytes everywhere, and the cache of decoded panoramas."""

import hashlib
import math
import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import simplejpeg

from env_service import views
from env_service._exact_angles import arctan2_exact
from env_service.views import (
    DECODES_AT_ONCE,
    PanoramaCache,
    UnreadablePicture,
    decode_jpeg,
    encode_jpeg,
    render_view,
)

SMALL = np.zeros((32, 64, 4), np.uint8)


def test_tables_are_counted_in_bytes_and_not_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent chooses pitch and field of view, so it can ask for any number of them, of any size."""
    tables = views._Tables(3_000_000)
    monkeypatch.setattr(views, "_table", tables.get)
    most, first = 0, render_view(SMALL, 0, 0, 10, 90, 256)
    for pitch in range(-90, 91, 3):
        for size in (64, 256, 500):
            render_view(SMALL, 0, 0, pitch, 90, size)
            most = max(most, tables.held_bytes)
            assert tables.held_bytes == sum(table.nbytes for table in tables._held.values())
    assert 2_000_000 < most <= 3_000_000
    assert (render_view(SMALL, 0, 0, 10, 90, 256) == first).all()
    huge = views._Tables(1000)
    assert huge.get(0.0, 90.0, 64, 64, 32).nbytes > 1000 and huge.held_bytes == 0


def test_the_servers_tables_stay_within_their_budget_at_the_largest_view() -> None:
    for pitch in (1.0, 2.0, 3.0, 4.0):
        render_view(SMALL, 0, 0, pitch, 90, views.MAX_SIZE_PX)
        assert views._TABLES.held_bytes <= views.TABLE_BYTES
    before = views._TABLES.get(4.0, 90.0, views.MAX_SIZE_PX, 64, 32)
    assert views._TABLES.get(4.0, 90.0, views.MAX_SIZE_PX, 64, 32) is before


COMPASS = [0.0, 37.0, 90.0, 180.0, 270.0, 359.5]


def column_of(bearing: float, compass_angle: float, width: int) -> float:
    """Where a direction lies in a panorama whose centre column faces `compass_angle`, in columns."""
    return ((bearing - compass_angle) / 360.0 % 1.0 * width + width / 2.0) % width


def marked(width: int, compass_angle: float, bearing: float = 0.0, half_deg: float = 1.0) -> np.ndarray:
    """A panorama with a soft bright stripe whose middle is at `bearing`, drawn by distance from it."""
    away = (np.arange(width) + 0.5 - column_of(bearing, compass_angle, width) + width / 2) % width - width / 2
    light = np.clip(1.0 - np.abs(away) / (half_deg / 360.0 * width), 0.0, 1.0)
    pano = np.zeros((width // 2, width, 4), np.uint8)
    pano[..., :3] = np.round(255 * light).astype(np.uint8)[np.newaxis, :, np.newaxis]
    return pano


def middle_of_light(line: np.ndarray) -> float:
    """Centre of mass of brightness along a line of pixels, in pixel-edge coordinates."""
    light = line.astype(np.float64)
    return float((light * (np.arange(len(line)) + 0.5)).sum() / light.sum())


@pytest.mark.parametrize("width", [2048, 7680])
@pytest.mark.parametrize("compass_angle", COMPASS)
def test_a_mark_at_true_north_is_in_the_middle_of_look_0(width, compass_angle):
    view = render_view(marked(width, compass_angle), compass_angle, 0.0, 0.0, 90.0)
    assert abs(middle_of_light(view[320, :, 0]) - 320.0) < 1.0


@pytest.mark.parametrize("fov", [10.0, 30.0, 44.9, 120.0])
@pytest.mark.parametrize("compass_angle", COMPASS)
def test_deep_zoom_does_not_move_the_middle(fov, compass_angle):
    view = render_view(marked(7680, compass_angle), compass_angle, 0.0, 0.0, fov)
    assert abs(middle_of_light(view[320, :, 0]) - 320.0) < 1.0


@pytest.mark.parametrize("heading", [0.0, 90.0, 211.3, -45.0, 725.5])
def test_any_heading_is_absolute(heading):
    pano = marked(2048, 126.27, bearing=heading)
    view = render_view(pano, 126.27, heading, 0.0, 90.0)
    assert abs(middle_of_light(view[320, :, 0]) - 320.0) < 1.0


def test_what_lies_to_the_east_is_on_the_right_and_where_the_tangent_says():
    view = render_view(marked(2048, 37.0, bearing=20.0), 37.0, 0.0, 0.0, 90.0)
    assert middle_of_light(view[320, :, 0]) == pytest.approx(320 + 320 * math.tan(math.radians(20)), abs=1.0)


def test_pitch_looks_up_and_the_horizon_is_in_the_middle():
    rows = np.zeros((1024, 2048, 4), np.uint8)
    rows[:512] = 255
    level = render_view(rows, 0, 0, 0, 90)
    assert level[:320].min() == 255
    assert level[320:].max() == 0
    assert render_view(rows, 0, 77, 90, 90).min() == 255
    assert render_view(rows, 0, 77, -90, 90).max() == 0
    up = render_view(rows, 0, 0, 20, 90)[:, 320, 0]
    horizon = 320 + 320 * math.tan(math.radians(20))
    assert np.flatnonzero(up == 0)[0] == pytest.approx(horizon, abs=1.0)


def reference(pano, compass, heading, pitch, fov, size):
    """The same view by plain trigonometry, pixel by pixel."""
    height, width = pano.shape[:2]
    edge = ((np.arange(size) + 0.5) / size * 2 - 1) * math.tan(math.radians(fov / 2))
    x, y = np.meshgrid(edge, -edge)
    p = math.radians(pitch)
    ahead, up = math.cos(p) - y * math.sin(p), math.sin(p) + y * math.cos(p)
    yaw = np.degrees(np.arctan2(x, ahead)) + heading - compass
    column = np.floor((yaw / 360 + 0.5) % 1.0 * width).astype(int) % width
    row = np.floor((0.5 - np.arctan2(up, np.hypot(x, ahead)) / math.pi) * height).astype(int)
    return pano[np.clip(row, 0, height - 1), column]


@pytest.mark.parametrize(
    ("heading", "pitch", "fov", "size"),
    [(0, 0, 90, 128), (183.2, 0, 90, 129), (77, 35, 60, 100), (12.3, -90, 100, 64), (300, 89, 120, 65)],
)
def test_agrees_with_plain_trigonometry(heading, pitch, fov, size):
    pano = np.zeros((512, 1024, 3), np.uint8)
    pano[..., 0] = np.arange(1024) // 4
    pano[..., 1] = (np.arange(512) // 2)[:, np.newaxis]
    got = render_view(pano, 41.0, heading, pitch, fov, size).astype(int)
    want = reference(pano, 41.0, heading, pitch, fov, size).astype(int)
    differing = (np.abs(got - want).max(axis=2) > 0).mean()
    assert differing < 0.005


def test_three_and_four_bytes_per_pixel_give_the_same_jpeg():
    noise = np.random.default_rng(3).integers(0, 255, (128, 256, 4), dtype=np.uint8)
    for heading in (0, 100, 200, 300):
        four = render_view(noise, 10, heading, 5, 90, 96)
        three = render_view(np.ascontiguousarray(noise[..., :3]), 10, heading, 5, 90, 96)
        assert np.array_equal(four[..., :3], three)
        assert encode_jpeg(four) == encode_jpeg(three)


DIGEST = """
import hashlib
import numpy as np
from env_service.views import encode_jpeg, render_view
ramp = (np.arange(1024 * 512 * 4, dtype=np.uint64) * 2654435761 >> 13).astype(np.uint8).reshape(512, 1024, 4)
digest = hashlib.sha256()
for heading, pitch, fov in ((0, 0, 90), (123.4, 12.5, 75), (275, -30, 30), (359.9, 90, 120), (9, -45, 45)):
    digest.update(encode_jpeg(render_view(ramp, 126.27, heading, pitch, fov)))
print(digest.hexdigest())
"""


def kernels_of_this_processor() -> str:
    """NumPy's faster kernels that this processor has, as its switch wants them: separated by blanks."""
    from numpy._core import _multiarray_umath as numpy_core

    has = numpy_core.__cpu_features__
    return " ".join(name for name in numpy_core.__cpu_dispatch__ if has[name])


@pytest.mark.parametrize("without", ["", "the processor's fast kernels"])
def test_the_same_bytes_in_another_process_and_on_another_processor(capsys, without):
    environment = dict(os.environ)
    if without:
        kernels = kernels_of_this_processor()
        assert kernels or platform.machine() != "x86_64"
        environment["NPY_DISABLE_CPU_FEATURES"] = kernels
    done = subprocess.run(
        [sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, env=environment
    )
    exec(compile(DIGEST, "digest", "exec"), {})
    assert capsys.readouterr().out == done.stdout


def test_eight_threads_make_the_same_bytes_as_one():
    pano = np.random.default_rng(0).integers(0, 255, (256, 512, 4), dtype=np.uint8)
    calls = [(h * 7.3 % 360, (h * 3) % 60 - 30, 40 + h % 60) for h in range(48)]
    alone = [hashlib.sha256(encode_jpeg(render_view(pano, 5, *call, 160))).hexdigest() for call in calls]
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(
            lambda c: hashlib.sha256(encode_jpeg(render_view(pano, 5, *c, 160))).hexdigest(), calls
        )
        assert list(together) == alone


def test_the_arctangent_is_right_to_the_last_bits_and_on_every_border():
    dice = np.random.default_rng(5)
    y, x = dice.normal(size=(2, 50_000)) * 10.0 ** dice.uniform(-6, 6, (2, 50_000))
    assert np.abs(arctan2_exact(y, x) - np.arctan2(y, x)).max() < 1e-15
    corners = [(y, x) for y in (-1.0, 0.0, 1.0) for x in (-1.0, 0.0, 1.0)]
    got = arctan2_exact(np.array([c[0] for c in corners]), np.array([c[1] for c in corners]))
    assert got == pytest.approx([math.atan2(*corner) for corner in corners], abs=1e-15)


def test_every_turn_of_a_panorama_is_the_same_view_turned():
    """A turn by whole columns is a roll of the panorama, wherever the view straddles its edge."""
    pano = np.random.default_rng(1).integers(0, 255, (64, 128, 4), dtype=np.uint8)
    for pitch in (0.0, 25.0, -90.0):
        for column in range(0, 128, 9):
            rolled = np.ascontiguousarray(np.roll(pano, -column, axis=1))
            there = render_view(rolled, 0.0, 0.0, pitch, 100.0, 48)
            assert np.array_equal(render_view(pano, 0.0, column * 360 / 128, pitch, 100.0, 48), there)


@pytest.mark.parametrize(
    "change",
    [
        {"heading_deg": math.nan}, {"compass_angle": math.inf}, {"pitch_deg": 90.5}, {"pitch_deg": math.nan},
        {"fov_deg": 9}, {"fov_deg": 121}, {"fov_deg": math.nan}, {"size_px": 0}, {"size_px": 100_000},
        {"pano": np.zeros((4, 8), np.uint8)}, {"pano": np.zeros((4, 8, 3), np.float32)},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(change):
    usual = {"pano": np.zeros((8, 16, 3), np.uint8), "compass_angle": 0, "heading_deg": 0, "pitch_deg": 0}
    with pytest.raises(ValueError):
        render_view(**(usual | {"fov_deg": 90, "size_px": 8} | change))


def test_encoding_carries_no_metadata():
    data = encode_jpeg(np.zeros((16, 16, 3), np.uint8))
    assert b"Exif" not in data
    assert b"Adobe" not in data
    assert decode_jpeg(data).shape == (16, 16, 3)
    with pytest.raises(UnreadablePicture):
        decode_jpeg(data[:-10])


def picture(height=32, seed=0) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (height, 2 * height, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(noise)


def test_the_cache_is_bounded_by_bytes_and_drops_the_least_recently_used():
    one = 32 * 64 * 4
    cache = PanoramaCache(max_bytes=2 * one + 10)
    for key in "abac":
        cache.get(key, picture)
    assert (len(cache), cache.held_bytes) == (2, 2 * one)
    assert (cache.hits, cache.misses) == (1, 3)
    cache.get("a", lambda: pytest.fail("a was used last but one and must be held"))
    cache.get("b", picture)
    assert cache.misses == 4
    big = cache.get("big", lambda: picture(200))
    assert big.shape == (200, 400, 4)
    assert cache.held_bytes <= cache.max_bytes


def test_cached_arrays_are_read_only_and_failures_are_not_kept():
    cache = PanoramaCache()
    with pytest.raises(ValueError, match="read-only"):
        cache.get("a", picture)[0, 0, 0] = 1
    with pytest.raises(UnreadablePicture):
        cache.get("b", lambda: b"no picture")
    with pytest.raises(KeyError):
        cache.get("b", lambda: {}["absent"])
    assert cache.get("b", picture).shape == (32, 64, 4)


def test_threads_that_want_the_same_panorama_load_it_once():
    cache, loads, together = PanoramaCache(), [], threading.Barrier(8)

    def load() -> bytes:
        loads.append(1)
        return picture(256)

    def want(_: int) -> int:
        together.wait()
        return cache.get("same", load).nbytes

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(want, range(8)))) == 1
    assert len(loads) == 1


def test_no_more_than_a_few_panoramas_are_decoded_at_a_time(monkeypatch):
    """What is being decoded is not yet counted, and an original is large."""
    cache, lock, together, most = PanoramaCache(), threading.Lock(), 0, 0
    several = threading.Event()

    def finish(_: np.ndarray) -> None:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
            if together == DECODES_AT_ONCE:
                several.set()
        several.wait(10)
        with lock:
            together -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: cache.get(key, picture, finish), range(8)))
    assert most == DECODES_AT_ONCE and len(cache) == 8


def test_pictures_that_are_dropped_give_their_memory_back():
    """Eighty panoramas through a cache of four, in eight threads, leave little behind."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after - before < 4 * 8 + 40, "MiB over what the cache may hold"


MEMORY = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from env_service.views import PanoramaCache, encode_jpeg
jpeg = encode_jpeg(np.full((1024, 2048, 3), 90, np.uint8))
cache = PanoramaCache(4 * 8 << 20)
def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
def want(number):
    cache.get(number, lambda: jpeg)
want(0)
before = held()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(want, range(80)))
print(before, held())
"""
