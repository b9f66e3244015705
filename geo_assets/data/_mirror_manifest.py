"""What the mirror of one split is: the pictures of its tasks by hash, found in the store they share."""

import json
from typing import Any

from env_service.canonical import atomic_write
from env_service.tasks import read_tasks
from geo_assets.data._maps import CREDIT, picture, sample_panoramas
from geo_assets.data._store import altered, move_on, open_store, rotation, sizes
from geo_assets.data._tables import row_count
from geo_assets.data.mirrored_panoramas import MANIFEST, TASKS, entries_of, manifest_of, version_of
from geo_assets.lineage.assets import Check, Made, StageRun

CHECK = "every_picture_stored"
NAMED = 20


def split_mirror(run: StageRun, split: str) -> Made:
    """Write the manifest of one split's pictures; nothing is copied.

    Raises:
        MissingUpstream: the split has not been built.
        TaskFileError: its task file is damaged.
    """
    upstream = run.require(split)
    tasks = read_tasks(upstream.path / TASKS) if upstream.facts["tasks"] else ()
    store = open_store(run.settings.store_url)
    manifest = manifest_of(tasks)
    body = json.dumps(manifest, indent=0, sort_keys=True).encode() + b"\n"
    atomic_write(run.folder().file(MANIFEST), body)
    size_of, entries = sizes(store), dict(entries_of(manifest))
    stored = {item: size_of(item) for item in entries}
    absent = [item for item, size in stored.items() if size < 0]
    weight = sum(size for size in stored.values() if size > 0)
    share = rotation(run.folder().path, weight, store)
    looked_at = {item: entries[item] for item, size in stored.items() if size >= 0 and share.due(item)}
    changed = altered(store, looked_at)
    faults = [str(item) for item in absent + changed]
    if not faults:
        move_on(run.folder().path, share)
    empty: dict[str, Any] = {} if tasks else {"empty_because": upstream.facts.get("empty_because", "no task")}
    sample = sample_panoramas(store, [task.start.image_id for task in tasks]) if tasks and not faults else b""
    return Made(
        data_version=version_of(manifest),
        facts={
            "frames": len(manifest["frames"]),
            "originals": len(manifest["originals"]),
            "bytes": weight,
            **empty,
        },
        metadata={**row_count(len(stored)), **picture(sample, f"Sample of {split}", CREDIT)},
        checks=[
            Check(
                CHECK,
                not faults,
                {
                    "pictures": len(stored),
                    "absent": len(absent),
                    "hashed": len(looked_at),
                    "changed": len(changed),
                    "limit": 0,
                    **({"faults": ", ".join(faults[:NAMED])} if faults else {}),
                    **empty,
                },
            )
        ],
    )
