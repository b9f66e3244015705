"""A small eval environment of real servers: tasks at real towns, pictures of noise that no two tasks share."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from env_service.geography import geography
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task, write_tasks
from env_service.views import encode_jpeg
from geo_assets.config.arms import ArmSpec, load_arms
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun
from geo_assets.lineage.folders import AssetFolder

KM = 1 / 111.195


def make_tasks(count: int, seed: int = 5) -> list[Task]:
    """Tasks of three frames a few metres apart near towns, at most two per country, spread over the Earth."""
    earth, rng = geography(), np.random.default_rng(seed)
    tasks: list[Task] = []
    used: dict[str, int] = {}
    for pick in rng.permutation(min(len(earth.places), 6000)):
        place = earth.places[int(pick)]
        lat, lon = place.lat + float(rng.uniform(-30, 30)) * KM, place.lon
        country = earth.country_at(lat, lon)
        if country is None or used.get(country.code, 0) >= 2:
            continue
        used[country.code] = used.get(country.code, 0) + 1
        index = len(tasks)
        frames = tuple(
            Frame(
                image_id=f"{index:05d}-{step}",
                lat=lat + step * 0.01 * KM,
                lon=lon,
                compass_angle=float(index * 7 % 360),
                captured_at="2024-05",
            )
            for step in range(3)
        )
        tasks.append(
            Task(
                task_index=index,
                task_id=f"lab-{index:03d}",
                country=country.name,
                country_code=country.code,
                sequence_id=f"sequence-{index:03d}",
                provider="mapillary",
                start_frame=0,
                frames=frames,
            )
        )
        if len(tasks) == count:
            return tasks
    raise AssertionError(f"the lab has no {count} towns")


def build_environment(home: Path, count: int, *, version: str = "lab-1", max_turns: int = 12) -> Path:
    """Publish an `eval_environment` under `home`; returns its configuration file."""
    folder = AssetFolder(home, "eval_environment")
    tasks = make_tasks(count)
    write_tasks(folder.file("tasks.jsonl"), tasks)
    store = PanoramaStore(str(folder.path / "panos"))
    for task in tasks:
        for step, frame in enumerate(task.frames):
            noise = np.random.default_rng([task.task_index, step]).integers(0, 256, (16, 32, 3), np.uint8)
            store.put(frame.image_id, encode_jpeg(np.kron(noise, np.ones((16, 16, 1), np.uint8))))
    config = folder.file("config.json")
    body = {
        "splits": {"eval": {"tasks": "tasks.jsonl", "panos": "panos"}},
        "max_turns": max_turns,
        "view_px": 128,
        "environment_version": version,
    }
    config.write_text(json.dumps(body))
    folder.publish(version)
    return config


def lab_stage(home: Path) -> Stage:
    """The sandbox stage with its home moved."""
    return Stage(replace(load_settings({"GEO_PROFILE": "sandbox"}), home=home), stage_specs("sandbox"))


def lab_run(home: Path, name: str, said: list[str] | None = None) -> StageRun:
    """A run of one asset that keeps what it says."""
    return StageRun(lab_stage(home), name, (said if said is not None else []).append)


def lab_arm(slug: str, **changes: object) -> ArmSpec:
    """A sandbox arm with some fields changed, quick to give up."""
    arm = load_arms("sandbox").get(slug)
    runtime = arm.runtime.model_copy(update={"workers": 2, "attempts": 2, "backoff_s": 0.01, "timeout_s": 20})
    return arm.model_copy(update={"runtime": runtime, **changes})
