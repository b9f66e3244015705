"""Asset folders: finished or not, readable or not, and the sentence a missing parent gives."""

import pickle
from pathlib import Path

import pytest

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.lineage.folders import AssetFolder, FailedUpstream, MissingUpstream, require, unfinished
from geo_assets.lineage.versions import content_version, manifest_version


def test_a_folder_is_built_only_once_it_is_published(tmp_path: Path) -> None:
    folder = AssetFolder(tmp_path, "task_pool")
    folder.file("tasks.jsonl").write_text("{}\n")
    assert folder.built() is None
    folder.publish("abc", {"tasks": 3})
    built = require(tmp_path, "task_pool", "eval_split")
    assert (built.data_version, built.facts) == ("abc", {"tasks": 3})


def test_a_missing_parent_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingUpstream) as error:
        require(tmp_path, "task_pool", "mirrored_panoramas")
    assert "mirrored_panoramas needs task_pool" in str(error.value)
    assert "dagster asset materialize --select '*task_pool'" in str(error.value)


def test_nothing_is_built_on_a_failed_check(tmp_path: Path) -> None:
    AssetFolder(tmp_path, "eval_environment").file("config.json").write_text("{}")
    AssetFolder(tmp_path, "eval_environment").publish("abc", failed_checks=["serves"])
    with pytest.raises(FailedUpstream, match=r"sweep_x is not built on eval_environment.*serves"):
        require(tmp_path, "eval_environment", "sweep_x")


def test_a_damaged_marker_is_named(tmp_path: Path) -> None:
    folder = AssetFolder(tmp_path, "task_pool")
    folder.file("_asset.json").write_text('{"asset": "task_po')
    with pytest.raises(GeoError, match=r"_asset\.json is damaged"):
        folder.built()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.json"
    atomic_write(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_versions_ignore_order_and_refuse_nan() -> None:
    assert manifest_version({"b": "2", "a": "1"}) == manifest_version([("a", "1"), ("b", "2")])
    assert content_version({"a": 1, "b": 2}) == content_version({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


def test_errors_survive_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(MissingUpstream("a needs b", "Run: geo build b")))
    assert isinstance(error, MissingUpstream)
    assert str(error) == "a needs b. Run: geo build b"


def test_only_a_sweep_waits_for_episodes(tmp_path: Path) -> None:
    for name, why in (("report_site", ""), ("sweeps/oracle", "is gone")):
        AssetFolder(tmp_path, name).publish("version", {"episodes": 3})
        built = AssetFolder(tmp_path, name).built()
        assert built is not None
        assert unfinished(built).endswith(why) and bool(unfinished(built)) == bool(why)
