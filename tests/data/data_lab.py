"""A small sandbox world, and the data stages over it run one by one or by Dagster."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import SecretStr

from geo_assets.config.settings import (
    MirrorSpec,
    PoolSpec,
    Settings,
    SplitSpec,
    StageSpecs,
    TilesSpec,
    WorldSpec,
    load_settings,
)
from geo_assets.data._source import SANDBOX_TOKEN
from geo_assets.data.candidate_sequences import candidate_sequences
from geo_assets.data.coverage_tiles import coverage_tiles
from geo_assets.data.data_source_probe import data_source_probe
from geo_assets.data.eval_mirror import eval_mirror
from geo_assets.data.mirrored_panoramas import mirrored_panoramas
from geo_assets.data.task_pool import task_pool
from geo_assets.data.task_split import task_split
from geo_assets.data.train_mirror import train_mirror
from geo_assets.lineage.assets import AssetFolder, GeoAsset, Made, Stage, StageRun

CHAIN: tuple[GeoAsset, ...] = (
    data_source_probe,
    coverage_tiles,
    candidate_sequences,
    task_pool,
    mirrored_panoramas,
    task_split,
    eval_mirror,
    train_mirror,
)

SMALL = StageSpecs(
    world=WorldSpec(seed=11, pano_sequences=90, perspective_sequences=40),
    tiles=TilesSpec(boxes=((-12.0, 36.0, 30.0, 60.0),)),
    pool=PoolSpec(target=7, per_country=2, per_creator=4, window_frames=3),
    mirror=MirrorSpec(originals=True, shards=2),
    split=SplitSpec(eval_size=4, eval_per_country=1),
)


def compute(asset: GeoAsset, stage: Stage) -> dict[str, Made]:
    """Run one stage in this process and publish its folders."""
    made = asset.compute(StageRun(stage, asset.names[0], lambda text: None))
    outputs = dict(made) if not isinstance(made, Made) else {asset.names[0]: made}
    for name, output in outputs.items():
        AssetFolder(stage.settings.home, name).publish(output.data_version, dict(output.facts))
    return outputs


@dataclass(frozen=True)
class Chain:
    """The data stages as Dagster ran them."""

    stage: Stage
    instance: dg.DagsterInstance
    result: dg.ExecuteInProcessResult

    def folder(self, name: str) -> Path:
        """Folder of one asset."""
        return self.stage.settings.home / name


def settings_for(home: Path, profile: str = "sandbox", url: str = "", **changes: Any) -> Settings:
    """Settings of a home; with `url`, a running sandbox Mapillary is asked instead of a new one."""
    settings = load_settings({"GEO_PROFILE": profile, "GEO_HOME": str(home)})
    if url:
        token = SecretStr(SANDBOX_TOKEN)
        changes = {"graph_url": url, "tiles_url": url, "mapillary_token": token, **changes}
    return replace(settings, **changes)


def world_arguments(specs: StageSpecs) -> list[str]:
    """Command line of the sandbox Mapillary over the world of some specs."""
    world = specs.world
    counts = ["--pano-sequences", str(world.pano_sequences)]
    counts += ["--perspective-sequences", str(world.perspective_sequences)]
    return ["--world-seed", str(world.seed), *counts]
