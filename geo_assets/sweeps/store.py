"""Episodes of one sweep on disk: append-only, resumable, never lost and never mixed.

    episodes.jsonl    one record per (task, sample); sorted once the sweep has ended
    timings.jsonl     how long each took; apart, so that episodes are the same bytes however they were made
    unscored.jsonl    a log of episodes that a provider spoilt; they are played again
    identity.json     for which environment, arm and harness the episodes are valid
    superseded/       episodes of another identity, under the date they were moved aside
    quarantined/      passes of an endpoint that turned out dead

Invariants: a line is complete or is the last one; (task, sample) is unique; an episode that stands here is
never played again while the identity holds; nothing is ever deleted. An identity that comes back finds its
episodes again.
"""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from env_service.canonical import atomic_write, canonical_json, sha256_hex
from env_service.errors import GeoError
from geo_assets.lineage.folders import MARKER
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.records import EpisodeRecord, Timing

EPISODES = "episodes.jsonl"
TIMINGS = "timings.jsonl"
UNSCORED = "unscored.jsonl"
IDENTITY = "identity.json"
OUTCOMES = "outcomes.parquet"
# In the order of moving: what says that the folder is finished goes first, what says whose it is goes last.
FILES = (MARKER, OUTCOMES, EPISODES, TIMINGS, UNSCORED, IDENTITY)
SHORT = 12


class DamagedEpisodes(GeoError):
    """A line inside the episode file cannot be read, or a (task, sample) stands there twice."""


class SweepStore:
    """The episodes of one sweep, open for writing.

    Args:
        folder: the sweep's folder.
        lock: held by the caller for as long as the store is used.
        identity: JSON value; episodes are valid for this one and no other.

    Raises:
        DamagedEpisodes: the file holds something other than a torn last line.
    """

    def __init__(self, folder: Path, lock: WriterLock, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self._lock = lock
        self._adopt(dict(identity))
        repair(self.folder / EPISODES)
        repair(self.folder / TIMINGS)
        self.records = read_episodes(self.folder / EPISODES)

    @property
    def keys(self) -> set[tuple[int, int]]:
        """(sample, task_index) of every episode that stands here."""
        return set(self.records)

    def append(self, record: EpisodeRecord, timing: Timing) -> None:
        """Keep one episode; it is on disk when this returns.

        Raises:
            DamagedEpisodes: the arm has already played this (task, sample).
            LockLost: another process has taken the folder over.
        """
        if record.key in self.records:
            raise DamagedEpisodes(f"task {record.task_index}, sample {record.sample} was played twice")
        self._lock.check()
        # The timing first: a missing one would stay missing, while a second one replaces the first.
        _append(self.folder / TIMINGS, canonical_json(timing.model_dump(mode="json")) + b"\n")
        _append(self.folder / EPISODES, record.line())
        self.records[record.key] = record

    def unscored(self, task_index: int, sample: int, fault: str, problem: str) -> None:
        """Log an episode that the provider spoilt."""
        body = {"task_index": task_index, "sample": sample, "fault": fault, "problem": problem, "at": _now()}
        self._lock.check()
        _append(self.folder / UNSCORED, canonical_json(body) + b"\n")

    def finish(self) -> None:
        """Rewrite the episodes sorted by (sample, task), in one step; equal episodes give equal bytes."""
        self._lock.check()
        ordered = [self.records[key] for key in sorted(self.records)]
        atomic_write(self.folder / EPISODES, b"".join(record.line() for record in ordered))

    def quarantine(self, samples: Iterable[int]) -> Path:
        """Move whole passes out of the way; they will be played again. Returns the folder they went to."""
        bad = set(samples)
        self._lock.check()
        target = _fresh(self.folder / "quarantined" / _date())
        moved = [self.records[key] for key in sorted(self.records) if key[0] in bad]
        atomic_write(target / EPISODES, b"".join(record.line() for record in moved))
        self.records = {key: record for key, record in self.records.items() if key[0] not in bad}
        self.finish()
        return target

    def _adopt(self, identity: dict[str, Any]) -> None:
        digest = sha256_hex(canonical_json(identity))
        path = self.folder / IDENTITY
        if path.exists():
            if sha256_hex(path.read_bytes()) == digest:
                return
            _move(self.folder, _fresh(self.folder / "superseded" / f"{_date()}-{_digest_of(path)}"))
        elif any((self.folder / name).exists() for name in FILES):
            _move(self.folder, _fresh(self.folder / "superseded" / f"{_date()}-unknown"))
        for earlier in sorted((self.folder / "superseded").glob(f"*-{digest[:SHORT]}*"), reverse=True):
            if (earlier / IDENTITY).exists() and _digest_of(earlier / IDENTITY) == digest[:SHORT]:
                _move(earlier, self.folder)
                return
        atomic_write(path, canonical_json(identity))


def read_episodes(path: Path) -> dict[tuple[int, int], EpisodeRecord]:
    """Records by (sample, task_index).

    Raises:
        DamagedEpisodes: names file and line.
    """
    records: dict[tuple[int, int], EpisodeRecord] = {}
    if not path.exists():
        return records
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                record = EpisodeRecord.model_validate_json(line)
            except ValidationError as error:
                fault = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise DamagedEpisodes(
                    f"{path}:{number} is no episode ({fault})", "Move the file aside and sweep again"
                ) from None
            if record.key in records:
                raise DamagedEpisodes(
                    f"{path}:{number} repeats task {record.task_index}, sample {record.sample}",
                    "Remove one of the two lines",
                )
            records[record.key] = record
    return records


def read_timings(path: Path) -> dict[tuple[int, int], Timing]:
    """Timings by (sample, task_index); of two, the later one."""
    if not path.exists():
        return {}
    timings = [Timing.model_validate_json(line) for line in path.read_bytes().splitlines()]
    return {(timing.sample, timing.task_index): timing for timing in timings}


def repair(path: Path) -> int:
    """Cut a torn last line off, or end a complete one. Returns the bytes cut."""
    if not path.exists():
        return 0
    with path.open("r+b") as handle:
        size = handle.seek(0, os.SEEK_END)
        tail_start = _last_newline(handle, size)
        handle.seek(tail_start)
        tail = handle.read()
        if not tail:
            return 0
        try:
            json.loads(tail)
        except ValueError:
            handle.truncate(tail_start)
            return len(tail)
        handle.write(b"\n")
        return 0


def _last_newline(handle: Any, size: int, chunk: int = 1 << 16) -> int:
    """Offset just behind the last newline; 0 where there is none."""
    end = size
    while end > 0:
        start = max(0, end - chunk)
        handle.seek(start)
        found = handle.read(end - start).rfind(b"\n")
        if found >= 0:
            return int(start + found + 1)
        end = start
    return 0


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(line)
        handle.flush()
        os.fsync(handle.fileno())


def _move(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (source / name).exists():
            (source / name).replace(target / name)


def _digest_of(path: Path) -> str:
    return sha256_hex(path.read_bytes())[:SHORT]


def _fresh(path: Path) -> Path:
    number, target = 1, path
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}-{number}")
    target.mkdir(parents=True)
    return target


def _date() -> str:
    return datetime.now(UTC).strftime("%Y%m%d")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
