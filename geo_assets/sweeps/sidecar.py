"""Outcomes of an episode file, from the small table beside it where that fits, else from the lines.

The table is trusted only for the very bytes it was made from. A stamp beside it keeps their SHA-256, the
table's own, and how the file looked (size, times, inode). Where the file looks the same, nothing is read but
the table; where it looks different and hashes the same (it was copied), the stamp is renewed; in every other
case the lines are read again and the table is written anew, on demand and by whoever asks first. A folder in
which nothing can be written is read from its lines every time.

Lines may be of our own form or of the published one (`published_form`). A torn last line is left out, and a
line that is no episode is left out and said: whoever makes a table of them decides what that means.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from env_service.canonical import sha256_file, sha256_hex
from env_service.errors import GeoError
from geo_assets.sweeps.episode_file import EPISODES, read_line
from geo_assets.sweeps.names import sweep_slug
from geo_assets.sweeps.outcomes import (
    PUBLISHED_FORM,
    SCHEMA,
    STAMP,
    Fault,
    Source,
    constants_of,
    outcome_row,
    rows_table,
    seen_of,
    unfit,
    unscored_in,
    write_sidecar,
    write_stamp,
)
from geo_assets.sweeps.published_form import published_row
from geo_assets.sweeps.store import OUTCOMES

OURS = (b'"provenance"', b'"schema_version"')
"""Both stand in every line of our own form, and together in no published one."""

MOST_FAULTS = 1000


@dataclass(frozen=True)
class Outcomes:
    """What an episode file holds.

    Attributes:
        table: one row per episode, by (arm, sample, task); of a (task, sample) played twice both stand.
        torn: bytes of a last line that was never finished.
        bad: lines that are no episodes, the first thousand of them.
        unscored: rows that are no play.
        published: a line of it is of the published form.
        constants: columns that were asked for as such and say one thing in all rows; they are not in `table`.
    """

    table: pa.Table
    torn: int = 0
    bad: tuple[Fault, ...] = ()
    unscored: int = 0
    published: bool = False
    constants: Mapping[str, str | None] = field(default_factory=dict)

    def part(self, columns: Sequence[str] | None, constants: Sequence[str] = ()) -> "Outcomes":
        """Some columns of it."""
        if columns is None:
            return self
        every = constants_of(self.table)
        same = {name: every[name] for name in constants if name in every}
        return replace(
            self, table=self.table.select([name for name in columns if name not in same]), constants=same
        )


def read_outcomes(
    path: Path,
    columns: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    constants: Sequence[str] = (),
) -> Outcomes:
    """Outcomes of an episode file, or of the one in a folder.

    Args:
        path: the file or its folder.
        columns: which are wanted; all if not given.
        say: told when the table had to be made again.
        constants: which of them need not be in the table where they say one thing in all rows.

    Raises:
        GeoError: there is no such file.
    """
    episodes = path / EPISODES if path.is_dir() else path
    if not episodes.exists():
        raise GeoError(
            f"No episodes stand in {episodes.parent}", f"Run: geo sweep {sweep_slug(episodes.parent)}"
        )
    kept = _kept(episodes, columns, constants)
    if kept is not None:
        return kept
    if episodes.with_name(OUTCOMES).exists():
        say(f"{episodes.with_name(OUTCOMES)} is not what its episodes give; it is made again from them")
    source, made = read_lines(episodes)
    with suppress(OSError):
        write_sidecar(episodes, source, made.table, made.torn, made.bad, made.published)
    return made.part(columns, constants)


def read_lines(episodes: Path) -> tuple[Source, Outcomes]:
    """Outcomes straight from the lines, and what the file was when they were read."""
    seen, digest = seen_of(episodes), hashlib.sha256()
    rows: list[dict[str, Any]] = []
    bad: list[Fault] = []
    torn, published = 0, False
    # A folder's name may be no Unicode, and then no table could hold it.
    arm = episodes.absolute().parent.name.encode(errors="replace").decode()
    with episodes.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            digest.update(line)
            ours = all(mark in line for mark in OURS)
            row = _row(line, arm, ours)
            published |= not ours and not isinstance(row, str)
            if not isinstance(row, str):
                rows.append(row)
            elif not line.endswith(b"\n"):
                torn = len(line)
            elif line.strip() and len(bad) < MOST_FAULTS:
                bad.append((number, row))
    table = rows_table(rows)
    return Source(digest.hexdigest(), seen), Outcomes(table, torn, tuple(bad), unscored_in(table), published)


def _row(line: bytes, arm: str, ours: bool) -> dict[str, Any] | str:
    """A line's row, or what is wrong with it."""
    if not ours:
        return published_row(line, arm)
    record = read_line(line)
    if isinstance(record, str):
        return record
    # Before a distance is made of them.
    row = unfit(record.result.model_dump(include={"guess_lat", "guess_lon", "true_lat", "true_lon"}))
    return row or unfit(found := outcome_row(record)) or found


def _kept(episodes: Path, columns: Sequence[str] | None, constants: Sequence[str]) -> Outcomes | None:
    """The table beside the file, if it is the table of exactly this file."""
    outcomes, path = episodes.with_name(OUTCOMES), episodes.with_name(STAMP)
    try:
        stamp = json.loads(path.read_bytes())
        data = outcomes.read_bytes()
        if sha256_hex(data) != stamp["outcomes_sha256"] or not _same(episodes, path, stamp):
            return None
        published = bool(stamp.get("published", False))
        bad = tuple((int(number), str(why)) for number, why in stamp["bad_lines"])
        if (published or bad) and stamp.get("published_form") != PUBLISHED_FORM:
            return None
        same = {name: stamp["constants"][name] for name in constants if name in stamp["constants"]}
        wanted = None if columns is None else [name for name in columns if name not in same]
        # Not `read_table`, which plans a scan of many files for each of these small ones.
        table = pq.ParquetFile(pa.BufferReader(data)).read(columns=wanted, use_threads=False)
        if not table.schema.equals(SCHEMA if wanted is None else _part(wanted), check_metadata=False):
            return None
        return Outcomes(table, int(stamp["torn_bytes"]), bad, int(stamp["unscored"]), published, same)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
        return None


def _same(episodes: Path, path: Path, stamp: dict[str, Any]) -> bool:
    """Whether the file is the one that was stamped; a copy of it is stamped anew."""
    seen = seen_of(episodes)
    # A file that changed within one tick of the clock of the stamp's writing may look as it did before.
    if list(seen) == stamp["episodes_seen"] and path.stat().st_mtime_ns > seen[2]:
        return True
    if seen[0] != stamp["episodes_seen"][0] or sha256_file(episodes) != stamp["episodes_sha256"]:
        return False
    with suppress(OSError):
        write_stamp(episodes, stamp | {"episodes_seen": list(seen)})
    return True


def _part(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in columns])
