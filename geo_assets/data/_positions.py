"""Where the frames of many tasks lie, as arrays: what the split is computed from.

A pool of 100,000 drives of 24 frames is 2.4 million positions. As objects that is several gigabytes, as
arrays some hundred megabytes, so task files are read line by line and only positions and the few fields the
rules need are kept. The rows themselves are read again, one by one, when a split is written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from env_service.errors import GeoError


@dataclass(frozen=True)
class TaskFacts:
    """What the rules ask of a task besides its positions; quality is None where unknown."""

    task_id: str
    sequence_id: str
    creator_id: str
    country: str
    quality: float | None
    offline_ready: bool


@dataclass(frozen=True)
class Positions:
    """Tasks with the positions of all their frames.

    Attributes:
        tasks: one entry per task, in file order.
        lat, lon: (frames,) degrees, task after task.
        start: (tasks + 1,) first frame of each task in those arrays; the last entry is their length.
    """

    tasks: Sequence[TaskFacts]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    start: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def owner(self) -> NDArray[np.int64]:
        """(frames,) the task of each frame."""
        return np.repeat(np.arange(len(self.tasks)), np.diff(self.start))

    def frames_of(self, chosen: Iterable[int]) -> NDArray[np.int64]:
        """Frame numbers of the chosen tasks, in their order."""
        runs = [np.arange(self.start[task], self.start[task + 1]) for task in chosen]
        return np.concatenate(runs) if runs else np.empty(0, np.int64)

    def subset(self, chosen: Sequence[int]) -> "Positions":
        """The chosen tasks alone, in the order given."""
        frames = self.frames_of(chosen)
        lengths = np.diff(self.start)[list(chosen)] if len(chosen) else np.empty(0, np.int64)
        return Positions(
            [self.tasks[task] for task in chosen],
            self.lat[frames],
            self.lon[frames],
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )


def read_positions(path: Path) -> Positions:
    """Positions and facts of the tasks in a file that a stage of ours wrote.

    Raises:
        GeoError: a line is no task row.
    """
    number = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal number
        for row in rows_in(path):
            number += 1
            yield row

    try:
        return positions_of(counted())
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _no_row(path, number) from None


def positions_of(rows: Iterable[Mapping[str, Any]]) -> Positions:
    """Collect positions and facts from task rows, which may be a stream."""
    tasks: list[TaskFacts] = []
    lat, lon, start = _Grown(), _Grown(), [0]
    for row in rows:
        frames = row["frames"]
        meta, attribution = row.get("meta") or {}, row.get("attribution") or {}
        quality = meta.get("quality_score")
        tasks.append(
            TaskFacts(
                task_id=str(row["task_id"]),
                sequence_id=str(row["sequence_id"]),
                creator_id=str(attribution.get("creator_id", "")),
                country=str(row.get("country_code") or row["country"]),
                quality=float(quality) if isinstance(quality, int | float) else None,
                offline_ready=bool(meta.get("offline_ready", False)),
            )
        )
        lat.extend([frame["lat"] for frame in frames])
        lon.extend([frame["lon"] for frame in frames])
        start.append(start[-1] + len(frames))
    return Positions(tasks, lat.array(), lon.array(), np.array(start, np.int64))


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a task file that a stage of ours wrote, one at a time; an empty file has none.

    Raises:
        GeoError: a line is no JSON object.
    """
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise _no_row(path, number)
            yield row


def _no_row(path: Path, number: int) -> GeoError:
    return GeoError(f"{path}:{number} is no task row", f"Run: geo build --only {path.parent.name}")


class _Grown:
    """A float64 array that grows by doubling, so that a stream is never held twice as Python objects."""

    def __init__(self) -> None:
        self._data = np.empty(1024, np.float64)
        self._used = 0

    def extend(self, values: Sequence[float]) -> None:
        need = self._used + len(values)
        if need > len(self._data):
            self._data = np.resize(self._data, max(need, 2 * len(self._data)))
        self._data[self._used : need] = values
        self._used = need

    def array(self) -> NDArray[np.float64]:
        return self._data[: self._used].copy()
