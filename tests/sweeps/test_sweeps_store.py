"""Episodes on disk: torn lines, repeats, identities that change and come back, one writer at a time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sweeps_lab import Lab, lab_arm

from geo_assets.sweeps.episode_file import DamagedEpisodes, read_episodes, read_timings, repair
from geo_assets.sweeps.lock import LOCK, LockLost, SweepLocked, WriterLock
from geo_assets.sweeps.outcomes import OUTCOMES, SCHEMA, write_outcomes
from geo_assets.sweeps.records import EpisodeRecord, Timing
from geo_assets.sweeps.sidecar import read_outcomes
from geo_assets.sweeps.store import SweepStore


@pytest.fixture(scope="module")
def records(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[EpisodeRecord, ...]:
    """Six real episodes."""
    return lab.sweep(lab_arm("best_fixed_point", k=1), tmp_path_factory.mktemp("records")).records


def timing(record: EpisodeRecord) -> Timing:
    return Timing(
        task_index=record.task_index,
        sample=record.sample,
        latencies_s=(0.1,),
        attempts=(1,),
        wall_s=0.2,
        finished_at="2026-01-01T00:00:00+00:00",
    )


def fill(folder: Path, records: tuple[EpisodeRecord, ...], identity: dict[str, int] | None = None) -> None:
    with WriterLock(folder, "sweep_x") as lock:
        store = SweepStore(folder, lock, identity or {"version": 1})
        for record in records:
            store.append(record, timing(record))
        store.finish()


def open_store(
    folder: Path, identity: dict[str, int] | None = None, say: Callable[[str], None] = lambda _: None
) -> SweepStore:
    with WriterLock(folder, "sweep_x") as lock:
        return SweepStore(folder, lock, {"version": 1} if identity is None else identity, say)


@pytest.mark.parametrize("cut", [1, 2, 40, 500])
def test_a_torn_last_line_is_cut_off_and_the_rest_stays(
    tmp_path: Path, records: tuple[EpisodeRecord, ...], cut: int
) -> None:
    fill(tmp_path, records)
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    store = open_store(tmp_path)
    # Without its newline alone, the last line is complete and stays.
    assert len(store.records) == (6 if cut == 1 else 5)
    assert path.read_bytes().endswith(b"\n")


def test_repair_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    assert repair(path) == 0
    path.write_bytes(b'{"half')
    assert repair(path) == 6
    assert path.read_bytes() == b""


def test_a_torn_last_line_is_left_out_by_readers_too_and_said(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    path, said = tmp_path / "episodes.jsonl", list[str]()
    path.write_bytes(path.read_bytes()[:-40])
    assert len(read_episodes(path, said.append)) == 5
    assert "a torn last line of" in said[0]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b'{"arm": 1}\n', "is no episode"),
        (b"\xff\xfe\x00\n", "is no episode"),
        (b"\n", "is no episode"),
        (b"[" * 5000 + b"\n", "is no episode"),
    ],
)
def test_a_damaged_line_inside_costs_itself_and_nothing_else(
    tmp_path: Path, records: tuple[EpisodeRecord, ...], bad: bytes, why: str
) -> None:
    fill(tmp_path, records)
    path, said = tmp_path / "episodes.jsonl", list[str]()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], bad, *lines[2:]]))
    with pytest.raises(DamagedEpisodes, match=rf"episodes\.jsonl:2 {why}.*geo sweep .*and no others"):
        read_episodes(path)
    store = open_store(tmp_path, say=said.append)
    assert len(store.records) == 5
    assert path.read_bytes() == b"".join([lines[0], *lines[2:]])
    assert (tmp_path / "rejected.jsonl").read_bytes() == bad
    assert "moved to rejected.jsonl" in said[0]


def test_an_altered_line_is_not_what_was_written_and_costs_itself(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    path, said = tmp_path / "episodes.jsonl", list[str]()
    lines = path.read_bytes().splitlines(keepends=True)
    altered = lines[3].replace(b'"completion_tokens":', b'"completion_tokens":1')
    path.write_bytes(b"".join([*lines[:3], altered, *lines[4:]]))
    assert len(read_episodes(path)) == 6
    assert len(open_store(tmp_path, say=said.append).records) == 5
    assert "episodes.jsonl:4 is not the line that was written" in said[0]
    assert (tmp_path / "rejected.jsonl").read_bytes() == altered
    # Of two lines for one episode the one that was written stays, wherever it stands.
    path.write_bytes(b"".join([*lines[:3], altered, *lines[3:]]))
    assert open_store(tmp_path).records.keys() == {record.key for record in records}
    assert path.read_bytes() == b"".join(lines)


def test_timings_lose_their_damaged_lines_and_no_sweep(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    path = tmp_path / "timings.jsonl"
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    assert len(open_store(tmp_path).records) == len(read_timings(path)) == 6
    path.unlink()
    assert len(open_store(tmp_path).records) == 6


def test_an_episode_stands_once(tmp_path: Path, records: tuple[EpisodeRecord, ...]) -> None:
    with WriterLock(tmp_path, "sweep_x") as lock:
        store = SweepStore(tmp_path, lock, {})
        store.append(records[0], timing(records[0]))
        with pytest.raises(DamagedEpisodes, match="task 0, sample 0 was played twice"):
            store.append(records[0], timing(records[0]))
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(DamagedEpisodes, match=r"episodes\.jsonl:2 repeats task 0, sample 0"):
        read_episodes(path)
    assert len(open_store(tmp_path, {}).records) == 1
    assert path.read_bytes() == records[0].line()


def test_finished_episodes_are_the_same_bytes_in_whatever_order_they_came(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path / "a", records)
    fill(tmp_path / "b", records[::-1])
    for name in ("a", "b"):
        write_outcomes(tmp_path / name, read_episodes(tmp_path / name / "episodes.jsonl").values())
    for file in ("episodes.jsonl", OUTCOMES):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_another_identity_starts_anew_and_the_first_finds_its_episodes_again(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    before = (tmp_path / "episodes.jsonl").read_bytes()
    assert open_store(tmp_path, {"version": 2}).records == {}
    kept = next(tmp_path.glob("superseded/*/episodes.jsonl"))
    assert kept.read_bytes() == before
    fill(tmp_path, records[:2], {"version": 2})
    assert len(open_store(tmp_path, {"version": 1}).records) == 6
    assert len(open_store(tmp_path, {"version": 2}).records) == 2


def test_episodes_without_an_identity_are_moved_aside(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    (tmp_path / "identity.json").unlink()
    assert open_store(tmp_path).records == {}
    assert len(read_episodes(next(tmp_path.glob("superseded/*-unknown/episodes.jsonl")))) == 6


def test_outcomes_are_rebuilt_when_they_do_not_fit(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    fill(tmp_path, records)
    table = read_outcomes(tmp_path).table
    assert table.schema.equals(SCHEMA, check_metadata=False)
    assert table.num_rows == 6
    good = (tmp_path / OUTCOMES).read_bytes()
    for damage in (b"nonsense", good[:-20]):
        (tmp_path / OUTCOMES).write_bytes(damage)
        assert read_outcomes(tmp_path).table.equals(table)
    (tmp_path / "episodes.jsonl").write_bytes(records[0].line())
    assert read_outcomes(tmp_path).table.num_rows == 1


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with (
        WriterLock(tmp_path, "sweep_x"),
        pytest.raises(SweepLocked, match=f"written by process {os.getpid()} on"),
    ):
        WriterLock(tmp_path, "sweep_x").__enter__()
    with WriterLock(tmp_path, "sweep_x") as again:
        again.check()
    assert not (tmp_path / LOCK).exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from geo_assets.sweeps.lock import WriterLock\n"
        f"with WriterLock(Path({str(tmp_path)!r}), 'x'): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SweepLocked, match=f"process {holder.pid}"):
            WriterLock(tmp_path, "x").__enter__()
    finally:
        holder.kill()
        holder.wait()
    with WriterLock(tmp_path, "x") as mine:
        mine.check()


def test_a_silent_lock_is_taken_over_and_its_owner_notices(
    tmp_path: Path, records: tuple[EpisodeRecord, ...]
) -> None:
    with WriterLock(tmp_path, "x") as sleeper:
        store = SweepStore(tmp_path, sleeper, {})
        lock = json.loads((tmp_path / LOCK).read_text())
        (tmp_path / LOCK).write_text(json.dumps({**lock, "heartbeat": time.time() - 3600}))
        with WriterLock(tmp_path, "x"), pytest.raises(LockLost, match="taken over"):
            store.append(records[0], timing(records[0]))
    assert read_episodes(tmp_path / "episodes.jsonl") == {}
