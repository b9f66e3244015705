"""Outcome tables: read instead of the lines where they fit, made again where they do not, the same bits."""

import json
import os
import shutil
from pathlib import Path

import pytest
from reports_lab import publish

from geo_assets.cli._bench_report import board_by_lines, write_episodes
from geo_assets.reports._episode_arms import find_arms
from geo_assets.reports.episode_report import arm_rows
from geo_assets.sweeps import sidecar
from geo_assets.sweeps.outcomes import STAMP
from geo_assets.sweeps.sidecar import read_lines, read_outcomes
from geo_assets.sweeps.store import OUTCOMES

KM = [[10.0, 30.0], [100.0, None], [50.0, 900.0]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    publish(tmp_path, "noisy_oracle", KM, cost=0.1)
    return tmp_path / "sweeps/noisy_oracle"


def lines_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was read line by line")

    monkeypatch.setattr(sidecar, "read_lines", refuse)


def test_the_lines_are_not_read_while_the_table_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_outcomes(folder).table
    assert first.equals(read_lines(folder / "episodes.jsonl")[1].table)
    lines_are_not_read(monkeypatch)
    assert read_outcomes(folder).table.equals(first)
    assert read_outcomes(folder, ("cost", "arm"), constants=("arm",)).constants == {"arm": "noisy_oracle"}


def test_a_copied_folder_keeps_its_table_and_gets_a_new_stamp(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_outcomes(folder)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    before = json.loads((copy / STAMP).read_text())["episodes_seen"]
    lines_are_not_read(monkeypatch)
    assert read_outcomes(copy).table.num_rows == 6
    assert json.loads((copy / STAMP).read_text())["episodes_seen"] != before


def test_an_edit_of_the_same_length_at_the_same_time_is_seen(folder: Path) -> None:
    path = folder / "episodes.jsonl"
    read_outcomes(folder)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"forced":false', b'"forced":true ', 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert sum(read_outcomes(folder).table["forced"].to_pylist()) == 2  # one was forced before


@pytest.mark.parametrize("name", [OUTCOMES, STAMP])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_damage_to_table_or_stamp_is_mended_from_the_lines(
    folder: Path, name: str, damage: bytes | None
) -> None:
    table = read_outcomes(folder).table
    path = folder / name
    path.unlink() if damage is None else path.write_bytes(damage)
    assert read_outcomes(folder).table.equals(table)
    assert read_outcomes(folder).table.equals(table)


def test_a_torn_last_line_and_a_bad_one_are_left_out_and_said(folder: Path) -> None:
    path = folder / "episodes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    torn = read_outcomes(folder)
    assert (torn.table.num_rows, torn.torn > 0, torn.bad) == (5, True, ())
    assert read_outcomes(folder).torn == torn.torn  # from the stamp
    path.write_bytes(b"{}\n" + whole)
    bad = read_outcomes(folder)
    assert bad.table.num_rows == 6
    assert [number for number, _ in bad.bad] == [1]


def test_a_folder_that_cannot_be_written_is_read_from_its_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / STAMP).unlink()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sidecar, "write_sidecar", full)
    assert read_outcomes(folder).table.num_rows == 6
    assert not (folder / STAMP).exists()


def test_a_board_from_tables_is_the_board_from_lines_to_the_last_bit(tmp_path: Path) -> None:
    write_episodes(tmp_path, 4 * 24 - 3, words=2, tasks=8, k=3)
    by_lines = arm_rows(find_arms([tmp_path])[0])
    made = arm_rows(find_arms([tmp_path], trusted=tmp_path)[0])
    kept = arm_rows(find_arms([tmp_path], trusted=tmp_path)[0])
    assert by_lines == made == kept == board_by_lines(tmp_path)
    assert [row["complete"] for row in kept] == [True, True, True, False]
