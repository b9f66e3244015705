"""One split and its mirror become an environment: a configuration, a version, and proof that it plays."""

import os
from pathlib import Path

from geo_assets.data._maps import CREDIT, contact_sheet, picture
from geo_assets.data._tables import row_count
from geo_assets.data.mirrored_panoramas import read_manifest
from geo_assets.environment._behaviour import (
    CONFIG,
    TASKS,
    configuration,
    environment_version,
    tasks_of,
    write_configuration,
)
from geo_assets.environment._readiness import readiness, skipped
from geo_assets.lineage.assets import Made, StageRun

VIEW_PX = (220, 220)


def build_environment(run: StageRun, split: str) -> Made:
    """Configure, check and describe the environment of one split (`eval` or `train`).

    Raises:
        MissingUpstream: split or mirror has not been built.
        TaskFileError: the index is damaged.
        GeoError: the service does not start.
    """
    spec = run.specs.environment
    index, mirror = run.require(f"{split}_split"), run.require(f"{split}_mirror")
    version = environment_version(index, mirror, spec)
    tasks = tasks_of(index)
    path = run.folder().file(CONFIG)
    facts = {
        "split": split,
        "tasks": len(tasks),
        "max_turns": spec.max_turns,
        "view_px": spec.view_px,
        "mode": spec.mode,
        "max_concurrent": spec.max_concurrent,
        "environment_version": version,
    }
    if not tasks:
        path.unlink(missing_ok=True)
        why = str(index.facts.get("empty_because", "it holds no task"))
        run.say(f"The {split} split is empty ({why}), so there is nothing to serve")
        return Made(version, {**facts, "empty_because": why}, row_count(0), skipped(why))
    # Relative to the file's own folder, so that a home that is moved or copied serves its own tasks.
    near = path.parent.absolute()
    tasks_file = os.path.relpath(index.path / TASKS, near)
    store = _address(run.settings.store_url, run.settings.home, near)
    config = configuration(split, tasks_file, store, version, spec)
    write_configuration(path, config)
    ready = readiness(run, path, split, tasks, read_manifest(mirror.path))
    views = contact_sheet(ready.views, size=VIEW_PX)
    return Made(
        data_version=version,
        facts=facts,
        metadata={
            **row_count(len(tasks)),
            "index_version": index.data_version,
            "imagery_version": mirror.data_version,
            **picture(views, f"Opening views of the {split} environment", CREDIT),
        },
        checks=ready.checks,
    )


def _address(store_url: str, home: Path, near: Path) -> str:
    if "://" in store_url:
        return store_url
    store = Path(store_url).absolute()
    return os.path.relpath(store, near) if store.is_relative_to(home.absolute()) else str(store)
