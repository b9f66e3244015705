"""The log that survives kills."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.errors import GeoError
from geo_assets.data._journal import (
    DamagedLine,
    Journal,
    lock_of,
    read_entries,
    sealed,
    sweep_parts,
    unsealed,
)
from geo_assets.lineage.single_writer import BeingWritten, single_writer


def _filled(path: Path, count: int = 3) -> None:
    with Journal(path, "v1", dict) as journal:
        for number in range(count):
            journal.append({"n": number})


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    _filled(tmp_path / "j.jsonl")
    with Journal(tmp_path / "j.jsonl", "v1", dict) as again:
        assert [entry["n"] for entry in again.entries] == [0, 1, 2]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_torn_last_line_is_cut_off_and_writing_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    _filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert read_entries(path, "v1", dict) == [{"n": 0}, {"n": 1}]
    assert path.read_bytes() == whole[:-cut], "reading alone changes nothing"
    with Journal(path, "v1", dict) as journal:
        assert len(journal.entries) == 2
        journal.append({"n": 2})
    assert path.read_bytes() == whole


def test_a_torn_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"journal_of": "v')
    _filled(path, 1)
    assert read_entries(path, "v1", dict) == [{"n": 0}]


def test_a_log_of_something_else_waits_beside_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    _filled(path)
    mine = path.read_bytes()
    with Journal(path, "v2", dict) as journal:
        assert journal.entries == []
        assert journal.moved_aside is not None and journal.moved_aside.parent == tmp_path / "superseded"
        assert journal.moved_aside.read_bytes() == mine
        journal.append({"n": 9})
    assert read_entries(path, "v1", dict) == []
    with Journal(path, "v1", dict) as again:
        assert path.read_bytes() == mine and len(again.entries) == 3
    with Journal(path, "v2", dict) as other:
        assert other.entries == [{"n": 9}]


def test_a_log_of_an_older_format_is_kept_and_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"journal_of": "v1"}\n{"n":0}\n')
    with Journal(path, "v1", dict) as journal:
        assert journal.entries == [] and journal.moved_aside is not None


ALTERED = [
    b'{"n": \n',
    b"\n",
    b'{"foo":1}\n',
    b'{"n":1}\n',
    sealed({"n": 1}).replace(b'"n":1', b'"n":2'),
    sealed({"n": 1}).replace(b'"n":1', b'"n":NaN'),
    sealed({"n": 1})[:-1] + b" \n",
    sealed({"other": 1}),
    sealed({"n": "x"}),
    sealed({"n": None}),
]


@pytest.mark.parametrize("line", ALTERED)
def test_an_altered_line_is_told_with_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j.jsonl"
    _filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
    before = path.read_bytes()
    for attempt in (lambda: Journal(path, "v1", _number), lambda: read_entries(path, "v1", _number)):
        with pytest.raises(
            DamagedLine, match=r"j\.jsonl:3 is not what was written.*Remove that line"
        ) as told:
            attempt()
        assert str(path) in str(told.value)
    assert path.read_bytes() == before, "nothing that was made is lost"
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    assert read_entries(path, "v1", _number) == [0, 2]


def _number(entry: Mapping[str, Any]) -> int:
    return int(entry["n"])


@given(
    st.dictionaries(
        st.text(max_size=5), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    )
)
def test_what_is_sealed_comes_back_and_stays_one_line(entry: dict[str, Any]) -> None:
    line = sealed(entry)
    assert line.count(b"\n") == 1
    assert unsealed(line[:-1]) == entry


def test_a_second_writer_is_refused_while_the_first_holds_on(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, "v1", dict):
        with (
            pytest.raises(BeingWritten, match=rf"j\.jsonl is being written by process {os.getpid()}"),
            single_writer(lock_of(path), str(path), patience_s=0.1),
        ):
            raise AssertionError("two writers")
        assert read_entries(path, "v1", dict) == [], "readers are not in the way"
    _filled(path)


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from geo_assets.lineage.single_writer import single_writer\n"
        "with single_writer(Path(sys.argv[1]), 'it'):\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    lock = tmp_path / "folder" / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(BeingWritten, match=f"process {holder.pid}"), single_writer(lock, "it", 0.1):
        raise AssertionError("two writers")
    holder.kill()
    holder.communicate()
    with single_writer(lock, "it", 0.1):
        assert lock.read_text() == str(os.getpid())


def test_a_lock_that_cannot_be_taken_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(GeoError, match=r"cannot be locked.*GEO_HOME"),
        single_writer(tmp_path / "file/x", "it"),
    ):
        raise AssertionError("no lock")


def test_half_written_files_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".a.jpg.x1.part").write_bytes(b"half")
    (tmp_path / "a.jpg").write_bytes(b"whole")
    assert sweep_parts(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]
    assert sweep_parts(tmp_path / "absent") == 0
