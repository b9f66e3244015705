"""The log that survives kills."""

from pathlib import Path

import pytest

from env_service.errors import GeoError
from geo_assets.data._journal import Journal, read_entries, sweep_parts


def _filled(path: Path, count: int = 3) -> None:
    with Journal(path, "v1") as journal:
        for number in range(count):
            journal.append({"n": number})


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    _filled(tmp_path / "j.jsonl")
    with Journal(tmp_path / "j.jsonl", "v1") as again:
        assert [entry["n"] for entry in again.entries] == [0, 1, 2]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_torn_last_line_is_cut_off_and_writing_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    _filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert read_entries(path, "v1") == [{"n": 0}, {"n": 1}]
    assert path.read_bytes() == whole[:-cut], "reading alone changes nothing"
    with Journal(path, "v1") as journal:
        assert len(journal.entries) == 2
        journal.append({"n": 2})
    assert path.read_bytes() == whole


def test_a_torn_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"journal_of": "v')
    _filled(path, 1)
    assert read_entries(path, "v1") == [{"n": 0}]


def test_a_log_of_something_else_is_started_anew(tmp_path: Path) -> None:
    _filled(tmp_path / "j.jsonl")
    with Journal(tmp_path / "j.jsonl", "v2") as journal:
        assert journal.entries == []
    assert read_entries(tmp_path / "j.jsonl", "v1") == []


def test_damage_in_the_middle_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    _filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b'{"n": \n', *lines[3:]]))
    with pytest.raises(GeoError, match=r"j\.jsonl:3 is damaged.*Remove") as caught:
        Journal(path, "v1")
    assert str(path) in str(caught.value)


def test_half_written_files_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".a.jpg.x1.part").write_bytes(b"half")
    (tmp_path / "a.jpg").write_bytes(b"whole")
    assert sweep_parts(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]
    assert sweep_parts(tmp_path / "absent") == 0
