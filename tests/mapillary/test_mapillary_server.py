"""The stand-in server: its refusals, links, limits, faults, and its life as a process."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from env_service.canonical import sha256_hex
from env_service.store import PanoramaStore
from env_service.views import decode_jpeg
from resources.mapillary import (
    DenseBox,
    LinkExpired,
    MapillaryClient,
    NotFound,
    RateLimited,
    RequestLimiter,
    TokenRefused,
    UnexpectedAnswer,
)
from resources.processes import ServerProcess
from resources.sandbox.coverage import WorldCatalogue
from resources.sandbox.faults import LONGEST_STREAK, Faults
from resources.sandbox.links import LinkSigner
from resources.sandbox.mapillary_app import SANDBOX_TOKEN, Habits, MapillaryApp
from resources.sandbox.mapillary_server import MapillaryServer, main
from resources.sandbox.rate_limit import RateWindow
from resources.sandbox.world import World, WorldSpec
from resources.vector_tiles import decode_sequences, lonlat_to_tile

MODULE = "resources.sandbox.mapillary_server"
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def world() -> World:
    return World.build(WorldSpec(seed=3, pano_sequences=14, perspective_sequences=6, quirks=False))


@pytest.fixture
def serve(world: World) -> Iterator[Serve]:
    """Serves the small world with the given habits; returns the address."""
    servers: list[MapillaryServer] = []

    def start(
        *,
        links: LinkSigner | None = None,
        limits: RateWindow | None = None,
        faults: Faults | None = None,
        habits: Habits | None = None,
    ) -> str:
        app = MapillaryApp(
            WorldCatalogue(world),
            links or LinkSigner(3600),
            limits or RateWindow(0),
            faults or Faults(0.0),
            habits or Habits(),
        )
        servers.append(MapillaryServer(app))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1].url

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def harvest(client: MapillaryClient, world: World) -> dict[str, Any]:
    """What a pipeline takes: tiles, ids, entities (without their links, which differ) and one picture."""
    taken: dict[str, Any] = {}
    for each in world.sequences[:6]:
        tile = lonlat_to_tile(each.frames[0].lon, each.frames[0].lat, 6)
        taken[str(tile)] = client.tile(*tile)
        ids = client.image_ids(each.sequence_id)
        for image_id, entity in client.images(ids).items():
            taken[image_id] = {k: v for k, v in entity.items() if not k.startswith("thumb_")}
    return taken


def test_a_client_reads_the_world_as_it_is(serve: Serve, client_for: Any, world: World) -> None:
    client = client_for(serve(), SANDBOX_TOKEN)
    each = world.sequences[0]
    tile = lonlat_to_tile(each.frames[0].lon, each.frames[0].lat, 6)
    columns = decode_sequences(client.tile(*tile), *tile)
    assert each.sequence_id in columns.id
    assert client.image_ids(each.sequence_id) == [str(image_id) for image_id in each.image_ids]
    entity = client.image(str(each.image_ids[0]))
    assert entity["computed_geometry"]["coordinates"] == [each.frames[0].lon, each.frames[0].lat]
    assert entity["creator"] == {"username": each.creator_username, "id": str(each.creator_id)}
    assert client.tile(6, 0, 32) == b""
    assert client.image_ids("nobody") == []
    with pytest.raises(NotFound):
        client.image("123")
    with pytest.raises(UnexpectedAnswer, match="nonexisting field"):
        client.image(str(each.image_ids[0]), ("altitude",))


def test_only_what_is_asked_for_is_answered(serve: Serve, client_for: Any, world: World) -> None:
    client = client_for(serve(), SANDBOX_TOKEN)
    image_id = str(world.sequences[0].image_ids[0])
    assert client.image(image_id, ("camera_type",)) == {"id": image_id, "camera_type": "spherical"}
    found = client.images([image_id, "123"], ("id", "sequence"))
    assert found == {image_id: {"id": image_id, "sequence": world.sequences[0].sequence_id}}


@pytest.mark.parametrize(
    ("token", "habits", "words"),
    [
        ("nonsense", Habits(), "Failed to decode"),
        ("MLY|other|1", Habits(token="MLY|mine|1"), "Error validating application"),
    ],
)
def test_tokens_are_checked(token: str, habits: Habits, words: str, serve: Serve, client_for: Any) -> None:
    url = serve(habits=habits)
    with pytest.raises(TokenRefused, match=words):
        client_for(url, token).image_ids("a")
    with pytest.raises(TokenRefused, match="tile 6/1/2"):
        client_for(url, token).tile(6, 1, 2)


def test_a_missing_token_is_an_http_500_and_a_header_does_not_open_tiles(serve: Serve) -> None:
    url = serve()
    refused = requests.get(f"{url}/image_ids?sequence_id=a", timeout=5)
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, 190)
    headers = {"Authorization": f"OAuth {SANDBOX_TOKEN}"}
    tile = f"{url}/maps/vtp/mly1_public/2/6/33/22"
    assert requests.get(tile, headers=headers, timeout=5).status_code == 403
    assert requests.get(tile, params={"access_token": SANDBOX_TOKEN}, timeout=5).status_code in (200, 204)
    assert (
        requests.get(f"{url}/image_ids", params={"access_token": SANDBOX_TOKEN}, timeout=5).status_code == 200
    )


@pytest.mark.parametrize("address", ["5/1/1", "15/1/1", "6/64/1", "6/1", "6/a/1", "6/1/-1"])
def test_tiles_that_are_none_are_404(address: str, serve: Serve) -> None:
    url = f"{serve()}/maps/vtp/mly1_public/2/{address}"
    assert requests.get(url, params={"access_token": SANDBOX_TOKEN}, timeout=5).status_code == 404


def test_dense_boxes_are_refused_whatever_the_limit(serve: Serve, client_for: Any, world: World) -> None:
    url = serve(habits=Habits(dense_limit=4))
    frame = max(world.sequences, key=lambda each: len(each.frames)).frames[0]
    box = (frame.lon - 0.003, frame.lat - 0.003, frame.lon + 0.003, frame.lat + 0.003)
    query = {"bbox": ",".join(map(str, box)), "limit": 1, "access_token": SANDBOX_TOKEN}
    refused = requests.get(f"{url}/images", params=query, timeout=5)
    assert refused.status_code >= 400 and "reduce the amount of data" in refused.text
    found = {row["id"] for row in client_for(url, SANDBOX_TOKEN).images_in_bbox(*box, fields=("id",))}
    assert found == set(WorldCatalogue(world).images_in(box))
    assert len(found) > 4


def test_a_box_of_single_file_cannot_be_split_for_ever(serve: Serve, client_for: Any, world: World) -> None:
    frame = world.sequences[0].frames[0]
    with pytest.raises(DenseBox):
        client_for(serve(habits=Habits(dense_limit=0)), SANDBOX_TOKEN).images_in_bbox(
            frame.lon - 1e-5, frame.lat - 1e-5, frame.lon + 1e-5, frame.lat + 1e-5
        )


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def test_links_expire_and_cannot_be_altered(serve: Serve, client_for: Any, world: World) -> None:
    clock = Clock()
    client = client_for(serve(links=LinkSigner(60, clock)), SANDBOX_TOKEN)
    image_id = str(world.sequences[0].image_ids[0])
    link = client.picture_url(image_id)
    assert "/img/" in link and "oe=" in link and "oh=" in link
    picture = client.download(link)
    clock.now += 61
    with pytest.raises(LinkExpired, match="URL signature expired"):
        client.download(link)
    assert client.download(client.picture_url(image_id)) == picture
    other = str(world.sequences[1].image_ids[0])
    for altered in (link.replace(image_id, other), link.replace("oe=", "oe=f"), link.split("?")[0]):
        with pytest.raises(LinkExpired, match="Bad URL hash"):
            client.download(altered)


def test_pictures_are_panoramas_that_a_store_accepts_and_the_same_every_time(
    serve: Serve, client_for: Any, world: World, tmp_path: Path
) -> None:
    image_id = str(world.sequences[0].image_ids[0])
    client, again = client_for(serve(), SANDBOX_TOKEN), client_for(serve(), SANDBOX_TOKEN)
    store = PanoramaStore(str(tmp_path / "store"))
    small, large = client.picture(image_id), client.picture(image_id, original=True)
    store.put(image_id, small)
    store.put(image_id, large, original=True)
    assert decode_jpeg(small).shape == (1024, 2048, 3)
    assert decode_jpeg(large).shape == (1536, 3072, 3)
    assert sha256_hex(again.picture(image_id)) == sha256_hex(small)
    flat = str(world.sequences[-1].image_ids[0])
    assert decode_jpeg(client.picture(flat)).shape == (768, 1024, 3)


def test_the_request_limit_tells_when_to_come_back(serve: Serve, client_for: Any, world: World) -> None:
    clock = Clock()
    url = serve(limits=RateWindow(2, 60.0, clock))
    client = client_for(url, SANDBOX_TOKEN, longest_wait_s=10)
    client.image_ids("a")
    client.tile(6, 0, 32)
    with pytest.raises(RateLimited) as caught:
        client.image_ids("a")
    assert caught.value.retry_after_s == 60
    clock.now += 60.5
    assert client.image_ids("a") == []


def test_a_client_within_the_limit_never_meets_it(serve: Serve, client_for: Any) -> None:
    url = serve(limits=RateWindow(30, 1.0))
    client = client_for(url, SANDBOX_TOKEN, limiter=RequestLimiter(25 * 60))
    for _ in range(12):
        client.image_ids("a")
    assert "RateLimited" not in client.counts


def test_with_faults_a_harvest_gets_the_same_content(serve: Serve, client_for: Any, world: World) -> None:
    clean = harvest(client_for(serve(), SANDBOX_TOKEN), world)
    client = client_for(serve(faults=Faults(0.4, seed=5)), SANDBOX_TOKEN, attempts=LONGEST_STREAK + 1)
    assert harvest(client, world) == clean
    assert client.counts["retries"] > 3
    image_id = str(world.sequences[0].image_ids[0])
    url = serve(faults=Faults(1.0, seed=1))
    picture = client_for(url, SANDBOX_TOKEN, attempts=LONGEST_STREAK + 1).picture(image_id)
    assert picture.startswith(b"\xff\xd8\xff")
    stats = requests.get(f"{url}/sandbox/stats", timeout=5).json()
    assert any(name.startswith("fault ") for name in stats)


def test_faults_follow_the_seed_and_end() -> None:
    one, two, other = Faults(0.5, 1), Faults(0.5, 1), Faults(0.5, 2)
    first = [one.choose("graph", "/12") for _ in range(60)]
    assert first == [two.choose("graph", "/12") for _ in range(60)]
    assert first != [other.choose("graph", "/12") for _ in range(60)]
    streak = longest = 0
    for fault in (one.choose("picture", "/x") for _ in range(300)):
        streak = streak + 1 if fault else 0
        longest = max(longest, streak)
        assert fault != "expired" or streak == 1
    assert longest == LONGEST_STREAK
    assert Faults(0.0).choose("tile", "a") is None


def test_the_flat_data_set_is_listed(serve: Serve, client_for: Any, world: World) -> None:
    url = serve()
    listed = requests.get(f"{url}/datasets/osv5m/sequences?limit=4", timeout=5).json()["data"]
    assert len(listed) == 4
    client = client_for(url, SANDBOX_TOKEN)
    for row in listed:
        image = client.image(client.image_ids(row["id"])[0], ("camera_type", "is_pano"))
        assert image["camera_type"] == "perspective" and image["is_pano"] is False


# --- as a process ---------------------------------------------------------------------------------------


def test_it_starts_as_a_child_and_leaves_with_its_input(client_for: Any, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    size = ["--pano-sequences", "4", "--perspective-sequences", "2", "--request-log", str(log)]
    with ServerProcess(MODULE, size, name="Mapillary stand-in") as server:
        client = client_for(server.url, SANDBOX_TOKEN)
        assert client.tile(6, 0, 32) == b""
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert rows[0]["path"] == "/maps/vtp/mly1_public/2/6/0/32" and rows[0]["status"] == 204
    assert "sandbox|" not in log.read_text()


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", MODULE, "--pano-sequences", "3", "--perspective-sequences", "0"]
    with subprocess.Popen([*command, "--ready-file", str(ready)], stderr=subprocess.PIPE) as process:
        while not ready.exists() and process.poll() is None:
            time.sleep(0.02)
        facts = json.loads(ready.read_text())
        assert facts["url"] == f"http://127.0.0.1:{facts['port']}"
        process.terminate()
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None and process.stderr.read() == b""


def test_a_missing_folder_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recorded", str(tmp_path / "nowhere")]) == 1
    assert "Set GEO_RECORDED" in capsys.readouterr().err
