"""A recorded episode by the name that a person types: `ARM/TASK/SAMPLE`, or `SWEEP/ARM/TASK/SAMPLE`."""

from pathlib import Path

from env_service.errors import GeoError
from geo_assets.sweeps.episode_file import EPISODES, read_episodes
from geo_assets.sweeps.names import SWEEPS, member_folder
from geo_assets.sweeps.records import EpisodeRecord

FORM = "ARM/TASK/SAMPLE, such as noisy_oracle/0/0; of an adapter's sweep SWEEP/ARM/TASK/SAMPLE"


def find_episode(name: str, home: Path) -> EpisodeRecord:
    """The episode of that name below a home; a path to a folder of episodes may stand for the arm.

    Raises:
        GeoError: it is no such name, or there is no such episode.
        DamagedEpisodes: the file holds lines that are no episodes.
    """
    where, task, sample = _taken_apart(name)
    path = _file(where, home)
    records = read_episodes(path)
    record = records.get((sample, task))
    if record is None:
        tasks, samples = {key[1] for key in records}, {key[0] for key in records}
        raise GeoError(
            f"{path.parent} holds no episode of task {task}, sample {sample}",
            f"It holds {len(records):,} episodes: tasks {_range(tasks)}, samples {_range(samples)}",
        )
    return record


def _taken_apart(name: str) -> tuple[str, int, int]:
    where, _, sample = name.rstrip("/").rpartition("/")
    where, _, task = where.rpartition("/")
    if not where or not task.isdecimal() or not sample.isdecimal():
        raise GeoError(f"{name!r} names no episode", f"Write {FORM}")
    return where, int(task), int(sample)


def _file(where: str, home: Path) -> Path:
    parts = where.split("/")
    folders = [Path(where), home / SWEEPS / where]
    if len(parts) == 1:
        folders.append(home / member_folder(where, where))
    for folder in folders:
        if (folder / EPISODES).is_file():
            return folder / EPISODES
    known = sorted(
        str(path.parent.relative_to(home / SWEEPS)) for path in (home / SWEEPS).glob("*/episodes.jsonl")
    )
    raise GeoError(f"No episodes of {where} stand in {home}", f"There are: {', '.join(known) or 'none'}")


def _range(values: set[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else "none"
