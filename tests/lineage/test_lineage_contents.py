"""A folder whose files are gone, torn or edited is not what was published, and the plan says so."""

# Rows of one line each, however long.
# ruff: noqa: E501

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from graph_lab import Lab

from env_service.errors import GeoError
from geo_assets.lineage import contents
from geo_assets.lineage.folders import MARKER, AssetFolder, fault_of
from geo_assets.lineage.plan import make_plan

TABLE = b"a,b\n1,2\n"


def _asset(home: Path, name: str = "adapter") -> AssetFolder:
    folder = AssetFolder(home, name)
    folder.file("adapter", "model.safetensors").write_bytes(bytes(1000))
    folder.file("table.csv").write_bytes(TABLE)
    folder.file("package", "__init__.py").write_bytes(b"")
    folder.file("training.log").write_text("step 1\n")
    folder.file("timings.jsonl").write_text("{}\n")
    folder.file("outcomes.json").write_text("{}")
    folder.file(".writer.lock").write_text("")
    folder.file("_lineage.json").write_text("{}")
    folder.publish("version", {"figure": 1})
    os.utime(folder.path / MARKER, ns=(10**18, 10**18))
    for path in folder.path.rglob("*"):
        if path.name != MARKER:
            os.utime(path, ns=(10**18 - 10, 10**18 - 10))
    return folder


def _fault(folder: AssetFolder) -> tuple[str, str]:
    built = folder.built()
    assert built is not None
    fault = fault_of(built)
    return (fault.kind, fault.what) if fault else ("", "")


@pytest.mark.parametrize(
    ("name", "harm", "kind", "said"),
    [
        ("adapter/model.safetensors", lambda p: p.write_bytes(bytes(10)), "missing", "torn: 10 of 1,000 bytes"),
        ("adapter/model.safetensors", lambda p: p.unlink(), "missing", "is gone"),
        ("package/__init__.py", lambda p: p.unlink(), "missing", "is gone"),
        ("table.csv", lambda p: p.write_bytes(TABLE + b"3,4\n"), "data", "other content"),
        ("table.csv", lambda p: p.write_bytes(TABLE.replace(b"2", b"3")), "data", "other content"),
        ("table.csv", lambda p: p.write_bytes(TABLE), "", ""),
        ("training.log", lambda p: p.unlink(), "", ""),
        ("timings.jsonl", lambda p: p.write_text(""), "", ""),
        ("outcomes.json", lambda p: p.write_text("of a copied home"), "", ""),
        (".writer.lock", lambda p: p.unlink(), "", ""),
        ("_lineage.json", lambda p: p.write_text("{} "), "", ""),
        ("new.csv", lambda p: p.write_bytes(TABLE), "", ""),
    ],
)  # fmt: skip
def test_a_file_that_is_gone_torn_or_edited(
    tmp_path: Path, name: str, harm: Callable[[Path], object], kind: str, said: str
) -> None:
    folder = _asset(tmp_path)
    assert _fault(folder) == ("", "")
    harm(folder.path / name)
    found, words = _fault(folder)
    assert found == kind and said in words and (not kind or name in words)


def test_moving_the_folder_and_old_markers_are_fine(tmp_path: Path) -> None:
    staged = _asset(tmp_path / "aside")
    staged.path.rename(tmp_path / "adapter")
    moved = AssetFolder(tmp_path, "adapter")
    assert _fault(moved) == ("", "")
    assert AssetFolder(tmp_path, "without_a_folder").publish("1").files == {}
    marker = moved.path / MARKER
    body = json.loads(marker.read_text())
    del body["files"]
    marker.write_text(json.dumps(body))
    (moved.path / "table.csv").unlink()
    assert _fault(moved) == ("", "")


def test_a_store_and_the_folder_of_another_asset_are_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LARGEST", 5)
    folder = AssetFolder(tmp_path, "panoramas")
    for number in range(6):
        folder.file("store", f"{number}.jpg").write_bytes(b"x")
    folder.file("manifest.json").write_text("{}")
    inner = AssetFolder(folder.path, "inner")
    inner.file("x.txt").write_text("x")
    inner.publish("1")
    (folder.path / "link").symlink_to(folder.path / "store", target_is_directory=True)
    assert set(folder.publish("2").files) == {"manifest.json"}


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3", '{"data_version": "1", "facts": []}', "[" * 100_000, '{"data_version": "1"}',
             '{"data_version": "1", "facts": {}, "files": [1]}', '{"data_version": "1", "facts": {}, "files": {"a": 1}}']
)  # fmt: skip
def test_a_marker_of_another_shape_is_damaged(tmp_path: Path, text: str) -> None:
    folder = AssetFolder(tmp_path, "a")
    folder.file(MARKER).write_text(text)
    with pytest.raises(GeoError, match="is damaged"):
        folder.built()


def test_the_plan_names_the_file(lab: Lab) -> None:
    lab.run(["tiles"])
    folder = AssetFolder(lab.stage.settings.home, "tiles")
    folder.file("tiles.json").write_text("{}")
    built = folder.built()
    assert built is not None
    folder.publish(built.data_version, built.facts)
    assert not make_plan(lab.instance, lab.graph, lab.stage, {"tiles"}).stale
    (folder.path / "tiles.json").unlink()
    (stale,) = make_plan(lab.instance, lab.graph, lab.stage, {"tiles"}).stale
    assert [(one.kind, one.what) for one in stale.reasons] == [("missing", "its file tiles.json is gone")]
