"""The episode file as it is read: whole episodes, lines that are none, and a last line that was torn.

A line counts as an episode when it is one, when its outcome follows from its own raw figures (the distance
from guess and truth, the country hit from the two countries, the cost from the last call), when it is the
line that was once written, as far as that is known, and when its (task, sample) has not stood before.
Whatever else stands there is told apart from it, never guessed at and never mixed in.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from env_service.canonical import sha256_hex
from env_service.errors import GeoError
from env_service.geodesy import haversine_km
from geo_assets.sweeps.names import sweep_slug
from geo_assets.sweeps.records import EpisodeRecord, Result, Timing

EPISODES = "episodes.jsonl"
REJECTED = "rejected.jsonl"
KM_TOLERANCE = 1e-6
"""Distances are kept in full precision; this is what the last bits may do on another machine."""

Key = tuple[int, int]


class DamagedEpisodes(GeoError):
    """A line of the episode file is no episode; the message names file and line, and what loses it alone."""


@dataclass(frozen=True)
class BadLine:
    """A line that is no episode: its number from 1, its bytes, and what is wrong with it."""

    number: int
    line: bytes
    why: str


@dataclass(frozen=True)
class Reading:
    """What an episode file holds.

    Attributes:
        records: the episodes, by (sample, task_index).
        bad: whole lines that are no episodes.
        torn: bytes of a last line that was never finished.
    """

    records: dict[Key, EpisodeRecord]
    bad: tuple[BadLine, ...] = ()
    torn: int = 0


def read_file(path: Path, digests: Mapping[Key, str] | None = None) -> Reading:
    """Read an episode file; one that is not there holds nothing. Never raises over its content.

    Args:
        path: the file.
        digests: SHA-256 of the lines as they were written, by key, where known (`written_digests`).
    """
    records: dict[Key, EpisodeRecord] = {}
    bad: list[BadLine] = []
    if not path.exists():
        return Reading(records)
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            found = _episode(line, digests or {})
            if isinstance(found, EpisodeRecord) and found.key in records:
                found = f"repeats task {found.task_index}, sample {found.sample}"
            if isinstance(found, EpisodeRecord):
                records[found.key] = found
            elif line.endswith(b"\n"):
                bad.append(BadLine(number, line, found))
            else:
                return Reading(records, tuple(bad), len(line))
    return Reading(records, tuple(bad))


def read_episodes(path: Path, say: Callable[[str], None] = lambda _: None) -> dict[Key, EpisodeRecord]:
    """Records by (sample, task_index); a torn last line is left out, and said.

    Raises:
        DamagedEpisodes: names the first line that is no episode, and what to run.
    """
    reading = read_file(path)
    refuse_bad(path, reading)
    if reading.torn:
        say(f"{path}: a torn last line of {reading.torn:,} bytes is left out")
    return reading.records


def refuse_bad(path: Path, reading: Reading) -> None:
    """Refuse a file that holds more than episodes and a torn end.

    Raises:
        DamagedEpisodes: names the first such line, and what to run.
    """
    if reading.bad:
        first, more = reading.bad[0], len(reading.bad) - 1
        raise DamagedEpisodes(
            f"{path}:{first.number} {first.why}" + (f" (and {more} more such lines)" if more else ""),
            f"Run: geo sweep {sweep_slug(path.parent)} (it moves such lines to {REJECTED} and plays those "
            "episodes again, and no others)",
        )


def contradiction(result: Result) -> str:
    """What in an outcome does not follow from its own raw figures; empty where all does."""
    guess = result.guess_lat, result.guess_lon
    if result.outcome != "guess":
        return "has a distance without a guess" if result.distance_km is not None else ""
    if guess[0] is None or guess[1] is None or result.distance_km is None:
        return "has a guess without place or distance"
    km = haversine_km(guess[0], guess[1], result.true_lat, result.true_lon)
    if not math.isclose(km, result.distance_km, rel_tol=1e-9, abs_tol=KM_TOLERANCE):
        return f"says {result.distance_km:g} km where guess and truth lie {km:g} km apart"
    if result.country_hit != (
        result.country_code is not None and result.country_code == result.guess_country_code
    ):
        return "has a country hit that does not follow from its countries"
    return ""


def read_timings(path: Path) -> dict[Key, Timing]:
    """Timings by (sample, task_index); of two, the later one. Lines that are none are passed over."""
    if not path.exists():
        return {}
    timings: dict[Key, Timing] = {}
    for line in path.read_bytes().splitlines():
        try:
            timing = Timing.model_validate_json(line)
        except ValidationError:
            continue  # a line of timings is worth nothing, and least of all a sweep
        timings[timing.sample, timing.task_index] = timing
    return timings


def written_digests(timings: Path) -> dict[Key, str]:
    """SHA-256 of each episode's line as it was written, where its timing kept it."""
    known = read_timings(timings).items()
    return {key: timing.episode_sha256 for key, timing in known if timing.episode_sha256}


def line_digest(line: bytes) -> str:
    """SHA-256 of a line without its end."""
    return sha256_hex(line.rstrip(b"\r\n"))


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


def read_line(line: bytes) -> EpisodeRecord | str:
    """The episode of one line, or what is wrong with it."""
    return _episode(line, {})


def _episode(line: bytes, digests: Mapping[Key, str]) -> EpisodeRecord | str:
    """The episode of a line, or what is wrong with it."""
    try:
        record = EpisodeRecord.model_validate_json(line)
    except ValidationError as error:
        return f"is no episode ({error.errors(include_url=False, include_input=False)[0]['msg']})"
    wrong = contradiction(record.result)
    if not wrong and record.turns and record.turns[-1].cost != record.result.cost:
        wrong = "has another cost than its last call"
    if not wrong and digests.get(record.key, line_digest(line)) != line_digest(line):
        wrong = "is not the line that was written"
    return f"{wrong} (task {record.task_index}, sample {record.sample})" if wrong else record


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
