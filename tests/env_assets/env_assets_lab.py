"""A home with finished splits and mirrors over a few drawn panoramas, as the data stages would leave it."""

from pathlib import Path
from typing import Any

import numpy as np

from env_service.store import PanoramaStore
from env_service.tasks import Task, write_tasks
from env_service.views import encode_jpeg
from geo_assets.config.settings import EnvironmentSpec, StageSpecs, load_settings
from geo_assets.data.eval_mirror import eval_mirror
from geo_assets.data.train_mirror import train_mirror
from geo_assets.environment._behaviour import TASKS
from geo_assets.lineage.assets import AssetFolder, GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version

PLACES = [("Belgium", "BE", 50.83, 4.32), ("Kenya", "KE", -1.29, 36.82), ("Chile", "CL", -33.45, -70.66)]
SPECS = StageSpecs(environment=EnvironmentSpec(max_concurrent=3, view_px=128))


def panorama(seed: int) -> bytes:
    """A small panorama that differs everywhere."""
    dice = np.random.default_rng(seed)
    rough = dice.integers(0, 256, (16, 32, 3), dtype=np.uint8)
    return encode_jpeg(np.ascontiguousarray(rough.repeat(16, axis=0).repeat(16, axis=1)))


def make_task(store: PanoramaStore, index: int, split: str, frames: int = 2) -> Task:
    """A mirrored task; its pictures are put into the store."""
    country, code, lat, lon = PLACES[index % len(PLACES)]
    ids = [f"{1000 * (index + 1) + number}" for number in range(frames)]
    hashes = {image_id: store.put(image_id, panorama(int(image_id))) for image_id in ids}
    rows = [
        {
            "image_id": image_id,
            "lat": lat + 1e-4 * number,
            "lon": lon,
            "compass_angle": 10.0 * number,
            "captured_at": "2022-04",
            "is_pano": True,
        }
        for number, image_id in enumerate(ids)
    ]
    return Task.model_validate(
        {
            "task_index": index,
            "task_id": f"{split}-{index:05d}",
            "country": country,
            "country_code": code,
            "sequence_id": f"seq{index}",
            "provider": "mapillary",
            "start_frame": 1,
            "frames": rows,
            "attribution": {"licence": "CC-BY-SA-4.0"},
            "meta": {"sha256": hashes, "offline_ready": True},
        }
    )


def make_home(home: Path, eval_tasks: int = 3, train_tasks: int = 1, specs: StageSpecs = SPECS) -> Stage:
    """A stage whose splits and mirrors are finished."""
    settings = load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(home)})
    stage = Stage(settings, specs)
    store = PanoramaStore(settings.store_url)
    for split, count in (("eval", eval_tasks), ("train", train_tasks)):
        publish_split(stage, split, [make_task(store, index, split) for index in range(count)])
    return stage


def publish_split(stage: Stage, split: str, tasks: list[Task]) -> None:
    """Write one split and its mirror."""
    folder = AssetFolder(stage.settings.home, f"{split}_split")
    path = folder.file(TASKS)
    write_tasks(path, tasks)
    facts: dict[str, Any] = {"tasks": len(tasks)}
    if not tasks:
        facts["empty_because"] = "2 of 2 mirrored tasks went to eval"
    folder.publish(content_version(path.read_text()), facts)
    compute(eval_mirror if split == "eval" else train_mirror, stage)


def compute(asset: GeoAsset, stage: Stage) -> Made:
    """Run one stage in this process and publish its folder."""
    made = asset.compute(StageRun(stage, asset.names[0], lambda text: None))
    assert isinstance(made, Made)
    AssetFolder(stage.settings.home, asset.names[0]).publish(made.data_version, dict(made.facts))
    return made
