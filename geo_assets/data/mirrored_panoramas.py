"""Every picture that a task can show, local and verified.

**What.** One 2048×1024 panorama per frame and the original of each start frame in the panorama store;
`tasks.jsonl`, the tasks all of whose frames are there, with the SHA-256 of each; `manifest.json`, image id to
SHA-256. A frame without a picture leaves its task, and a task with fewer than two frames leaves the pool.

**Why.** A walk touches many pictures, the links to them expire, and an episode must not depend on a network.

**Cost.** Live: 0.26 MB a frame and 1.8 MB an original, one graph request each; about 22 GB for a pool of
3,700 drives, 7.5 TB for all 1.2 million. It is refused before it starts when it will not fit.

The asset is a graph: plan the shards, mirror each in a step of its own, write the manifest, check. With the
multiprocess executor the steps share one machine; with an executor of Kubernetes, Celery or ECS the same
graph spreads over many. A shard that is lost is run again alone and goes on where it was.
"""

import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError
from env_service.store import PanoramaStore
from env_service.tasks import Task, read_tasks, write_tasks
from geo_assets.data._journal import Journal, lock_of, sweep_parts
from geo_assets.data._maps import CREDIT, picture, sample_panoramas
from geo_assets.data._mirror import (
    Fetched,
    bytes_of,
    check_room,
    fetch_all,
    outstanding,
    read_fetched,
    read_verified,
    shard_of,
    wanted_pictures,
)
from geo_assets.data._source import open_mapillary, source_code, source_identity, source_version, workers
from geo_assets.data._store import (
    Wanted,
    altered,
    check_writable,
    folder_of,
    move_on,
    open_store,
    rotation,
    sizes,
)
from geo_assets.data._tables import TASK_COLUMNS, column_schema, counted, row_count
from geo_assets.data._windows import middle_of
from geo_assets.lineage.assets import (
    Check,
    CheckSpec,
    GeoAsset,
    Made,
    Stage,
    StageRun,
    failing_clearly,
    geo_asset,
    peak_memory,
    result_of,
)
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.versions import content_version, manifest_version

TASKS, MANIFEST, LOGS = "tasks.jsonl", "manifest.json", "verified"
MIN_FRAMES = 2
STARTS = "starts"
NAMED = 20
CHECK = "store_is_complete"
MEMORY = ("peak_memory_mb", "peak_server_memory_mb")


@dataclass(frozen=True)
class MirrorGraph(GeoAsset):
    """The same declaration as any asset's, made into a graph of steps instead of a single one."""

    def definition(self, stage: Stage) -> dg.AssetsDefinition:
        """The graph asset for one profile: plan, one step per shard, manifest, check."""
        name = self.names[0]

        @dg.op(name="plan_shards", ins={"pool": dg.In(dg.Nothing)}, out=dg.DynamicOut(int))
        def plan_op(context: dg.OpExecutionContext) -> Iterator[dg.DynamicOutput[int]]:
            with failing_clearly():
                plan(StageRun(stage, name, context.log.info))
            for shard in range(stage.specs.mirror.shards):
                yield dg.DynamicOutput(shard, mapping_key=f"{shard:03d}")

        @dg.op(name="mirror_shard", pool=self.pool)
        def shard_op(context: dg.OpExecutionContext, shard: int) -> list[float]:
            began = time.monotonic()
            with failing_clearly():
                fetched = mirror_shard(StageRun(stage, name, context.log.info), shard)
            memory = peak_memory()
            return [float(fetched), time.monotonic() - began, *(memory[key] for key in MEMORY)]

        @dg.op(name="write_manifest", out=dg.Out(dg.Nothing))
        def manifest_op(
            context: dg.OpExecutionContext, shards: list[list[float]]
        ) -> Iterator[dg.Output[None]]:
            began = time.monotonic()
            with failing_clearly():
                made = finish(StageRun(stage, name, context.log.info))
                # The work of all machines together, since that is what a rerun costs.
                seconds = sum(shard[1] for shard in shards) + time.monotonic() - began
                result = result_of(self, stage, name, made, seconds)
            fetched = sum(int(shard[0]) for shard in shards)
            largest = {key: max(shard[2 + at] for shard in shards) for at, key in enumerate(MEMORY)}
            metadata = {**(result.metadata or {}), **largest, "pictures_fetched": fetched}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dg.BetaWarning)
                yield dg.Output(None, data_version=result.data_version, metadata=metadata)

        @dg.op(name=CHECK, ins={"manifest": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
        def check_op(context: dg.OpExecutionContext) -> Iterator[dg.AssetCheckResult]:
            with failing_clearly():
                check = verify(StageRun(stage, name, context.log.info))
            yield dg.AssetCheckResult(
                passed=check.passed,
                asset_key=dg.AssetKey(name),
                check_name=check.name,
                metadata=dict(check.metadata),
            )

        declared = self.checks[0]

        @dg.graph_asset(
            name=name,
            description=self.description,
            group_name=self.group,
            code_version=self.code_version(stage),
            owners=["team:environments"],
            kinds=set(self.kinds),
            tags=dict(self.tags),
            metadata=self.page(stage),
            ins={"pool": dg.AssetIn(key=self.deps[0], dagster_type=dg.Nothing)},
            check_specs=[
                dg.AssetCheckSpec(
                    declared.name, asset=name, description=declared.description, blocking=declared.blocking
                )
            ],
        )
        def mirror_graph(pool: Any) -> Any:
            manifest = manifest_op(plan_op(pool).map(shard_op).collect())
            return {"result": manifest, f"{name}_{CHECK}": check_op(manifest)}

        return mirror_graph


def mirror_all(run: StageRun) -> Made:
    """The graph's steps one after the other, in this process."""
    plan(run)
    for shard in range(run.specs.mirror.shards):
        mirror_shard(run, shard)
    made = finish(run)
    return Made(made.data_version, made.facts, made.metadata, [verify(run)])


def plan(run: StageRun) -> int:
    """Refuse now what would not fit; returns how many pictures are still to be fetched.

    Raises:
        NoRoom: with the projected size and what is free.
        StoreUnusable: pictures cannot be stored where GEO_STORE_URL points.
        BeingWritten: another process mirrors into this home.
    """
    store = open_store(run.settings.store_url)
    folder = folder_of(store)
    if folder is not None:
        with ExitStack() as writers:  # whoever still writes has parts of files that are not to be swept
            for name in (*(shard_log(run, shard) for shard in range(run.specs.mirror.shards)), STARTS):
                log = _logs(run) / f"{name}.jsonl"
                writers.enter_context(single_writer(lock_of(log), f"{run.name} ({name})"))
            sweep_parts(folder)
    wanted = wanted_pictures(_pool(run), run.specs.mirror.originals)
    verified = read_verified(_logs(run), source_version(run.stage))
    todo = outstanding(wanted, verified, store, run.folder().path)
    if todo:
        check_writable(store)
    projected = check_room(todo, verified, store)
    run.say(f"{len(wanted):,} pictures wanted, {len(todo):,} to fetch, about {projected / 1e6:,.0f} MB")
    return len(todo)


def mirror_shard(run: StageRun, shard: int) -> int:
    """Fetch what one shard still lacks; returns how many pictures that was.

    Raises:
        PicturesOutstanding, StoreFull, TokenRefused: what came before stays, and a rerun goes on there.
    """
    shards, store = run.specs.mirror.shards, open_store(run.settings.store_url)
    wanted = wanted_pictures(_pool(run), run.specs.mirror.originals)
    mine = [item for item in wanted if shard_of(item.image_id, shards) == shard]
    return _fetch(run, mine, store, shard_log(run, shard), 1.0 / shards)


def shard_log(run: StageRun, shard: int) -> str:
    """Name of the log of one shard."""
    return f"shard-{shard:03d}-of-{run.specs.mirror.shards:03d}"


def finish(run: StageRun) -> Made:
    """Write the tasks that are fully mirrored, and the manifest.

    Raises:
        GeoError: a picture has been neither fetched nor found missing, or is not what was stored.
    """
    store = open_store(run.settings.store_url)
    pool = _pool(run)
    verified = read_verified(_logs(run), source_version(run.stage))
    wanted = wanted_pictures(pool, False)
    left = outstanding(wanted, verified, store, run.folder().path)
    if left:
        raise GeoError(
            f"{len(left):,} of {len(wanted):,} pictures are not in the store as a shard's log says, "
            f"first {left[0]}",
            "Run: dagster asset materialize --select mirrored_panoramas",
        )
    dropped: Counter[str] = Counter()
    tasks = [task for task in (_mirrored(task, verified, dropped) for task in pool) if task is not None]
    if run.specs.mirror.originals:
        # Starts that moved because a frame left need an original that no shard knew of.
        starts = wanted_pictures(tasks, True)
        _fetch(run, [item for item in starts if item.original], store, STARTS, 1.0)
        verified = read_verified(_logs(run), source_version(run.stage))
    tasks = [_with_hashes(task, index, verified) for index, task in enumerate(tasks)]
    path = run.folder().file(TASKS)
    write_tasks(path, tasks)
    manifest = manifest_of(tasks)
    body = json.dumps(manifest, indent=0, sort_keys=True).encode() + b"\n"
    atomic_write(run.folder().file(MANIFEST), body)
    stored = sum(verified[item].size for item, _ in entries_of(manifest))
    sample = sample_panoramas(store, [task.start.image_id for task in tasks]) if tasks else b""
    return Made(
        data_version=content_version([sha256_file(path), version_of(manifest)]),
        facts={
            "tasks": len(tasks),
            "frames": len(manifest["frames"]),
            "originals": len(manifest["originals"]),
            "bytes": stored,
            "pool_tasks": len(pool),
            "frames_dropped": sum(n for reason, n in dropped.items() if not reason.startswith("task")),
            "tasks_dropped": len(pool) - len(tasks),
            "starts_without_original": len(tasks) - sum("sha256_original" in t.meta for t in tasks),
        },
        metadata={
            **row_count(len(tasks)),
            **column_schema(TASK_COLUMNS),
            "dropped_by_reason": counted(dropped, "reason"),
            **picture(sample, "Sample of the mirrored panoramas", CREDIT),
        },
    )


def verify(run: StageRun) -> Check:
    """Every picture of the manifest is in the store with its hash.

    All are hashed where that is cheap; of a large store a share, the next one after each clean run. The share
    stays while something in it is wrong, so that the next run finds the same pictures and fetches them again.
    """
    folder, store = run.folder().path, open_store(run.settings.store_url)
    entries = dict(entries_of(read_manifest(folder)))
    size_of = sizes(store)
    absent = [item for item in entries if size_of(item) < 0]
    here = entries.keys() - set(absent)
    share = rotation(folder, bytes_of(read_verified(_logs(run), source_version(run.stage))), store)
    looked_at = {item: entries[item] for item in sorted(here) if share.due(item)}
    changed = altered(store, looked_at)
    faults = [str(item) for item in absent + changed]
    if not faults:
        move_on(folder, share)
    return Check(
        CHECK,
        bool(entries) and not absent and not changed,
        {
            "pictures": len(entries),
            "absent": len(absent),
            "hashed_again": len(looked_at),
            "share_hashed": f"{share.turn % share.parts + 1} of {share.parts}",
            "changed": len(changed),
            "limit": 0,
            **({"first_fault": faults[0], "faults": ", ".join(faults[:NAMED])} if faults else {}),
        },
    )


def manifest_of(tasks: Sequence[Task]) -> dict[str, dict[str, str]]:
    """Image id to SHA-256 for all frames, and for the originals that are there."""
    frames: dict[str, str] = {}
    originals: dict[str, str] = {}
    for task in tasks:
        frames.update(task.meta["sha256"])
        if "sha256_original" in task.meta:
            originals[task.start.image_id] = task.meta["sha256_original"]
    return {"frames": dict(sorted(frames.items())), "originals": dict(sorted(originals.items()))}


def entries_of(manifest: dict[str, dict[str, str]]) -> list[tuple[Wanted, str]]:
    """The pictures of a manifest with their hashes."""
    return [
        (Wanted(name, kind == "originals"), digest)
        for kind, hashes in manifest.items()
        for name, digest in hashes.items()
    ]


def version_of(manifest: dict[str, dict[str, str]]) -> str:
    """Content version of a manifest."""
    entries = entries_of(manifest)
    return manifest_version((f"{item.image_id}/{item.original}", digest) for item, digest in entries)


def read_manifest(folder: Path) -> dict[str, dict[str, str]]:
    """The manifest in an asset's folder.

    Raises:
        GeoError: it is gone or unreadable.
    """
    try:
        body = json.loads((folder / MANIFEST).read_text())
        return {kind: dict(body[kind]) for kind in ("frames", "originals")}
    except (OSError, ValueError, KeyError, TypeError):
        raise GeoError(
            f"{folder / MANIFEST} cannot be read",
            f"Run: dagster asset materialize --select {folder.name}",
        ) from None


def _pool(run: StageRun) -> tuple[Task, ...]:
    return read_tasks(run.require("task_pool").path / TASKS)


def _logs(run: StageRun) -> Path:
    return run.folder().path / LOGS


def _fetch(run: StageRun, items: Sequence[Wanted], store: PanoramaStore, name: str, share: float) -> int:
    source = source_version(run.stage)
    verified = read_verified(_logs(run), source)
    todo = outstanding(items, verified, store, run.folder().path)
    if not todo:
        return 0
    with (
        Journal(_logs(run) / f"{name}.jsonl", source, read_fetched) as log,
        open_mapillary(run.stage, share) as client,
    ):
        said = f"{name} pictures"
        fetch_all(todo, verified, client, store, log, workers(), lambda of: run.progress(of, len(todo), said))
    return len(todo)


def _mirrored(task: Task, verified: dict[Wanted, Fetched], dropped: Counter[str]) -> Task | None:
    """The task with the frames that have pictures, its start in their middle; None if too few do."""
    kept = tuple(frame for frame in task.frames if not verified[Wanted(frame.image_id)].missing)
    dropped.update(
        f"frame: {got.missing}" for got in (verified[Wanted(f.image_id)] for f in task.frames) if got.missing
    )
    if len(kept) < MIN_FRAMES:
        dropped[f"task: fewer than {MIN_FRAMES} frames have pictures"] += 1
        dropped["frame: its task was dropped"] += len(kept)
        return None
    if len(kept) == len(task.frames):
        return task
    return task.model_copy(update={"frames": kept, "start_frame": middle_of(kept)})


def _with_hashes(task: Task, index: int, verified: dict[Wanted, Fetched]) -> Task:
    hashes = {frame.image_id: verified[Wanted(frame.image_id)].sha256 for frame in task.frames}
    original = verified.get(Wanted(task.start.image_id, True), Fetched())
    meta = {
        **task.meta,
        "sha256": hashes,
        **({"sha256_original": original.sha256} if original.sha256 else {}),
        "offline_ready": True,
    }
    return task.model_copy(update={"task_index": index, "meta": meta})


_declared = geo_asset(
    group="data",
    deps=["task_pool"],
    spec=lambda specs: specs.mirror,
    runs=source_code,
    extra=source_identity,
    kinds={"mapillary", "jpeg"},
    name="mirrored_panoramas",
    checks=[CheckSpec(CHECK, "Every picture of the manifest is stored and still has its hash.")],
)(mirror_all)

mirrored_panoramas = MirrorGraph(**vars(_declared))
