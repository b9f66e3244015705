"""What version an environment is, and the configuration that serves it.

The data version of an environment is its behaviour: the code that an episode runs through (the environment
class, its tools, views, maps and look-ups, with the data they read), the task index, the imagery by hash,
and the rules of play. The server around it with its session cap, the play page and the client are outside:
they carry episodes and do not alter them.
"""

import json
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from env_service.tasks import Task, read_tasks
from geo_assets.config.settings import EnvironmentSpec
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.folders import Published
from geo_assets.lineage.versions import content_version

BEHAVIOUR = ("env_service.environment:GeoGuessrEnvironment", "env_service.game", "env_service.imagery")
"""What an episode runs through. Game and imagery are handed to the environment by whoever serves it."""
LIBRARIES = ("numpy", "pillow", "shapely", "simplejpeg")
BEHAVIOUR_INPUTS = tuple(f"deploy/locks/cpu.txt#{name}" for name in LIBRARIES)
"""Libraries whose version could alter a picture's bytes or a country."""
CONFIG, TASKS = "config.json", "tasks.jsonl"


def behaviour_code() -> str:
    """Fingerprint of everything an episode runs through."""
    return code_version(BEHAVIOUR, inputs=BEHAVIOUR_INPUTS)


def environment_version(split: Published, mirror: Published, spec: EnvironmentSpec) -> str:
    """The data version of an environment."""
    return content_version(
        {
            "behaviour": behaviour_code(),
            "index": split.data_version,
            "imagery": mirror.data_version,
            "rules": spec.rules(),
        }
    )


def tasks_of(split: Published) -> tuple[Task, ...]:
    """The tasks of a split; an empty split has none.

    Raises:
        TaskFileError: the file is damaged; the sentence names the line.
    """
    return read_tasks(split.path / TASKS) if split.facts.get("tasks") else ()


def configuration(name: str, tasks: str, panos: str, version: str, spec: EnvironmentSpec) -> dict[str, Any]:
    """The file for `python -m env_service.server --config`: one split under its name.

    Args:
        tasks, panos: task file and picture store; relative paths are taken from the file's own folder.
    """
    return {
        "splits": {name: {"tasks": tasks, "panos": panos}},
        "mode": "simulation",
        "play": spec.mode,
        "max_turns": spec.max_turns,
        "view_px": spec.view_px,
        "max_concurrent": spec.max_concurrent,
        "environment_version": version,
    }


def write_configuration(path: Path, config: dict[str, Any]) -> Path:
    """Write a configuration in one step; returns `path`."""
    atomic_write(path, json.dumps(config, indent=2).encode() + b"\n")
    return path
