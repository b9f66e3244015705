"""Mapillary's vector coverage tiles, raw, for every tile that touches land.

**What.** One file per distinct tile under its content hash, an index from tile to hash, and the list of tiles
that did not come. Wanted are the tiles of the configured boxes whose area intersects land; at zoom 6 that is
about a quarter of the world's 4,096.

**Why.** The tiles are the only complete list of what has been captured; everything after this stage is
chosen from them.

**Cost.** Live: about 1,100 requests and 4 GB for the whole world at zoom 6, of a daily budget of 50,000. A
rerun asks only for tiles that are missing or older than `max_age_days`; a killed run goes on where it was.
"""

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.errors import GeoError
from env_service.geography import geography
from geo_assets.config.settings import TilesSpec
from geo_assets.data._maps import Boxes, picture, world_map
from geo_assets.data._source import open_mapillary, source_code, source_identity, source_version, workers
from geo_assets.data._tables import table
from geo_assets.data._tile_log import TileLog
from geo_assets.lineage.assets import Check, CheckSpec, Made, StageRun, geo_asset
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.versions import manifest_version
from resources.mapillary import (
    MapillaryClient,
    MapillaryError,
    RateLimited,
    ServiceUnavailable,
    UnexpectedAnswer,
)
from resources.vector_tiles import TileId, tile_bounds, tiles_covering

DAY_S = 86400.0
LISTED = 20


class CoverageIncomplete(GeoError):
    """More tiles failed than the stage tolerates."""


@geo_asset(
    group="data",
    spec=lambda specs: specs.tiles,
    runs=source_code,
    extra=source_identity,
    kinds={"mapillary", "mvt"},
    checks=[
        CheckSpec("few_tiles_failed", "The share of tiles that did not come is within max_failed_share.")
    ],
)
def coverage_tiles(run: StageRun) -> Made:
    """Fetch what is missing or old, then publish the index."""
    spec = run.specs.tiles
    folder = run.folder().file("index.json").parent
    wanted = land_tiles(spec)
    with single_writer(folder / ".writer.lock", "coverage_tiles"):
        return _refreshed(run, folder, wanted)


def _refreshed(run: StageRun, folder: Path, wanted: list[TileId]) -> Made:
    spec = run.specs.tiles
    log = TileLog(folder, source_version(run.stage))
    asked = [tile for tile in wanted if not log.fresh(str(tile), spec.max_age_days * DAY_S)]
    run.say(f"{len(wanted):,} tiles touch land, {len(asked):,} of them to be asked for")
    failed, why = fetch(run, log, asked) if asked else ({}, "")
    share = len(failed) / len(wanted) if wanted else 0.0
    index = log.publish([str(tile) for tile in wanted], failed)
    if share > spec.max_failed_share:
        raise CoverageIncomplete(
            f"coverage_tiles: {len(failed):,} of {len(wanted):,} tiles did not come ({share:.1%}, at most "
            f"{spec.max_failed_share:.1%} may be missing), mostly for this reason: {why}. They are "
            f"{_listed(failed)}",
            "What came is kept; run the same command again to ask for the rest",
        )
    sizes = {tile: int(entry["bytes"]) for tile, entry in index.items()}
    facts = {
        "tiles_wanted": len(wanted),
        "tiles": len(index),
        "tiles_with_coverage": sum(size > 0 for size in sizes.values()),
        "tiles_failed": len(failed),
        "failed_share": round(share, 6),
        "bytes": sum(sizes.values()),
        "zoom": spec.zoom,
    }
    check = Check("few_tiles_failed", True, {"failed_share": share, "limit": spec.max_failed_share})
    return Made(
        data_version=manifest_version({tile: str(entry["sha256"]) for tile, entry in index.items()}),
        facts=facts,
        metadata={"tiles_asked": len(asked), **_pictures(sizes), **_failures(failed)},
        checks=[check],
    )


def land_tiles(spec: TilesSpec) -> list[TileId]:
    """The wanted tiles whose area intersects land, by column and row."""
    boxes = {tile for box in spec.boxes for tile in tiles_covering(box, spec.zoom)}
    return [tile for tile in sorted(boxes) if geography().land_intersects_bbox(*tile_bounds(*tile))]


def fetch(run: StageRun, log: TileLog, tiles: Sequence[TileId]) -> tuple[dict[str, str], str]:
    """Ask for tiles several at once and store each as it comes.

    Returns:
        Those that did not come, each with what was said of it, and the commonest reason ("" for none).
    """
    failed: dict[str, str] = {}
    reasons: Counter[str] = Counter()
    with open_mapillary(run.stage) as client, ThreadPoolExecutor(workers()) as pool:
        todo = iter(tiles)
        pending = {pool.submit(_fetch, client, tile): tile for tile in islice(todo, 2 * workers())}
        for _ in run.progress(range(len(tiles)), len(tiles), "coverage tiles"):
            done = _first(pending)
            tile = pending.pop(done)
            for following in islice(todo, 1):
                pending[pool.submit(_fetch, client, following)] = following
            answer = done.result()
            if isinstance(answer, bytes):
                log.add(str(tile), answer)
            else:
                failed[str(tile)] = answer.problem
                reasons[answer.reason] += 1
    return dict(sorted(failed.items())), max(sorted(reasons), key=reasons.__getitem__, default="")


def _fetch(client: MapillaryClient, tile: TileId) -> bytes | MapillaryError:
    try:
        return client.tile(*tile)
    except (RateLimited, ServiceUnavailable, UnexpectedAnswer) as error:
        return error


def _first(pending: dict[Future[bytes | MapillaryError], TileId]) -> Future[bytes | MapillaryError]:
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    return next(iter(done))


def _listed(failed: dict[str, str]) -> str:
    names = list(failed)
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _failures(failed: dict[str, str]) -> dict[str, Any]:
    if not failed:
        return {}
    return {"failed": table([{"tile": tile, "why": why} for tile, why in failed.items()])}


def _pictures(sizes: dict[str, int]) -> dict[str, dg.MetadataValue[Any]]:
    shown = {tile: size for tile, size in sizes.items() if size}
    boxes = [tile_bounds(*map(int, tile.split("/"))) for tile in shown]
    shade = [math.log10(size) for size in shown.values()]
    title = f"Coverage tiles with sequences, {len(shown):,} of {len(sizes):,}, darker is more"
    return picture(world_map(title, boxes=Boxes("tiles", boxes, shade)), "Map of the coverage tiles")
