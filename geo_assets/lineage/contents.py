"""What files a finished asset's folder held when it was published, and what has become of them since.

The marker keeps each file's size, and the hash of those that are small. Looking at them again costs a stat
per file; a small file is read anew only where it is younger than the marker. Stores of many files have
manifests and checks of their own, so a folder of more than `LARGEST` files is not listed; nor is what goes on
being written after an asset is finished: logs, locks, journals, what calls took.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from env_service.canonical import sha256_file

LARGEST = 1000
HASHED_BYTES = 4 << 20
DIGITS = 16
JOURNALS = {
    "calls.json",
    "endpoint.json",
    "episodes.jsonl",  # a sweep's own check counts them
    "fetched.jsonl",
    "journal.jsonl",
    "outcomes.json",  # whoever reads a sweep makes these two again from its episodes
    "outcomes.parquet",
    "timings.jsonl",
}
MADE_FROM = "_lineage.json"
"""What it was made from; no part of its content."""
JOURNAL_FOLDERS = {"__pycache__", "verified"}
PASSING = {".guard", ".lock", ".log", ".tmp"}

Listing = Mapping[str, tuple[int, str]]
"""Path within the folder to size, and to the hash's first digits where the file is small (else empty)."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a folder: something is gone or torn ("missing"), or is other content ("data")."""

    kind: Literal["missing", "data"]
    what: str


def listing(folder: Path, marker: str) -> dict[str, tuple[int, str]]:
    """The files of a folder as they are now.

    Args:
        marker: name of the file that says of a folder that it is an asset's own.
    """
    found: dict[str, tuple[int, str]] = {}
    if not folder.is_dir():
        return found
    for path in sorted(_files(folder, marker)):
        size = path.stat().st_size
        found[path.relative_to(folder).as_posix()] = (size, _hash(path) if size <= HASHED_BYTES else "")
    return found


def parsed(value: object) -> dict[str, tuple[int, str]]:
    """A listing from JSON.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("no listing")
    found: dict[str, tuple[int, str]] = {}
    for name, entry in value.items():
        match entry:
            case [int(size), str(digest)]:
                found[name] = (size, digest)
            case _:
                raise ValueError(f"{name} has no size")
    return found


def altered(folder: Path, files: Listing, published_ns: int) -> Fault | None:
    """The first thing that is not as it was published; None where all is. New files do not count.

    Args:
        published_ns: when the marker was written.
    """
    other: Fault | None = None
    for name, (size, digest) in files.items():
        path = folder / name
        try:
            now = path.stat()
        except OSError:
            return Fault("missing", f"its file {name} is gone")
        if now.st_size < size:
            return Fault("missing", f"its file {name} is torn: {now.st_size:,} of {size:,} bytes")
        changed = now.st_size != size
        if not changed and digest and now.st_mtime_ns > published_ns:
            changed = _hash(path) != digest
        if changed and other is None:
            other = Fault("data", f"its file {name} has other content than was published")
    return other


def _files(folder: Path, marker: str) -> Iterator[Path]:
    """Files that belong to an asset's content, links and the folders of other assets left out."""
    with os.scandir(folder) as entries:
        here = list(islice(entries, LARGEST + 1))
    if len(here) > LARGEST:
        return
    for entry in here:
        if entry.name.startswith(".") or entry.name in (marker, MADE_FROM) or entry.is_symlink():
            continue
        if entry.is_dir():
            if entry.name not in JOURNAL_FOLDERS and not Path(entry.path, marker).exists():
                yield from _files(Path(entry.path), marker)
        elif entry.name not in JOURNALS and Path(entry.name).suffix not in PASSING:
            yield Path(entry.path)


def _hash(path: Path) -> str:
    return sha256_file(path)[:DIGITS]
