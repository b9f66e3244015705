"""Arms found in folders of episodes: whose they are, whether they are whole, and what bars them from a table.

A folder of ours says how many tasks and passes were wanted (`_beside`); a folder of anybody else's does not,
and then tasks are those that were tried and k the highest sample plus one, where attempts of the published
form count by rank, since some count from 1, and spoilt plays count as tried (`_attempts`). Either way an arm
is complete only if it holds every (task, sample) scored exactly once. Nothing is repaired here, and nothing
is guessed at: what does not fit is refused, with the reason.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from env_service.errors import GeoError
from env_service.scoring import BOARD_V1, GAME, Curve
from geo_assets.reports._attempts import count_logged, logged, numbered, ranked, unnumbered
from geo_assets.reports._beside import facts_beside, unconfirmed, unfinished
from geo_assets.reports._played import Played
from geo_assets.sweeps.episode_file import EPISODES
from geo_assets.sweeps.outcomes import UNSCORED as SPOILT
from geo_assets.sweeps.outcomes import unscored_in
from geo_assets.sweeps.sidecar import Outcomes, read_lines, read_outcomes
from geo_assets.sweeps.store import UNSCORED

NUMBERS = (
    *("task_index", "sample", "distance_km", "cost", "turns", "looks", "moves", "pins"),
    *("country_hit", "forced", "fabricated", "completion_tokens"),
)
SAID = ("protocol", "environment_version", "harness_version", "prompt_version", "stored_curve")
WORDS = ("arm", *SAID)
COLUMNS = (*WORDS, *NUMBERS)
KEPT = (*NUMBERS, "outcome")
SET_ASIDE = ("superseded", "quarantined")
"""Folders of a sweep whose episodes are kept and are no part of it."""
LISTED = 3
Say = Callable[[str], None]


class Refusal(NamedTuple):
    """What was refused, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class EpisodeArm(Played):
    """One arm as its episodes tell of it.

    Attributes:
        name: as the records call it.
        label: for people.
        base: its sweep says that it is a base arm.
        sweep: folder of the sweep, where one sweep played several arms; "" otherwise.
        parts: where its rows are.
        numbered_ids: ids of its tasks in their order, where records give them no numbers; else empty.
        said: what all records say alike, by column: protocol, versions.
        provider_errors: episodes that a provider spoilt, as logged; None where nothing tells.
    """

    name: str
    label: str
    base: bool
    sweep: str
    parts: tuple["_Part", ...] = field(repr=False)
    numbered_ids: tuple[str, ...] = field(default=(), repr=False)
    said: dict[str, str | None]
    provider_errors: int | None

    @cached_property
    def task_ids(self) -> tuple[str, ...]:
        """Ids of its tasks, in the order of their index."""
        if self.numbered_ids:
            return self.numbered_ids
        found: dict[int, str] = {}
        for part in self.parts:
            table = part.file.read(("arm", "task_index", "task_id")).table
            rows = table.filter(pc.equal(table["arm"], self.name))
            found |= dict(zip(rows["task_index"].to_pylist(), rows["task_id"].to_pylist(), strict=True))
        return tuple(found[index] for index in sorted(found) if index < self.tasks or not part.file.facts)


@dataclass(frozen=True)
class _File:
    """One episode file with what stands beside it."""

    path: Path
    outcomes: Outcomes
    facts: Mapping[str, Any]
    sweep: str
    read: Callable[[Sequence[str]], Outcomes]

    def words(self, column: str, table: pa.Table) -> list[str | None]:
        """What some rows of it say in a column of words, each thing once."""
        if column in self.outcomes.constants:
            return [self.outcomes.constants[column]]
        found: list[str | None] = pc.unique(table[column]).to_pylist()
        return found


@dataclass(frozen=True)
class _Part:
    """The rows of one arm in one file."""

    file: _File
    table: pa.Table

    def numbers(self, name: str, ids: bool) -> pa.Table:
        """Its rows as far as figures are made of them, with the ids of their tasks if they are needed."""
        table = self.table
        if ids:
            table = self.file.read((*COLUMNS, "outcome", "task_id")).table
            table = table.filter(pc.equal(table["arm"], name))
        return table.select([column for column in table.column_names if column in (*KEPT, "task_id")])


def find_arms(
    folders: Sequence[Path],
    curve: Curve = BOARD_V1,
    say: Say = lambda _: None,
    trusted: Path | None = None,
) -> tuple[list[EpisodeArm], list[Refusal]]:
    """Every arm below some folders, and what was refused.

    Args:
        folders: each holds `**/episodes.jsonl`, or is such a file.
        curve: under which rewards will be computed.
        say: told when an outcome table had to be made again.
        trusted: folder whose outcome tables are this machine's own work. Everywhere else the lines are read
            and a table beside them is not: whoever can alter a table can alter its stamp, too.

    Raises:
        GeoError: a folder holds no episode file.
    """
    home = os.path.realpath(trusted) if trusted else ""
    files = [_file(path, say, home) for folder in folders for path in _episode_files(folder)]
    refused = [refusal for file in files for refusal in _faults(file)]
    arms: list[EpisodeArm] = []
    for name, parts in _by_arm(files).items():
        arm, told = _arm(name, parts, curve)
        refused += told
        if arm is not None:
            arms.append(arm)
    return arms, refused


def _episode_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    found = [
        path
        for path in sorted(folder.rglob(EPISODES))
        if path.is_file() and not set(path.relative_to(folder).parts).intersection(SET_ASIDE)
    ]
    if not found:
        raise GeoError(
            f"{folder} holds no {EPISODES}", "Name a folder of episodes, such as .geo/sandbox/sweeps/ARM"
        )
    return found


def _file(path: Path, say: Say, trusted: str) -> _File:
    # The real path, so that a link out of the home is no way into it.
    tables = bool(trusted) and os.path.realpath(path).startswith(f"{trusted}{os.sep}")

    @cache
    def whole() -> Outcomes:
        return read_lines(path)[1]

    def read(columns: Sequence[str], constants: Sequence[str] = ()) -> Outcomes:
        try:
            if not tables:
                return whole().part(columns, constants)
            return read_outcomes(path, columns, say, constants)
        except OSError as error:
            raise GeoError(f"{path} cannot be read ({error.strerror})", "See to its permissions") from None

    outcomes = read(COLUMNS, WORDS)
    if outcomes.unscored:
        outcomes = read((*COLUMNS, "outcome"))
    facts, sweep = facts_beside(path.parent)
    return _File(path, outcomes, facts, sweep, read)


def _faults(file: _File) -> Iterator[Refusal]:
    for number, why in file.outcomes.bad[:LISTED]:
        yield Refusal(f"{file.path}:{number}", why)
    if len(file.outcomes.bad) > LISTED:
        yield Refusal(f"{file.path}", f"{len(file.outcomes.bad) - LISTED} more lines are no episodes")


def _by_arm(files: Iterable[_File]) -> dict[str, list[_Part]]:
    found: dict[str, list[_Part]] = {}
    for file in files:
        table = file.outcomes.table
        names = [str(name) for name in file.words("arm", table)]
        for name in names:
            rows = table if len(names) == 1 else table.filter(pc.equal(table["arm"], name))
            found.setdefault(name, []).append(_Part(file, rows))
    return found


def _arm(name: str, parts: Sequence[_Part], curve: Curve) -> tuple[EpisodeArm | None, list[Refusal]]:
    """One arm, or None where nothing of it may stand in a table; and what has to be said of it."""
    doubtful = next((why for part in parts if (why := unconfirmed(part.file.path.parent))), "")
    if doubtful:
        return None, [Refusal(f"arm {name}", doubtful)]
    refused = _curves(name, parts, curve)
    facts, sweep = parts[0].file.facts, parts[0].file.sweep
    logs = [] if facts else [logged(part.file.path, name) for part in parts]
    bare = unnumbered(*(part.table for part in parts), *(log.rows for log in logs))
    rows = [part.numbers(name, bare) for part in parts]
    spoilt = sum(map(_spoilt, rows))
    rows += [log.rows if bare else log.rows.drop(["task_id"]) for log in logs if log.rows.num_rows]
    table = pa.concat_tables(rows, promote_options="default") if len(rows) > 1 else rows[0]
    if not facts and all(part.file.outcomes.published for part in parts):
        table = ranked(table)
    table, ids = numbered(table) if bare else (table, ())
    played = _scored(table)
    if not played.num_rows:
        return None, [*refused, Refusal(f"arm {name}", "none of its episodes is scored")]
    keys = _keys(played)
    rising = bool((np.diff(keys) > 0).all())
    if not rising and len(np.unique(keys)) < len(keys):
        where = " and ".join(dict.fromkeys(str(part.file.path.parent) for part in parts))
        twice = len(keys) - len(np.unique(keys))
        why = f"{twice} of its (task, sample) stand there twice: {where}"
        return None, [*refused, Refusal(f"arm {name}", f"duplicate (arm, task, sample): {why}")]
    tasks, k = _wanted(table, facts)
    asked = "tasks" in facts
    if asked or not rising:
        inside = (keys // _STEP < k) & (keys % _STEP < tasks) if asked else np.ones(len(keys), bool)
        order = np.argsort(keys, kind="stable")
        played = played.take(pa.array(order[inside[order]]))
    said, mixed = _said(name, parts)
    if mixed is not None:
        return None, [*refused, mixed]
    why = _incomplete(played.num_rows, tasks, k, parts)
    why = why or next((f"incomplete: {log.fault}" for log in logs if log.fault), "")
    if why:
        refused.append(Refusal(f"arm {name}", why))
    return (
        EpisodeArm(
            tasks=tasks,
            k=k,
            complete=not why,
            columns={column: _array(played[column]) for column in NUMBERS},
            curve=curve,
            name=name,
            label=str(facts.get("label") or name),
            base=facts.get("arm_kind") == "base",
            sweep=sweep,
            parts=tuple(parts),
            numbered_ids=ids,
            said=said,
            provider_errors=_provider_errors(parts, spoilt),
        ),
        refused,
    )


def _spoilt(table: pa.Table) -> int:
    """Rows that are no play."""
    return unscored_in(table) if "outcome" in table.column_names else 0


def _scored(table: pa.Table) -> pa.Table:
    return table.filter(pc.not_equal(table["outcome"].fill_null(""), SPOILT)) if _spoilt(table) else table


_STEP = 2**32


def _keys(table: pa.Table) -> NDArray[np.int64]:
    result: NDArray[np.int64] = _array(table["sample"]).astype(np.int64) * _STEP + _array(table["task_index"])
    return result


def _wanted(table: pa.Table, facts: Mapping[str, Any]) -> tuple[int, int]:
    """Tasks and passes: as the sweep says, or as they were tried, in vain or not."""
    tasks, k = facts.get("tasks"), facts.get("k")
    if isinstance(tasks, int) and isinstance(k, int) and tasks > 0 and k > 0:
        return tasks, k
    return len(np.unique(_array(table["task_index"]))), int(_array(table["sample"]).max()) + 1


def _incomplete(episodes: int, tasks: int, k: int, parts: Sequence[_Part]) -> str:
    """Why an arm is no whole sweep; empty where it is."""
    if cut := unfinished(parts[0].file.facts):
        return f"incomplete: {episodes:,} episodes; {cut}"
    expected = tasks * k
    if episodes != expected:
        ratio = episodes / tasks
        odd = "" if episodes % tasks == 0 else f"; k = {episodes} / {tasks} = {ratio:.4g} is no integer"
        return f"incomplete: {episodes:,} of {expected:,} episodes ({tasks} tasks × {k} passes){odd}"
    unread = [part.file for part in parts if part.file.outcomes.bad or part.file.outcomes.torn]
    if unread and not parts[0].file.facts:
        return f"incomplete: {unread[0].path} holds lines that are no episodes, and nothing says whose"
    return ""


def _said(name: str, parts: Sequence[_Part]) -> tuple[dict[str, str | None], Refusal | None]:
    found: dict[str, str | None] = {}
    for column in SAID[:-1]:
        values = list({value for part in parts for value in part.file.words(column, part.table)})
        if len(values) > 1:
            told = ", ".join(sorted("none" if value is None else str(value) for value in values))
            what = f"mixed {column.replace('_', ' ')}s within one arm: {told}"
            return {}, Refusal(f"arm {name}", what)
        found[column] = values[0]
    return found, None


def _curves(name: str, parts: Sequence[_Part], curve: Curve) -> list[Refusal]:
    """Stored rewards that another curve made: they are not read, and that is said.

    The environment's own game reward is no claim about a table and needs no word.
    """
    stored = {value for part in parts for value in part.file.words("stored_curve", part.table)}
    other = sorted(value for value in stored if value not in (None, curve.name, GAME.name))
    if not other:
        return []
    why = (
        f"they are under another curve ({', '.join(other)}); "
        f"recomputed from distance and cost by {curve.name}"
    )
    return [Refusal(f"stored rewards of {name}", why)]


def _provider_errors(parts: Sequence[_Part], spoilt: int) -> int | None:
    logs = [part.file.path.with_name(UNSCORED) for part in parts]
    told = any(part.file.facts for part in parts) or any(log.exists() for log in logs) or spoilt
    return count_logged(logs) + spoilt if told else None


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    result: NDArray[Any] = column.to_numpy()
    return result
