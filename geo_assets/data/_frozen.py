"""The eval index that is committed, and how a split differs from it.

A benchmark changes only where it can be seen to: `geo freeze NAME` writes the eval rows (metadata, no
pictures) to `geo_assets/benchmarks/NAME.jsonl` and declares in `frozen.json` for which profile it holds, and
under which stage values it was made. From then on a split of that profile that differs fails its check until
a new name is frozen, whatever made it differ: other code, other pictures or other stage values. A copy of the
repository that is to be another benchmark freezes its own name, or declares nothing.

Two splits are alike where they hold the same tasks in the same order: the same frames at the same positions.
Where pictures were rendered anew, their hashes differ and the index does not.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError
from env_service.geodesy import haversine_km
from env_service.tasks import Task, read_tasks, write_tasks
from geo_assets.config.settings import REPOSITORY
from geo_assets.lineage.assets import Check, Stage
from geo_assets.lineage.versions import content_version

BENCHMARKS = Path("geo_assets") / "benchmarks"
DECLARED = "frozen.json"
CHECK = "matches_frozen_index"
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,60}")
SAME_PLACE_KM = 1e-6
SAME_DEGREES = 1e-9
"""A tenth of a millimetre on the ground: the last digits differ from one processor to another."""
NAMED = 20


@dataclass(frozen=True)
class Difference:
    """How a split differs from a frozen index; a task is known by its opening picture."""

    added: tuple[Task, ...]
    removed: tuple[Task, ...]
    moved: tuple[tuple[Task, Task, str], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.moved)

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by what became of them."""
        return {"added": len(self.added), "removed": len(self.removed), "moved": len(self.moved)}

    def lines(self) -> list[str]:
        """A line per task: `+` added, `-` removed, `~` moved."""
        lines = [f"+ {_told(task)}" for task in self.added]
        lines += [f"- {_told(task)}" for task in self.removed]
        return lines + [f"~ {_told(task)}: {how}" for _, task, how in self.moved]


def benchmarks() -> Path:
    """The folder of frozen indexes, below `GEO_ROOT` (the repository if it is not set)."""
    return Path(os.environ.get("GEO_ROOT") or REPOSITORY) / BENCHMARKS


def difference(before: Sequence[Task], after: Sequence[Task]) -> Difference:
    """What a split has, lacks and has elsewhere, compared with a frozen index."""
    old = {task.start.image_id: task for task in before}
    new = {task.start.image_id: task for task in after}
    moved = [
        (old[key], task, how) for key, task in new.items() if key in old and (how := _moved(old[key], task))
    ]
    return Difference(
        tuple(task for key, task in new.items() if key not in old),
        tuple(task for key, task in old.items() if key not in new),
        tuple(moved),
    )


def split_values(stage: Stage) -> str:
    """Version of the stage values that decide what the eval split is."""
    specs = stage.specs
    parts = (specs.world, specs.tiles, specs.candidates, specs.pool, specs.mirror, specs.split)
    return content_version({"profile": stage.settings.profile, "specs": [asdict(part) for part in parts]})


def declared(stage: Stage) -> str:
    """Name of the index that is frozen for a profile, whatever its stage values are now; empty for none.

    Raises:
        GeoError: the declaration cannot be read.
    """
    return str(_declaration(stage).get("name", ""))


def _declaration(stage: Stage) -> dict[str, str]:
    return declarations().get(stage.settings.profile, {})


def declarations() -> dict[str, dict[str, str]]:
    """What is frozen, by profile.

    Raises:
        GeoError: the file cannot be read.
    """
    path = benchmarks() / DECLARED
    if not path.exists():
        return {}
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return {str(profile): dict(entry) for profile, entry in body.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        raise GeoError(f"{path} cannot be read", "Restore it from version control") from None


def frozen_version(stage: Stage) -> str:
    """What of the frozen index enters the code version of the split: its name and its bytes."""
    name = declared(stage)
    path = benchmarks() / f"{name}.jsonl"
    return f"{name}:{sha256_file(path) if path.exists() else 'gone'}" if name else ""


def frozen_check(stage: Stage, tasks: Path, count: int) -> Check:
    """Whether the eval split is the frozen one; passed, and said, where none is declared."""
    name = declared(stage)
    if not name:
        return Check(CHECK, True, {"frozen": "nothing is frozen for this profile"})
    path = benchmarks() / f"{name}.jsonl"
    if not path.exists():
        return Check(CHECK, False, {"frozen": name, "why": f"{path} is gone"})
    found = difference(read_tasks(path), read_tasks(tasks) if count else ())
    said: dict[str, Any] = {"frozen": name, **found.counts, "limit": 0}
    if found:
        said["difference"] = "\n".join(_some(found.lines()))
        if _declaration(stage).get("values") != split_values(stage):
            said["why"] = f"the stage values are not those under which {name} was frozen"
        said["fix"] = "Freeze it under a new name (geo freeze NAME), or put the split back as it was"
    return Check(CHECK, not found, said)


def freeze(stage: Stage, name: str, tasks: Sequence[Task]) -> Difference:
    """Write an index and declare it for the profile.

    Returns:
        How it differs from what was declared for the profile before; from nothing, all is added.

    Raises:
        GeoError: the name is no name, or it is frozen with other tasks.
    """
    if not NAME.fullmatch(name):
        raise GeoError(
            f"{name!r} is no name of a benchmark", "Use small letters, digits, dots and dashes: sandbox-v1"
        )
    path = benchmarks() / f"{name}.jsonl"
    if path.exists() and (changed := difference(read_tasks(path), tasks)):
        raise GeoError(
            f"{name} is frozen, and the eval split differs from it ({_counts(changed.counts)})",
            "Frozen indexes never change: freeze it under the next name",
        )
    every = declarations()
    earlier = benchmarks() / f"{every.get(stage.settings.profile, {}).get('name', '')}.jsonl"
    before = read_tasks(earlier) if earlier.exists() else ()
    if not path.exists():  # what is frozen keeps its bytes, on whatever processor it is frozen again
        write_tasks(path, tasks)
    every[stage.settings.profile] = {"name": name, "values": split_values(stage)}
    body = json.dumps(dict(sorted(every.items())), indent=1)
    atomic_write(benchmarks() / DECLARED, body.encode() + b"\n")
    return difference(before, tasks)


def _moved(old: Task, new: Task) -> str:
    km = haversine_km(old.start.lat, old.start.lon, new.start.lat, new.start.lon)
    if km > SAME_PLACE_KM:
        return f"moved by {km * 1000:,.1f} m"
    if old.task_index != new.task_index:
        return f"was number {old.task_index}"
    if not _same_frames(old, new):
        return "has other frames"
    if (old.country, old.country_code) != (new.country, new.country_code):
        return f"was in {old.country}"
    return ""


def _same_frames(old: Task, new: Task) -> bool:
    def said(task: Task) -> list[tuple[Any, ...]]:
        return [(f.image_id, f.captured_at, f.is_pano) for f in task.frames]

    pairs = zip(old.frames, new.frames, strict=False)
    return said(old) == said(new) and all(
        _close(one.lat, other.lat)
        and _close(one.lon, other.lon, 360.0)
        and _close(one.compass_angle, other.compass_angle, 360.0)
        for one, other in pairs
    )


def _close(one: float | None, other: float | None, turn: float = math.inf) -> bool:
    """Alike to within `SAME_DEGREES`, also across the end of a turn."""
    if one is None or other is None:
        return one is other
    apart = abs(one - other)
    return min(apart, abs(turn - apart)) <= SAME_DEGREES


def _told(task: Task) -> str:
    return f"{task.task_id} {task.country} {task.start.lat:.5f}, {task.start.lon:.5f} ({task.sequence_id})"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _some(lines: Iterable[str]) -> list[str]:
    shown = list(lines)
    return shown[:NAMED] + ([f"and {len(shown) - NAMED} more"] if len(shown) > NAMED else [])
