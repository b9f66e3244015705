"""Episodes of one sweep on disk: append-only, resumable, never lost and never mixed.

    episodes.jsonl    one record per (task, sample); sorted once the sweep has ended
    timings.jsonl     how long each took and the digest of its line; apart, so that episodes are the same
                      bytes however they were made
    rejected.jsonl    lines that are no episodes, or not what was written; their episodes are played again
    unscored.jsonl    a log of episodes that a provider spoilt; they are played again
    calls.json        what the calls of each run ended in, and their tokens
    endpoint.json     what the endpoint was found to be before and after
    unconfirmed.json  of a run that has not looked at its endpoint a second time: what it saw the first time
    identity.json     for which environment, arm and harness the episodes are valid
    superseded/       episodes of another identity, under the date they were moved aside
    quarantined/      passes of an endpoint that turned out dead

Invariants: a line is complete or is the last one; (task, sample) is unique; an episode that stands here is
never played again while the identity holds; nothing is ever deleted. An identity that comes back finds its
episodes again.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, canonical_json, sha256_hex
from geo_assets.lineage.folders import MARKER
from geo_assets.sweeps.episode_file import (
    EPISODES,
    REJECTED,
    DamagedEpisodes,
    Reading,
    line_digest,
    read_file,
    repair,
    written_digests,
)
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.records import EpisodeRecord, Timing
from geo_assets.sweeps.spending import CALLS, SUPERSEDED

TIMINGS = "timings.jsonl"
UNSCORED = "unscored.jsonl"
LOOKED = "endpoint.json"
UNCONFIRMED = "unconfirmed.json"
IDENTITY = "identity.json"
OUTCOMES = "outcomes.parquet"
# In the order of moving: what says that the folder is finished goes first, what says whose it is goes last.
FILES = (
    MARKER,
    OUTCOMES,
    LOOKED,
    EPISODES,
    REJECTED,
    TIMINGS,
    UNSCORED,
    CALLS,
    UNCONFIRMED,
    IDENTITY,
)
SHORT = 12


class SweepStore:
    """The episodes of one sweep, open for writing.

    Args:
        folder: the sweep's folder.
        lock: held by the caller for as long as the store is used.
        identity: JSON value; episodes are valid for this one and no other.
        say: told of what was set aside.
    """

    def __init__(
        self,
        folder: Path,
        lock: WriterLock,
        identity: Mapping[str, Any],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self._lock = lock
        self._adopt(dict(identity))
        if cut := repair(self.folder / EPISODES):
            say(f"{self.folder / EPISODES}: cut off a torn last line of {cut:,} bytes")
        repair(self.folder / TIMINGS)
        reading = read_file(self.folder / EPISODES, written_digests(self.folder / TIMINGS))
        self.records = reading.records
        self._reject(reading, say)

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
        line = record.line()
        timing = timing.model_copy(update={"episode_sha256": line_digest(line)})
        # The timing first: a missing one would stay missing, while a second one replaces the first.
        _append(self.folder / TIMINGS, canonical_json(timing.model_dump(mode="json")) + b"\n")
        _append(self.folder / EPISODES, line)
        self.records[record.key] = record

    def unscored(
        self, task_index: int, sample: int, fault: str, problem: str, causes: Mapping[str, int] | None = None
    ) -> None:
        """Log an episode that the provider spoilt, and what its calls ended in."""
        body = {"task_index": task_index, "sample": sample, "fault": fault, "problem": problem, "at": _now()}
        body["causes"] = dict(causes or {})
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
        return self.set_aside(key for key in self.records if key[0] in bad)

    def set_aside(self, keys: Iterable[tuple[int, int]]) -> Path:
        """Move episodes out of the way; they will be played again. Returns the folder they went to."""
        bad = set(keys)
        self._lock.check()
        target = _fresh(self.folder / "quarantined" / _date())
        moved = [self.records[key] for key in sorted(self.records) if key in bad]
        atomic_write(target / EPISODES, b"".join(record.line() for record in moved))
        self.records = {key: record for key, record in self.records.items() if key not in bad}
        self.finish()
        return target

    def _reject(self, reading: Reading, say: Callable[[str], None]) -> None:
        """Set aside every line that is no episode, so that it alone is played again."""
        if not reading.bad:
            return
        self._lock.check()
        # Set aside before it is taken out: a kill in between leaves a line twice, and never nowhere.
        _append(self.folder / REJECTED, b"".join(bad.line for bad in reading.bad))
        self.finish()
        for bad in reading.bad:
            say(f"{self.folder / EPISODES}:{bad.number} {bad.why}; the line was moved to {REJECTED}")

    def _adopt(self, identity: dict[str, Any]) -> None:
        digest = sha256_hex(canonical_json(identity))
        path = self.folder / IDENTITY
        if path.exists():
            if sha256_hex(path.read_bytes()) == digest:
                return
            _move(self.folder, _fresh(self.folder / SUPERSEDED / f"{_date()}-{_digest_of(path)}"))
        elif any((self.folder / name).exists() for name in FILES):
            _move(self.folder, _fresh(self.folder / SUPERSEDED / f"{_date()}-unknown"))
        for earlier in sorted((self.folder / SUPERSEDED).glob(f"*-{digest[:SHORT]}*"), reverse=True):
            if (earlier / IDENTITY).exists() and _digest_of(earlier / IDENTITY) == digest[:SHORT]:
                _move(earlier, self.folder)
                return
        atomic_write(path, canonical_json(identity))


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
