"""The stages over a real server and a real Dagster instance: versions, checks, pages, reruns and kills."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from data_lab import CHAIN, Chain, compute
from PIL import Image

from env_service.canonical import sha256_file
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from geo_assets.data import task_split as split_module
from geo_assets.data._journal import sealed, unsealed
from geo_assets.data._mirror import NoRoom
from geo_assets.data._source import SANDBOX_TOKEN
from geo_assets.data.mirrored_panoramas import mirrored_panoramas, read_manifest
from geo_assets.data.task_pool import task_pool
from geo_assets.data.task_split import SplitBroken, task_split
from geo_assets.lineage.assets import AssetFolder, Stage

NAMES = [name for asset in CHAIN for name in asset.names]


@pytest.mark.parametrize("name", NAMES)
def test_dagster_records_the_versions_of_the_folder(chain: Chain, name: str) -> None:
    event = chain.instance.get_latest_materialization_event(dg.AssetKey(name))
    assert event is not None and event.asset_materialization is not None
    tags = event.asset_materialization.tags or {}
    published = AssetFolder(chain.stage.settings.home, name).built()
    assert published is not None
    assert tags["dagster/data_version"] == published.data_version
    (asset,) = [asset for asset in CHAIN if name in asset.names]
    assert tags["dagster/code_version"] == asset.code_version(chain.stage)
    for parent in asset.deps:
        above = AssetFolder(chain.stage.settings.home, parent).built()
        assert above is not None
        assert tags[f"dagster/input_data_version/{parent}"] == above.data_version


def test_every_declared_check_ran_and_passed_with_a_figure(chain: Chain) -> None:
    ran = {
        (e.asset_key.to_user_string(), e.check_name): e for e in chain.result.get_asset_check_evaluations()
    }
    declared = {(check.asset or asset.names[0], check.name) for asset in CHAIN for check in asset.checks}
    assert set(ran) == declared
    assert all(evaluation.passed and evaluation.metadata for evaluation in ran.values())


def test_pages_have_rows_schemas_and_small_pictures(chain: Chain) -> None:
    pictures = 0
    for name in NAMES:
        event = chain.instance.get_latest_materialization_event(dg.AssetKey(name))
        assert event is not None and event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert metadata["seconds"].value >= 0.0
        drawn = metadata.get("picture")
        if isinstance(drawn, dg.MarkdownMetadataValue):
            pictures += 1
            assert "data:image/" in str(drawn.md_str) and len(str(drawn.md_str)) < 300_000
        if name not in ("data_source_probe", "coverage_tiles", "eval_mirror", "train_mirror"):
            assert "dagster/column_schema" in metadata and "dagster/row_count" in metadata
    assert pictures >= 7


def test_descriptions_groups_and_owners_are_set(chain: Chain) -> None:
    for asset in CHAIN:
        for spec in asset.definition(chain.stage).specs:
            assert spec.group_name == "data" and spec.owners and spec.code_version
            assert spec.description is not None and "**Cost.**" in spec.description
            assert "dagster/code_references" in spec.metadata


def test_the_pool_keeps_its_promises(chain: Chain) -> None:
    tasks = read_tasks(chain.folder("task_pool") / "tasks.jsonl")
    spec = chain.stage.specs.pool
    assert len(tasks) == spec.target
    assert [task.task_id for task in tasks][:2] == ["pool-00000", "pool-00001"]
    assert max(Counter(task.country_code for task in tasks).values()) <= spec.per_country
    assert all(2 <= len(task.frames) <= spec.window_frames for task in tasks)
    assert all(task.start_frame == len(task.frames) // 2 for task in tasks)
    account = json.loads((chain.folder("task_pool") / "accounting.json").read_text())
    candidates = account["candidates"]
    assert candidates["total"] == candidates["became tasks"] + sum(
        sum(candidates[key].values()) for key in ("asked for and dropped", "not asked for")
    )
    assert account["frames"]["by fate"]["kept"] == sum(len(task.frames) for task in tasks)


def test_the_mirror_holds_every_picture_under_its_hash(chain: Chain) -> None:
    folder = chain.folder("mirrored_panoramas")
    store = PanoramaStore(chain.stage.settings.store_url)
    manifest = read_manifest(folder)
    tasks = read_tasks(folder / "tasks.jsonl")
    for task in tasks:
        assert task.meta["offline_ready"] is True
        for frame in task.frames:
            assert task.meta["sha256"][frame.image_id] == manifest["frames"][frame.image_id]
            assert store.sha256(frame.image_id) == manifest["frames"][frame.image_id]
    for image_id, digest in manifest["originals"].items():
        assert store.sha256(image_id, original=True) == digest
    with Image.open(io.BytesIO(store.get(tasks[0].start.image_id))) as picture:
        assert picture.size == (2048, 1024)


def test_split_mirrors_share_nothing(chain: Chain) -> None:
    sides = [read_manifest(chain.folder(name)) for name in ("eval_mirror", "train_mirror")]
    assert sides[0]["frames"] and sides[1]["frames"]
    assert not sides[0]["frames"].keys() & sides[1]["frames"].keys()
    for name, side in zip(("eval_split", "train_split"), sides, strict=True):
        tasks = read_tasks(chain.folder(name) / "tasks.jsonl")
        assert {frame.image_id for task in tasks for frame in task.frames} == side["frames"].keys()
        assert [task.task_index for task in tasks] == list(range(len(tasks)))
        assert tasks[0].task_id == f"{name.removesuffix('_split')}-00000"


def test_no_link_and_no_token_is_stored(chain: Chain) -> None:
    for path in chain.stage.settings.home.rglob("*"):
        if path.is_file() and path.suffix in {".json", ".jsonl", ".parquet"}:
            data = path.read_bytes()
            assert SANDBOX_TOKEN.encode() not in data and b"oh=" not in data and b"127.0.0.1" not in data, (
                path
            )


def _kill_when(process: "subprocess.Popen[bytes]", path: Path, lines: int) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    process.wait()


def test_a_pool_killed_twice_ends_with_the_same_bytes(
    chain: Chain, home_of: Callable[..., Stage], mapillary: str
) -> None:
    stage = home_of("candidate_sequences")
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from data_lab import SMALL, compute, settings_for, task_pool\n"
        "from geo_assets.lineage.assets import Stage\n"
        "compute(task_pool, Stage(settings_for(Path(sys.argv[1]), url=sys.argv[3]), SMALL))\n"
    )
    journal = stage.settings.home / "task_pool" / "journal.jsonl"
    command = [sys.executable, "-c", program, str(stage.settings.home), str(Path(__file__).parent), mapillary]
    for lines in (3, 6):
        _kill_when(subprocess.Popen(command, env=dict(os.environ)), journal, lines)
        assert not (stage.settings.home / "task_pool" / "_asset.json").exists()
    seen = journal.read_bytes().count(b"\n")
    assert seen >= 6
    compute(task_pool, stage)
    for name in ("tasks.jsonl", "accounting.json", "_asset.json", "journal.jsonl"):
        ours, calm = (home / "task_pool" / name for home in (stage.settings.home, chain.stage.settings.home))
        assert sha256_file(ours) == sha256_file(calm), name


def test_a_finished_pool_is_not_asked_for_again(home_of: Callable[..., Stage]) -> None:
    stage = home_of("candidate_sequences", "task_pool")
    path = stage.settings.home / "task_pool" / "tasks.jsonl"
    before = path.read_bytes()
    path.unlink()
    compute(task_pool, stage)
    assert path.read_bytes() == before


def test_a_damaged_mirror_fetches_only_what_it_lost(chain: Chain, home_of: Callable[..., Stage]) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    store = stage.settings.home / "mirrored_panoramas" / "store"
    pictures = sorted(store.glob("*.jpg"))
    whole = {path.name: sha256_file(path) for path in pictures}
    pictures[0].unlink()
    pictures[3].write_bytes(pictures[3].read_bytes()[:-9])
    (store / ".x.jpg.abc.part").write_bytes(b"left by a kill")
    kept = {path.name: path.stat().st_mtime_ns for path in pictures[4:]}
    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([mirrored_panoramas.definition(stage)], instance=instance)
    assert result.success
    event = instance.get_latest_materialization_event(dg.AssetKey("mirrored_panoramas"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["pictures_fetched"].value == 2
    assert {path.name: sha256_file(path) for path in store.iterdir()} == whole
    assert {path.name: path.stat().st_mtime_ns for path in pictures[4:]} == kept
    tags = event.asset_materialization.tags or {}
    calm = AssetFolder(chain.stage.settings.home, "mirrored_panoramas").built()
    assert calm is not None and tags["dagster/data_version"] == calm.data_version


def test_a_mirror_that_will_not_fit_is_refused_with_the_figure(
    home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = home_of("task_pool")
    monkeypatch.setattr(PanoramaStore, "free_bytes", lambda self: 1_000_000)
    with pytest.raises(
        NoRoom, match=r"pictures of about 0\.\d\d GB will not fit .* 0\.00 GB free.*GEO_STORE_URL"
    ):
        compute(mirrored_panoramas, stage)
    result = dg.materialize(
        [mirrored_panoramas.definition(stage)],
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert "will not fit" in str(failure.step_failure_data.error_display_string)


def test_a_full_disk_loses_nothing(home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    from env_service import store as store_module

    stage = home_of("task_pool", "mirrored_panoramas")
    store = stage.settings.home / "mirrored_panoramas" / "store"
    pictures = sorted(store.glob("*.jpg"))
    whole = {path.name: sha256_file(path) for path in pictures}
    for path in pictures[:4]:
        path.unlink()

    def full(path: Path | str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "atomic_write", full)
        with pytest.raises(store_module.StoreFull, match="no room"):
            compute(mirrored_panoramas, stage)
    assert {path.name for path in store.iterdir()} == whole.keys() - {path.name for path in pictures[:4]}
    compute(mirrored_panoramas, stage)
    assert {path.name: sha256_file(path) for path in store.iterdir()} == whole


def test_a_frame_without_a_picture_leaves_its_task(home_of: Callable[..., Stage]) -> None:
    stage = home_of("task_pool", "mirrored_panoramas")
    logs = stage.settings.home / "mirrored_panoramas" / "verified"
    tasks = read_tasks(stage.settings.home / "task_pool" / "tasks.jsonl")
    shorter = next(task for task in tasks if len(task.frames) == 3)
    gone = {shorter.start.image_id}
    emptied = next(task for task in tasks if task is not shorter)
    gone |= {frame.image_id for frame in emptied.frames[1:]}
    for path in logs.glob("*.jsonl"):
        head, *lines = path.read_bytes().splitlines(keepends=True)
        rows = [unsealed(line.rstrip(b"\n")) for line in lines]
        rows = [
            {"image_id": row["image_id"], "original": False, "missing": "no such picture"}
            if row["image_id"] in gone and not row["original"]
            else row
            for row in rows
        ]
        path.write_bytes(b"".join([head, *map(sealed, rows)]))
    made = compute(mirrored_panoramas, stage)["mirrored_panoramas"]
    left = {
        task.task_id: task for task in read_tasks(stage.settings.home / "mirrored_panoramas" / "tasks.jsonl")
    }
    assert emptied.task_id not in left
    assert len(left[shorter.task_id].frames) == 2
    assert left[shorter.task_id].start_frame == 1
    assert "sha256_original" in left[shorter.task_id].meta, "the new start has its original"
    assert made.facts["tasks_dropped"] == 1
    assert [task.task_index for task in left.values()] == list(range(len(left)))


def test_a_broken_split_is_not_published(
    home_of: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    from geo_assets.data import _split

    stage = home_of("mirrored_panoramas", "eval_split", "train_split")
    before = sha256_file(stage.settings.home / "eval_split" / "tasks.jsonl")
    monkeypatch.setattr(
        _split, "split", lambda pool, spec: _split.Split([0, 1], [0, 2], Counter(), Counter())
    )
    with pytest.raises(SplitBroken, match=r"1 sequences are in both splits.*Nothing was published"):
        compute(task_split, stage)
    assert sha256_file(stage.settings.home / "eval_split" / "tasks.jsonl") == before
    assert split_module.NEW != split_module.TASKS
