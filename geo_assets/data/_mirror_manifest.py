"""What the mirror of one split is: the pictures of its tasks by hash, found in the store they share."""

import json
from typing import Any

from env_service.canonical import atomic_write
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from geo_assets.data._maps import CREDIT, picture, sample_panoramas
from geo_assets.data._mirror import sizes
from geo_assets.data._tables import row_count
from geo_assets.data.mirrored_panoramas import MANIFEST, TASKS, entries_of, manifest_of, version_of
from geo_assets.lineage.assets import Check, Made, StageRun

CHECK = "every_picture_stored"


def split_mirror(run: StageRun, split: str) -> Made:
    """Write the manifest of one split's pictures; nothing is copied.

    Raises:
        MissingUpstream: the split has not been built.
        TaskFileError: its task file is damaged.
    """
    upstream = run.require(split)
    tasks = read_tasks(upstream.path / TASKS) if upstream.facts["tasks"] else ()
    store = PanoramaStore(run.settings.store_url)
    manifest = manifest_of(tasks)
    body = json.dumps(manifest, indent=0, sort_keys=True).encode() + b"\n"
    atomic_write(run.folder().file(MANIFEST), body)
    size_of = sizes(store)
    stored = [size_of(item) for item, _ in entries_of(manifest)]
    absent = sum(size < 0 for size in stored)
    empty: dict[str, Any] = {} if tasks else {"empty_because": upstream.facts.get("empty_because", "no task")}
    sample = sample_panoramas(store, [task.start.image_id for task in tasks]) if tasks and not absent else b""
    return Made(
        data_version=version_of(manifest),
        facts={
            "frames": len(manifest["frames"]),
            "originals": len(manifest["originals"]),
            "bytes": sum(size for size in stored if size > 0),
            **empty,
        },
        metadata={**row_count(len(stored)), **picture(sample, f"Sample of {split}", CREDIT)},
        checks=[Check(CHECK, absent == 0, {"pictures": len(stored), "absent": absent, "limit": 0, **empty})],
    )
