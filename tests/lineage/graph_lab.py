"""A small graph of real assets in a repository of its own: edited as text, read anew, really run."""

import importlib
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage import fingerprint
from geo_assets.lineage.assets import GeoAsset, Stage

SOURCES = {
    # Sweep and table share a module: touching one must not touch the other.
    "shared": '''
PROMPT = "Look."
CURVE = 2


def play(split, seed):
    """Plays."""
    return f"{PROMPT} {split} {seed}"


def mean(texts):
    return CURVE * sum(map(len, texts))
''',
    "graph": """
from geo_assets.lineage.assets import Check, CheckSpec, Made, geo_asset
from geo_assets.lineage.costs import Estimate
from geo_assets.lineage.versions import content_version
from tinygraph import shared

TILES = "abc"
SEED = 1
RED = False


def made(value, **more):
    return Made(content_version(value), {"value": value}, **more)


@geo_asset(group="data")
def tiles(run):
    return made(TILES)


@geo_asset(group="data", deps=["tiles"], checks=[CheckSpec("sound", "It is sound.")])
def pool(run):
    return made(run.require("tiles").facts["value"].lower()[:2], checks=[Check("sound", not RED)])


@geo_asset(group="data", deps=["pool"], names=["left", "right"])
def split(run):
    value = run.require("pool").facts["value"]
    return {"left": made(value[0]), "right": made(value[1])}


@geo_asset(
    group="sweeps",
    deps=["left"],
    spec=lambda specs: {"seed": SEED},
    name="sweep_one",
    folders={"sweep_one": "sweeps/one"},
    estimate=lambda stage: Estimate(100.0, 3600.0, 2.5),
)
def sweep(run):
    from env_service.canonical import atomic_write
    value = shared.play(run.require("left").facts["value"], SEED)
    atomic_write(run.folder("sweeps/one").file("episodes.jsonl"), b"{}\\n{}\\n")
    return Made(content_version(value), {"value": value, "episodes": 2, "complete": True})


@geo_asset(group="reports", deps=["sweep_one", "right"])
def board(run):
    return made(shared.mean([run.require("sweep_one").facts["value"]]))


ASSETS = [tiles, pool, split, sweep, board]
""",
}


class Lab:
    """The repository below `root`, its home and an instance.

    Args:
        root: where `tinygraph` is written; it must be on Python's path and be the fingerprint's root.
    """

    def __init__(self, root: Path) -> None:
        self.package, self.home = root / "tinygraph", root / "home"
        self.package.mkdir()
        (self.package / "__init__.py").write_text("")
        self.instance = dg.DagsterInstance.ephemeral()
        settings = load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(self.home)})
        self.stage = Stage(settings, stage_specs("sandbox"))
        self.reset()

    def reset(self) -> None:
        """The sources as they were first."""
        for name, text in SOURCES.items():
            (self.package / f"{name}.py").write_text(text)
        self.read()

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a module, and read the graph anew."""
        file = self.package / f"{name}.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        self.read()

    def read(self) -> None:
        """The graph as its sources are now."""
        fingerprint.forget()
        for name in [name for name in sys.modules if name.split(".")[0] == "tinygraph"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        assets: list[GeoAsset] = importlib.import_module("tinygraph.graph").ASSETS
        self.definitions = dg.Definitions(assets=[asset.definition(self.stage) for asset in assets])
        self.graph: Any = self.definitions.resolve_implicit_global_asset_job_def().asset_layer.asset_graph

    def run(self, names: Any) -> bool:
        """Materialize some assets in one run; says whether all went well."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        keys = [dg.AssetKey(name) for name in names]
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        done = job.execute_in_process(
            run_config=quiet, instance=self.instance, asset_selection=keys, raise_on_error=False
        )
        return done.success
