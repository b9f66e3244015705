"""What a training job is given: the spec, the environment as a bundle, and the base model.

The job serves the environment itself, on its own loopback, from the folder that `train_environment`
published: so what it is trained in is, by construction, the version that its fingerprint names, and no
server of ours has to be reachable from wherever a card was rented. Where jobs run on this machine the
folders are read as they stand; otherwise they are carried to the store first, pictures included unless they
are in a store already.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from geo_assets.config.prices import load_prices
from geo_assets.config.runs import RunSpec
from geo_assets.lineage.folders import Published
from geo_assets.lineage.jobs import Payload
from geo_assets.training.train_job import CONFIG, trainer_version

MODEL, TASKS, PANOS = "model", "tasks.jsonl", "panos"
SPLIT = "train"


def training_payload(
    payload: Payload, spec: RunSpec, environment: Published, base: Published
) -> dict[str, Any]:
    """The payload of one training.

    Args:
        payload: carries folders.
        spec: the run.
        environment: `train_environment`.
        base: the base model.

    Raises:
        GeoError: a folder is gone, or cannot be carried to the store.
    """
    folder = base.path / MODEL
    if "stands_in_for" in base.facts and not folder.is_dir():
        raise GeoError(f"{folder} is gone", f"Run: geo build --only {spec.base}")
    here = folder.is_dir()
    return {
        "spec": spec.model_dump(mode="json"),
        "environment": _environment(payload, environment.path),
        "base": payload.folder(folder, "base") if here else str(base.facts["repo"]),
        "base_is_folder": here,
        "revision": str(base.facts.get("revision") or base.data_version),
        "base_repo": str(base.facts.get("repo") or spec.base),
        "cards": load_prices().flavors[load_prices().flavor_of(spec.hardware)].gpus,
        "trainer": trainer_version(),
    }


def _environment(payload: Payload, source: Path) -> str:
    if not payload.remote:
        return payload.folder(source, "environment")
    with tempfile.TemporaryDirectory() as aside:
        bundle(source, Path(aside))
        return payload.folder(Path(aside), "environment")


def bundle(source: Path, target: Path) -> None:
    """An environment's folder as one that can be carried off: no path of its configuration leads out of it.

    Args:
        source: folder of `train_environment`.
        target: an empty folder; pictures and tasks in it are links until it is stored.

    Raises:
        GeoError: a picture of a task is missing.
    """
    body = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    split = body["splits"][SPLIT]
    tasks = source / str(split["tasks"])
    (target / TASKS).symlink_to(tasks.resolve())
    split["tasks"] = TASKS
    if "://" not in str(split["panos"]):
        store = PanoramaStore(source / str(split["panos"]))
        (target / PANOS).mkdir()
        wanted = {frame.image_id for task in read_tasks(tasks) for frame in task.frames}
        missing = wanted - set(store.list_ids())
        if missing:
            raise GeoError(
                f"Picture {min(missing)} is not in {store.url}", "Run: geo build train_environment"
            )
        for image_id in sorted(wanted):
            name = f"{image_id}.jpg"
            (target / PANOS / name).symlink_to(os.path.realpath(Path(store.url) / name))
        split["panos"] = PANOS
    atomic_write(target / CONFIG, json.dumps(body, indent=2).encode())
