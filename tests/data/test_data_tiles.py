"""Coverage tiles: which, how often asked, what is kept, when too many failed, and what is read of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from data_lab import SMALL, compute, settings_for

from env_service.errors import GeoError
from geo_assets.config.settings import TilesSpec
from geo_assets.data import coverage_tiles as stage_module
from geo_assets.data._image_layer import count_images
from geo_assets.data._rows import rows_version
from geo_assets.data._tile_log import TileLog, read_index, tile_path
from geo_assets.data.candidate_sequences import candidate_sequences, read_candidates
from geo_assets.data.coverage_tiles import CoverageIncomplete, coverage_tiles, land_tiles
from geo_assets.lineage.assets import AssetFolder, Stage
from resources.mapillary import MapillaryClient
from resources.vector_tiles import TileFeature, encode_tile

BOX = (0.0, 46.0, 9.0, 50.0)


def _stage(home: Path, url: str = "", **tiles: Any) -> Stage:
    return Stage(settings_for(home, url=url), replace(SMALL, tiles=replace(TilesSpec(boxes=(BOX,)), **tiles)))


def test_tiles_that_touch_land_are_wanted_and_open_sea_is_not() -> None:
    wanted = {str(tile) for tile in land_tiles(TilesSpec())}
    assert "6/33/22" in wanted, "Germany"
    assert "6/10/32" not in wanted, "the open Pacific"
    assert 900 < len(wanted) < 1600
    assert len(land_tiles(TilesSpec(boxes=(BOX, BOX)))) == len(set(land_tiles(TilesSpec(boxes=(BOX,)))))


def test_a_rerun_asks_only_for_what_is_missing_or_old(tmp_path: Path) -> None:
    stage = _stage(tmp_path)
    first = compute(coverage_tiles, stage)["coverage_tiles"]
    assert first.metadata["tiles_asked"] == first.facts["tiles"] > 3
    again = compute(coverage_tiles, stage)["coverage_tiles"]
    assert again.metadata["tiles_asked"] == 0
    index = read_index(tmp_path / "coverage_tiles")
    sizes = {tile: tile_path(tmp_path / "coverage_tiles", sha).stat().st_size for tile, sha in index.items()}
    tile = max(sizes, key=lambda name: sizes[name])
    path = tile_path(tmp_path / "coverage_tiles", index[tile])
    path.write_bytes(path.read_bytes()[:-1])
    mended = compute(coverage_tiles, stage)["coverage_tiles"]
    assert mended.metadata["tiles_asked"] == 1
    old = compute(coverage_tiles, _stage(tmp_path, max_age_days=0.0))["coverage_tiles"]
    assert old.metadata["tiles_asked"] == first.facts["tiles"]
    assert {made.data_version for made in (first, again, mended, old)} == {first.data_version}


def test_a_torn_log_costs_one_tile_and_another_source_starts_anew(tmp_path: Path) -> None:
    log = TileLog(tmp_path, "here")
    log.add("6/1/1", b"one")
    log.add("6/1/2", b"two")
    path = tmp_path / "fetched.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    again = TileLog(tmp_path, "here")
    assert again.fresh("6/1/1", 60.0) and not again.fresh("6/1/2", 60.0)
    again.add("6/1/2", b"two")
    assert set(again.publish(["6/1/1", "6/1/2"], {})) == {"6/1/1", "6/1/2"}
    assert TileLog(tmp_path, "here").fresh("6/1/2", 60.0)
    assert TileLog(tmp_path, "elsewhere").stored == {}


def test_too_many_failed_tiles_are_listed_and_nothing_is_lost(
    tmp_path: Path, mapillary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def out_of_reach(stage: Stage) -> Iterator[MapillaryClient]:
        with MapillaryClient("http://127.0.0.1:9", "http://127.0.0.1:9", "MLY|x", attempts=1) as client:
            yield client

    stage = _stage(tmp_path, mapillary)
    built = compute(coverage_tiles, stage)["coverage_tiles"]
    before = read_index(tmp_path / "coverage_tiles")
    monkeypatch.setattr(stage_module, "open_mapillary", out_of_reach)
    with pytest.raises(
        CoverageIncomplete,
        match=r"\d+ of \d+ tiles did not come .*reason: no connection.*6/\d+/\d+.*run the same",
    ) as e:
        compute(coverage_tiles, _stage(tmp_path, mapillary, max_age_days=0.0))
    assert "MLY" not in str(e.value)
    assert read_index(tmp_path / "coverage_tiles") == before, "the older copies stay"
    body = json.loads((tmp_path / "coverage_tiles" / "index.json").read_text())
    assert len(body["failed"]) == len(before)
    tolerant = compute(coverage_tiles, _stage(tmp_path, mapillary, max_age_days=0.0, max_failed_share=1.0))
    assert tolerant["coverage_tiles"].data_version == built.data_version
    assert tolerant["coverage_tiles"].facts["tiles_failed"] == len(before)


def _published(home: Path, tiles: dict[str, bytes]) -> Stage:
    log = TileLog(home / "coverage_tiles", "test")
    for tile, data in tiles.items():
        log.add(tile, data)
    log.publish(sorted(tiles), {})
    AssetFolder(home, "coverage_tiles").publish("v1")
    return Stage(settings_for(home), SMALL)


def _line(name: str, image: int, x: int, y: int, **more: Any) -> TileFeature:
    return TileFeature(((x, y), (x + 5, y)), {"id": name, "image_id": image, "is_pano": True, **more})


def test_a_sequence_over_a_border_is_one_candidate_and_flat_ones_are_none(tmp_path: Path) -> None:
    west = [_line("b", 10**17 + 1, 4000, 0, creator_id=5), _line("flat", 2, 0, 0, is_pano=False)]
    east = [_line("b", 10**17 + 1, 10, 0, creator_id=5), _line("a", 3, 9, 4095, is_pano="true")]
    stage = _published(
        tmp_path, {"6/33/22": encode_tile({"sequence": east}), "6/32/22": encode_tile({"sequence": west})}
    )
    made = compute(candidate_sequences, stage)["candidate_sequences"]
    rows = read_candidates(tmp_path / "candidate_sequences").to_pylist()
    assert [row["sequence_id"] for row in rows] == ["a", "b"]
    assert rows[1]["anchor_image_id"] == str(10**17 + 1), "ids beyond 2^53 stay whole"
    assert rows[1]["tile"] == "6/32/22"
    assert rows[0]["lat"] < rows[1]["lat"], "y points down"
    assert rows[0]["quality_score"] is None and rows[0]["creator_id"] == ""
    assert made.facts["perspective"] == 1 and made.facts["repeated_in_another_tile"] == 1


def test_tiles_that_change_without_their_rows_stop_there(tmp_path: Path) -> None:
    features = [_line("b", 1, 5, 5), _line("a", 2, 9, 9)]
    one = compute(
        candidate_sequences, _published(tmp_path / "1", {"6/33/22": encode_tile({"sequence": features})})
    )
    turned = encode_tile({"sequence": features[::-1], "image": [TileFeature(((1, 1),), {"id": 1})]})
    two = compute(candidate_sequences, _published(tmp_path / "2", {"6/33/22": turned}))
    assert one["candidate_sequences"].data_version == two["candidate_sequences"].data_version
    moved = encode_tile({"sequence": [_line("b", 1, 6, 5), features[1]]})
    three = compute(candidate_sequences, _published(tmp_path / "3", {"6/33/22": moved}))
    assert one["candidate_sequences"].data_version != three["candidate_sequences"].data_version


def test_a_tile_that_does_not_decode_is_named(tmp_path: Path) -> None:
    stage = _published(tmp_path, {"6/33/22": b"\x1a\xff\xff\xff\x07rubbish"})
    with pytest.raises(GeoError, match=r"6/33/22"):
        compute(candidate_sequences, stage)


def test_a_tile_that_was_altered_on_disk_is_named(tmp_path: Path) -> None:
    stage = _published(tmp_path, {"6/33/22": encode_tile({"sequence": [_line("a", 1, 1, 1)]})})
    (digest,) = read_index(tmp_path / "coverage_tiles").values()
    path = tile_path(tmp_path / "coverage_tiles", digest)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(GeoError, match=r"6/33/22.*not what was stored.*coverage_tiles"):
        compute(candidate_sequences, stage)


def test_a_missing_parent_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(GeoError, match=r"candidate_sequences needs coverage_tiles.*materialize"):
        compute(candidate_sequences, Stage(settings_for(tmp_path), SMALL))


def test_images_of_a_tile_are_counted_by_kind() -> None:
    images = [TileFeature(((n, n),), {"id": n, "is_pano": n < 3}) for n in range(5)]
    tile = encode_tile({"sequence": [_line("a", 1, 1, 1)], "image": images})
    assert count_images(tile, "14/1/1") == {"panoramic": 3, "perspective": 2}
    assert not count_images(b"", "14/1/1")
    with pytest.raises(GeoError, match="14/1/1"):
        count_images(tile[:-3], "14/1/1")


def test_a_table_version_sees_values_and_not_chunks() -> None:
    table = pa.table({"a": ["x", "yz", None], "b": [1, None, 3], "c": [0.5, None, -0.0]})
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert rows_version(table) == rows_version(chunked)
    others = [
        pa.table({"a": ["xy", "z", None], "b": [1, None, 3], "c": [0.5, None, -0.0]}),
        pa.table({"a": ["x", "yz", ""], "b": [1, None, 3], "c": [0.5, None, -0.0]}),
        pa.table({"a": ["x", "yz", None], "b": [1, 0, 3], "c": [0.5, None, -0.0]}),
        table.slice(0, 2),
    ]
    assert len({rows_version(other) for other in (table, *others)}) == 5
