"""The panorama store: what goes in is whole, what is there stays, what is missing is named."""

import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import simplejpeg

from env_service import store as store_module
from env_service.canonical import sha256_hex
from env_service.errors import GeoError
from env_service.store import BadImageId, BadPicture, MissingFrame, PanoramaStore, StoreFull, StoreUnwritable


def jpeg(height=64, width=128, seed=0) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(noise)


@pytest.fixture(params=["folder", "file", "memory"])
def store(request, tmp_path):
    address = {
        "folder": str(tmp_path / "panos"),
        "file": f"file://{tmp_path}/panos",
        "memory": f"memory://{tmp_path.name}",
    }[request.param]
    return PanoramaStore(address)


def test_put_and_get(store):
    data, original = jpeg(), jpeg(96, 192)
    assert store.put("123_a-B", data) == sha256_hex(data) == store.sha256("123_a-B")
    assert store.put("123_a-B", original, original=True) == sha256_hex(original)
    assert store.get("123_a-B") == data
    assert store.get("123_a-B", original=True) == original
    assert store.exists("123_a-B")
    assert not store.exists("124")
    store.put("0", data)
    assert store.list_ids() == ["0", "123_a-B"]
    assert store.list_ids(original=True) == ["123_a-B"]


def test_an_absent_store_is_empty(store):
    assert store.list_ids() == []
    assert not store.exists("1")


def test_a_missing_frame_names_frame_and_store(store):
    with pytest.raises(MissingFrame) as caught:
        store.get("424242")
    assert "424242" in str(caught.value)
    assert store.url in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.image_id, again.store, str(again)) == ("424242", store.url, str(caught.value))
    with pytest.raises(MissingFrame, match="the original of frame 424242"):
        store.get("424242", original=True)


@pytest.mark.parametrize(
    "image_id", ["", "../secret", "a/b", "a.b", "x" * 65, "..", "/etc/passwd", "a\n", "a\x00", "é", None, 7]
)
def test_ids_that_could_leave_the_folder_are_refused(store, image_id):
    for call in (store.get, store.exists, store.sha256, lambda i: store.put(i, jpeg())):
        with pytest.raises(BadImageId):
            call(image_id)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (jpeg()[:-300], "not a complete JPEG"),
        (jpeg()[:-2], "not a complete JPEG"),
        (b"", "not a complete JPEG"),
        (b"<html>403</html>", "not a complete JPEG"),
        (jpeg(64, 100), "twice as wide as high"),
    ],
)
def test_bad_pictures_are_never_visible(store, data, why):
    good = jpeg(seed=1)
    store.put("1", good)
    for image_id in ("1", "2"):
        with pytest.raises(BadPicture, match=why):
            store.put(image_id, data)
    assert store.get("1") == good
    assert store.list_ids() == ["1"]


def test_a_photograph_need_not_be_a_panorama(store):
    store.put("7", jpeg(64, 100), panorama=False)
    assert store.exists("7")


def test_a_decompression_bomb_is_refused_by_its_header(store, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_PIXELS", 1000)
    with pytest.raises(BadPicture, match="more than is decoded"):
        store.put("1", jpeg())


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, fault):
    store = PanoramaStore(tmp_path)
    before = jpeg()
    store.put("1", before)

    def full(_descriptor):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", full)
    for image_id in ("1", "2"):
        with pytest.raises(StoreFull, match=f"has no room for frame {image_id}"):
            store.put(image_id, jpeg(seed=2))
    monkeypatch.undo()
    assert store.get("1") == before
    assert [path.name for path in tmp_path.iterdir()] == ["1.jpg"]


def test_a_real_limit_on_file_size_loses_nothing(tmp_path):
    """The kernel's own refusal, in a process of its own: files may grow to 2 kB there."""
    PanoramaStore(tmp_path).put("1", jpeg())
    script = """
import resource, signal, sys
from env_service.store import PanoramaStore, StoreFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = PanoramaStore(sys.argv[1])
data = store.get("1")
assert len(data) > 2048
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
try:
    store.put("2", data)
except StoreFull as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "has no room for frame 2" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["1.jpg"]


def test_other_write_faults_are_told_apart(tmp_path):
    (tmp_path / "panos").write_text("a file where the folder should be")
    with pytest.raises(StoreUnwritable):
        PanoramaStore(tmp_path / "panos").put("1", jpeg())


def test_a_partial_file_of_a_killed_writer_is_not_listed(tmp_path):
    store = PanoramaStore(tmp_path)
    store.put("1", jpeg())
    (tmp_path / ".2.jpg.xyz.part").write_bytes(b"half")
    assert store.list_ids() == ["1"]


def test_free_bytes_are_those_of_the_nearest_existing_folder(tmp_path):
    free = PanoramaStore(tmp_path / "not" / "yet").free_bytes()
    assert free is not None
    assert free > 0
    assert PanoramaStore("memory://x").free_bytes() is None


def test_an_unknown_address_says_what_to_do():
    with pytest.raises(GeoError, match="cannot be opened"):
        PanoramaStore("nosuch://bucket/x")


def test_recorded_panoramas_are_accepted(shared, tmp_path):
    store = PanoramaStore(tmp_path)
    pictures = sorted((shared / "data" / "mapillary" / "panos").glob("*.jpg"))
    for picture in pictures:
        store.put(picture.stem, picture.read_bytes())
    assert store.list_ids() == sorted(picture.stem for picture in pictures)
