"""Faults between the stages and what they stand on: altered logs and pictures, stores that are none, two
writers at once, changed rules, an address that redirects."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from data_lab import SMALL, Chain, compute, settings_for

from env_service.canonical import sha256_file
from env_service.errors import GeoError
from env_service.store import PanoramaStore
from geo_assets.config.settings import TilesSpec
from geo_assets.data import _store as store_module
from geo_assets.data._journal import DamagedLine, lock_of, sealed, unsealed
from geo_assets.data._mirror import Wanted
from geo_assets.data._store import StoreUnusable, altered, move_on, open_store, rotation, sizes
from geo_assets.data._tile_log import read_index, tile_path
from geo_assets.data.candidate_sequences import candidate_sequences
from geo_assets.data.coverage_tiles import CoverageIncomplete, coverage_tiles
from geo_assets.data.eval_mirror import eval_mirror
from geo_assets.data.mirrored_panoramas import mirror_shard, mirrored_panoramas, plan, verify
from geo_assets.data.task_pool import task_pool
from geo_assets.data.task_split import task_split
from geo_assets.lineage import single_writer as lock_module
from geo_assets.lineage.assets import GeoAsset, Stage, StageRun
from geo_assets.lineage.single_writer import BeingWritten, single_writer


def _run(stage: Stage, name: str = "mirrored_panoramas") -> StageRun:
    return StageRun(stage, name, lambda text: None)


def _flip(path: Path) -> None:
    """Another byte in the middle: the same size, and still the beginning and end of a JPEG."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(bytes(data))


# --- pictures that are not what was stored --------------------------------------------------------------


def test_a_picture_altered_in_its_size_is_named_and_fetched_again(
    chain: Chain, home_of: Callable[..., Stage]
) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    store = stage.settings.home / "mirrored_panoramas" / "store"
    for pattern in ("*[0-9].jpg", "*.orig.jpg"):
        for path in sorted(store.glob(pattern))[1::3]:
            whole = sha256_file(path)
            _flip(path)
            check = verify(_run(stage))
            assert not check.passed and check.metadata["changed"] == 1
            assert check.metadata["faults"].split()[0] == path.name.split(".")[0]
            assert plan(_run(stage)) == 1, "it is outstanding"
            compute(mirrored_panoramas, stage)
            assert sha256_file(path) == whole and verify(_run(stage)).passed
            break
    for name in ("tasks.jsonl", "manifest.json", "_asset.json"):
        ours, calm = (
            home / "mirrored_panoramas" / name for home in (stage.settings.home, chain.stage.settings.home)
        )
        assert sha256_file(ours) == sha256_file(calm)


def test_a_split_is_not_mirrored_over_an_altered_picture(home_of: Callable[..., Stage]) -> None:
    stage = home_of("mirrored_panoramas", "eval_split", "eval_mirror")
    made = compute(eval_mirror, stage)["eval_mirror"]
    assert made.checks[0].passed
    for path in (stage.settings.home / "mirrored_panoramas" / "store").glob("*.jpg"):
        path.write_bytes(b"x" * path.stat().st_size)
    made = compute(eval_mirror, stage)["eval_mirror"]
    assert not made.checks[0].passed and made.checks[0].metadata["changed"] == len(
        made.checks[0].metadata["faults"].split(", ")
    )


def test_a_hash_altered_in_a_shards_log_is_refused_by_line(home_of: Callable[..., Stage]) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    log = min((stage.settings.home / "mirrored_panoramas" / "verified").glob("shard-*.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    digest = unsealed(lines[1].rstrip(b"\n"))["sha256"].encode()
    log.write_bytes(b"".join([lines[0], lines[1].replace(digest, digest[::-1]), *lines[2:]]))
    for step in (plan, lambda run: mirror_shard(run, 0), verify):
        with pytest.raises(DamagedLine, match=rf"{log.name}:2 is not what was written.*Remove that line"):
            step(_run(stage))
    log.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert plan(_run(stage)) == 1, "only that picture is fetched again"


@pytest.mark.parametrize("entry", [{"image_id": "1"}, {"original": False}, {"image_id": "1", "original": 0}])
def test_a_log_line_without_its_fields_is_refused_by_line(
    entry: dict[str, Any], home_of: Callable[..., Stage]
) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    log = min((stage.settings.home / "mirrored_panoramas" / "verified").glob("shard-*.jsonl"))
    number = log.read_bytes().count(b"\n") + 1
    for more in ({}, {"bytes": "x", "sha256": "a"}):
        with log.open("ab") as stream:
            stream.write(sealed({**entry, **more}))
        with pytest.raises(DamagedLine, match=rf"{log.name}:{number} "):
            plan(_run(stage))
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))


def test_a_large_store_is_seen_in_turns_until_all_has_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOCAL_BYTES", 1000)
    store, items = PanoramaStore(tmp_path), [Wanted(str(n)) for n in range(200)]
    seen: list[Wanted] = []
    for turn in range(4):
        share = rotation(tmp_path, 3500, store)
        assert (share.parts, share.turn) == (4, turn)
        seen += [item for item in items if share.due(item)]
        move_on(tmp_path, share)
    assert sorted(seen) == sorted(items), "each once"
    assert rotation(tmp_path, 3500, store).turn == 0


def test_a_share_with_a_fault_stays_due(
    home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    folder = stage.settings.home / "mirrored_panoramas"
    total = sum(path.stat().st_size for path in (folder / "store").glob("*.jpg"))
    monkeypatch.setattr(store_module, "LOCAL_BYTES", total // 2)
    hashed = []
    for path in (folder / "store").glob("*.jpg"):
        _flip(path)
    for _ in range(2):
        check = verify(_run(stage))
        assert not check.passed
        hashed.append((check.metadata["hashed_again"], check.metadata["share_hashed"]))
    assert hashed[0] == hashed[1]
    assert plan(_run(stage)) == check.metadata["changed"] < len(list((folder / "store").glob("*.jpg")))


def test_altered_pictures_of_any_store_are_told(tmp_path: Path, chain: Chain) -> None:
    picture = next((chain.folder("mirrored_panoramas") / "store").glob("*[0-9].jpg"))
    for url in (str(tmp_path / "store"), "memory://altered"):
        store = open_store(url)
        digest = store.put("1", picture.read_bytes())
        assert altered(store, {Wanted("1"): digest}) == []
        assert altered(store, {Wanted("1"): "0" * 64, Wanted("2"): digest}) == [Wanted("1"), Wanted("2")]
        assert [sizes(store)(Wanted(name)) for name in "12"] == [picture.stat().st_size, -1]


# --- stores that are none -------------------------------------------------------------------------------


def _unusable(tmp_path: Path) -> list[str]:
    (tmp_path / "file").write_text("")
    return [
        str(tmp_path / "file"),
        str(tmp_path / "file" / "deeper" / "store"),
        "s3://bucket/x",
        "nowhere://x",
    ]


@pytest.mark.parametrize("which", range(4))
def test_an_unusable_store_is_one_sentence_with_its_address(
    which: int, tmp_path: Path, home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    url = _unusable(tmp_path)[which]
    stage = home_of("task_pool", "eval_split", "mirrored_panoramas")
    stage = replace(stage, settings=replace(stage.settings, store_url=url))
    for step in (plan, lambda run: mirror_shard(run, 0), verify, lambda run: compute(eval_mirror, stage)):
        with pytest.raises(GeoError) as caught:
            step(_run(stage))
        assert url in str(caught.value) and caught.value.fix
        assert "\n" not in str(caught.value)


def test_a_store_one_may_not_write_is_refused_before_anything_is_fetched(
    home_of: Callable[..., Stage],
) -> None:
    stage = home_of("task_pool")
    stage = replace(stage, settings=replace(stage.settings, store_url="/proc/panoramas"))
    with pytest.raises(StoreUnusable, match=r"store /proc/panoramas cannot be used.*GEO_STORE_URL"):
        plan(_run(stage))


# --- files of earlier stages ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "body", "stage_of"),
    [
        ("coverage_tiles/index.json", b'{"tiles": {"6/x/1": {"sha256": "0"}}}', candidate_sequences),
        ("coverage_tiles/index.json", b'{"tiles": [7]}', candidate_sequences),
        ("candidate_sequences/accounting.json", b'{"images": {"panoramic": "many"}}', task_pool),
        ("candidate_sequences/candidates.parquet", b"PAR1", task_pool),
        ("mirrored_panoramas/tasks.jsonl", b'{"foo":1}\n', task_split),
        ("mirrored_panoramas/tasks.jsonl", b'{"frames":[{"lat":"abc","lon":1}]}\n', task_split),
        ("mirrored_panoramas/tasks.jsonl", b"[]\n", task_split),
    ],
)
def test_an_earlier_stages_file_that_says_something_else_is_named(
    file: str, body: bytes, stage_of: GeoAsset, home_of: Callable[..., Stage]
) -> None:
    folder = file.split("/")[0]
    stage = home_of(*{"coverage_tiles", "candidate_sequences", folder})
    (stage.settings.home / file).write_bytes(body)
    with pytest.raises(GeoError, match=file.replace(".", r"\.")) as caught:
        compute(stage_of, stage)
    assert folder in caught.value.fix


# --- two writers ----------------------------------------------------------------------------------------


def test_the_second_writer_of_a_stage_is_refused(
    home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "PATIENCE_S", 0.05)
    stage = home_of("candidate_sequences", "task_pool", "mirrored_panoramas", "coverage_tiles")
    home = stage.settings.home
    shard = home / "mirrored_panoramas" / "verified" / "shard-001-of-002.jsonl"
    (home / "mirrored_panoramas" / "store" / ".half.part").write_bytes(b"still being written")
    tries: list[tuple[Path, Callable[[], object]]] = [
        (lock_of(home / "task_pool" / "journal.jsonl"), lambda: compute(task_pool, stage)),
        (lock_of(shard), lambda: plan(_run(stage))),
        (home / "coverage_tiles" / ".writer.lock", lambda: compute(coverage_tiles, stage)),
    ]
    for lock, second in tries:
        with (
            single_writer(lock, "the first"),
            pytest.raises(BeingWritten, match=r"is being written by process \d+.*Wait"),
        ):
            second()
    assert (home / "mirrored_panoramas" / "store" / ".half.part").exists()
    plan(_run(stage))
    assert not (home / "mirrored_panoramas" / "store" / ".half.part").exists()


# --- coverage -------------------------------------------------------------------------------------------


@pytest.fixture
def redirecting() -> Iterator[str]:
    """Address of a server that sends everybody elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_redirect_is_not_taken_for_no_coverage(redirecting: str, tmp_path: Path) -> None:
    specs = replace(SMALL, tiles=TilesSpec(boxes=((0.0, 46.0, 9.0, 50.0),)))
    with pytest.raises(CoverageIncomplete, match=r"mostly for this reason: HTTP 302, a redirect"):
        compute(coverage_tiles, Stage(settings_for(tmp_path, url=redirecting), specs))
    assert not list((tmp_path / "coverage_tiles" / "tiles").iterdir())


def test_a_tile_altered_in_its_size_is_asked_for_again(home_of: Callable[..., Stage]) -> None:
    stage = home_of("coverage_tiles")
    folder = stage.settings.home / "coverage_tiles"
    index = read_index(folder)
    path = next(path for path in (tile_path(folder, name) for name in index.values()) if path.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[::-1])
    made = compute(coverage_tiles, stage)["coverage_tiles"]
    assert made.metadata["tiles_asked"] == 1 and path.read_bytes() == whole
