"""Is an environment fit to be played? Asked of the running service, before anything is spent on it.

A parent whose check failed has still been materialized, so these checks block what follows in the same run,
and whoever spends money asks for their outcome again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.client import num_tasks
from env_service.store import MissingFrame, PanoramaStore
from env_service.tasks import Task
from geo_assets.config.settings import EnvironmentSpec
from geo_assets.data._store import open_store
from geo_assets.environment._playing import evenly, fill_up, openings, play, served
from geo_assets.lineage.assets import Check, CheckSpec, StageRun

SERVES, DETERMINISM, OFFLINE, CAPACITY = "serves", "determinism", "offline_completeness", "capacity"
COMPARED = 6
REMOTE_SAMPLE = 200

CHECKS = (
    CheckSpec(SERVES, "The service starts, lists every task, and an episode is played to its reward."),
    CheckSpec(DETERMINISM, "Two processes show the same opening pictures, byte for byte."),
    CheckSpec(OFFLINE, "Every frame of every task is in the store, with the hash of the manifest."),
    CheckSpec(CAPACITY, "As many sessions as the cap open at once; one more is refused by name."),
)


@dataclass(frozen=True)
class Readiness:
    """Outcomes of all checks, and the opening pictures that were seen on the way."""

    checks: tuple[Check, ...]
    views: tuple[bytes, ...] = ()


def readiness(
    run: StageRun,
    config: Path,
    split: str,
    tasks: tuple[Task, ...],
    manifest: dict[str, dict[str, str]],
) -> Readiness:
    """All checks of a built environment.

    Raises:
        GeoError: the service does not start.
    """
    spec = run.specs.environment
    run.say(f"{split}: looking for {len(manifest['frames']):,} frames")
    complete = offline_completeness(open_store(run.settings.store_url), tasks, manifest)
    if not complete.passed:
        why = {"skipped": "the imagery is incomplete"}
        return Readiness((complete, *(Check(name, False, why) for name in (SERVES, DETERMINISM, CAPACITY))))
    picked = evenly(len(tasks), COMPARED)
    run.say(f"{split}: starting the service twice")
    with served(config, sessions=spec.max_concurrent) as url:
        first = openings(url, split, picked)
        serves, capacity = _serves(url, split, tasks), _capacity(url, split, spec)
    with served(config, sessions=spec.max_concurrent) as url:
        second = openings(url, split, picked)
    differing = sum(a != b for a, b in zip(first, second, strict=True))
    same = Check(
        DETERMINISM,
        not differing,
        {"processes": 2, "openings_compared": len(picked), "differing": differing, "limit": 0},
    )
    return Readiness((serves, same, complete, capacity), tuple(first))


def skipped(why: str) -> list[Check]:
    """The same checks for an environment that has nothing to play, saying so."""
    return [Check(check.name, True, {"skipped": why}) for check in CHECKS]


def offline_completeness(
    store: PanoramaStore, tasks: tuple[Task, ...], manifest: dict[str, dict[str, str]]
) -> Check:
    """Look for every frame; hash all of a local store, and an even sample of a remote one."""
    hashes = manifest["frames"]
    frames = sorted({frame.image_id for task in tasks for frame in task.frames})
    unlisted = [name for name in frames if name not in hashes]
    listed = [name for name in frames if name in hashes]
    remote = "://" in store.url
    there = set(store.list_ids()) if remote else set(listed)  # one listing, not a round trip a frame
    absent = [name for name in listed if name not in there]
    picked = [listed[place] for place in evenly(len(listed), REMOTE_SAMPLE)] if remote else listed
    changed: list[str] = []
    for name in picked:
        try:
            if store.sha256(name) != hashes[name]:
                changed.append(name)
        except MissingFrame:
            absent.append(name)
    faults = [*unlisted, *absent, *changed]
    metadata: dict[str, Any] = {
        "frames": len(frames),
        "hashed": len(picked),
        "not_in_manifest": len(unlisted),
        "absent": len(absent),
        "changed": len(changed),
        "limit": 0,
    }
    return Check(OFFLINE, not faults, metadata | ({"first_fault": faults[0]} if faults else {}))


def _serves(url: str, split: str, tasks: tuple[Task, ...]) -> Check:
    listed = num_tasks(url, split)
    episode = play(url, split, 0)
    start = tasks[0].start
    right = episode.true_lat == start.lat and episode.true_lon == start.lon and episode.reward is not None
    return Check(
        SERVES,
        right and listed == len(tasks),
        {
            "tasks_listed": listed,
            "tasks": len(tasks),
            "pictures_seen": len(episode.pictures),
            "reward": float(episode.reward or 0.0),
        },
    )


def _capacity(url: str, split: str, spec: EnvironmentSpec) -> Check:
    opened, refused = fill_up(url, split, spec.max_concurrent)
    return Check(
        CAPACITY,
        opened == spec.max_concurrent and refused,
        {"opened": opened, "limit": spec.max_concurrent, "one_more_refused": refused},
    )
