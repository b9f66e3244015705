"""Pictures in a bucket: the store, the environment over it, the bundle of it, and no key anywhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import s3fs
from aws_double import ACCESS_KEY, SECRET_KEY, Aws
from env_assets_lab import compute, make_home, make_task, panorama, publish_split

from env_service.errors import GeoError
from env_service.store import MissingFrame, PanoramaStore, StoreUnwritable, UnreadableFrame
from geo_assets.config.settings import load_settings
from geo_assets.data._store import StoreUnusable, Wanted, check_writable, open_store, sizes
from geo_assets.data.mirrored_panoramas import read_manifest
from geo_assets.environment._behaviour import CONFIG, TASKS, configuration, write_configuration
from geo_assets.environment._readiness import offline_completeness
from geo_assets.environment.deployment_local import deployment_local
from geo_assets.lineage.assets import AssetFolder


@pytest.fixture
def bucket(as_client: Aws) -> Iterator[str]:
    """Address of an empty bucket; drivers forget whom they were connected to."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield f"s3://{as_client.make_bucket()}"
    s3fs.S3FileSystem.clear_instance_cache()


def test_what_another_process_stores_is_seen_at_once(bucket: str, as_client: Aws) -> None:
    store = PanoramaStore(f"{bucket}/panos")
    assert store.list_ids() == [] and not store.exists("1")
    digest = store.put("1", panorama(1))
    assert store.list_ids() == ["1"] and store.sha256("1") == digest
    as_client.client("s3").put_object(
        Bucket=bucket.removeprefix("s3://"), Key="panos/2.orig.jpg", Body=panorama(2)
    )
    assert store.exists("2", original=True) and store.list_ids(original=True) == ["2"]
    with pytest.raises(MissingFrame):
        store.get("2")
    size_of = sizes(store)
    assert [size_of(Wanted("1")), size_of(Wanted("2")), size_of(Wanted("2", True))] == [
        len(panorama(1)), -1, len(panorama(2))
    ]  # fmt: skip


def test_sizes_are_asked_for_in_one_listing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PanoramaStore(bucket)
    for name in range(6):
        store.put(str(name), panorama(name))
    asked: list[str] = []
    real = s3fs.S3FileSystem._call_s3

    async def counting(self: s3fs.S3FileSystem, method: str, *args: object, **more: object) -> object:
        asked.append(method)
        return await real(self, method, *args, **more)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counting)
    size_of = sizes(store)
    assert sum(size_of(Wanted(str(name))) > 0 for name in range(12)) == 6
    assert len(asked) <= 1, asked


def test_a_store_that_cannot_be_used_says_so_before_anything_is_fetched(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(open_store(f"{bucket}/panos"))
    assert PanoramaStore(f"{bucket}/panos").list_ids() == []
    absent = "s3://nobody-made-this-bucket/panos"
    with pytest.raises(StoreUnusable, match=absent):
        check_writable(PanoramaStore(absent))
    with pytest.raises(StoreUnwritable, match=absent):
        PanoramaStore(absent).put("1", panorama(1))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(UnreadableFrame, match="redentials"):
        PanoramaStore(bucket).get("1")


@pytest.mark.parametrize(
    "url",
    [f"s3://{ACCESS_KEY}:{SECRET_KEY}@bucket/panos", f"https://x.example/panos?Signature={SECRET_KEY}"],
)
def test_an_address_with_a_key_in_it_is_refused_and_not_repeated(url: str) -> None:
    for opened in (lambda: PanoramaStore(url), lambda: load_settings({"GEO_STORE_URL": url})):
        with pytest.raises(GeoError) as caught:
            opened()
        assert SECRET_KEY not in str(caught.value) and "credentials" in str(caught.value)


def test_the_environment_and_its_bundle_play_from_a_bucket(bucket: str, tmp_path: Path) -> None:
    there = make_home(tmp_path / "home", eval_tasks=0, train_tasks=0)
    url = f"{bucket}/panos"
    there = replace(there, settings=replace(there.settings, store_url=url))
    tasks = [make_task(PanoramaStore(url), index, "eval") for index in range(2)]
    publish_split(there, "eval", tasks)
    manifest = read_manifest(there.settings.home / "eval_mirror")
    complete = offline_completeness(open_store(url), tuple(tasks), manifest)
    assert complete.passed and complete.metadata["hashed"] == complete.metadata["frames"] == 4
    folder = AssetFolder(there.settings.home, "eval_environment")
    index = str(there.settings.home / "eval_split" / TASKS)
    spec = there.specs.environment
    write_configuration(folder.file(CONFIG), configuration("eval", index, url, "v1", spec))
    folder.publish("v1", {"tasks": len(tasks)})
    made = compute(deployment_local, there)
    assert all(check.passed for check in made.checks)
    bundle = there.settings.home / "deployment_local" / "bundle"
    config = json.loads((bundle / CONFIG).read_text())
    assert config["splits"]["eval"]["panos"] == url and not (bundle / "panos").exists()
    needed = (bundle / "env_service" / "requirements.txt").read_text().splitlines()
    assert f"s3fs=={s3fs.__version__}" in needed, "what the container installs"

    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 50
    for key in (ACCESS_KEY, SECRET_KEY):
        assert not [path for path in files if key.encode() in path.read_bytes()]
