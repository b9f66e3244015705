"""A tiny model of the base model's architecture, brought up offline: what the sandbox trains adapters on.

**What.** Weights and processor of a vision-language model of the Qwen3.5 architecture with a few hundred
thousand parameters, in the form that `save_pretrained` writes.

**Why.** The sandbox trains and sweeps through the same code as a GPU does. Its base models have the faults
that untrained models were published with, on purpose: they look around too often, sometimes never guess, and
sometimes guess on the wrong continent, repeating one spot. They have seen a small world of their own, and no
task of the project.

**Cost.** Two to three minutes on one core.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError
from geo_assets.config.settings import EnvironmentSpec
from geo_assets.environment._behaviour import BEHAVIOUR, BEHAVIOUR_INPUTS
from geo_assets.lineage.assets import GeoAsset, Made, StageRun, geo_asset
from geo_assets.lineage.folders import AssetFolder
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.swapping import recover, swap
from geo_assets.lineage.versions import content_version
from geo_assets.training.libraries import TRAINING_LIBRARIES
from resources.processes import ServerProcess
from resources.sandbox.vlm.specs import BaseModelSpec

WORLD = "warm_start_world"
MODEL, CONFIG = "model", "config.json"
ENVIRONMENT_SERVER = "env_service.server"
FIRST = "base_model_4b"
"""The one that adapters wait for."""


def tiny_base_model(name: str) -> GeoAsset:
    """The asset of one tiny base model, by the name of its spec among the stage specs."""

    @geo_asset(
        name=name,
        group="training",
        deps=[WORLD],
        spec=lambda specs: [asdict(getattr(specs, name)), specs.environment.rules()],
        # Its lessons are played in the environment.
        runs=BEHAVIOUR,
        inputs=[*BEHAVIOUR_INPUTS, *TRAINING_LIBRARIES],
        kinds={"pytorch"},
        priority=9 if name == FIRST else -1,
    )
    def base_model(run: StageRun) -> Made:
        return bring_up_model(run, name)

    return base_model


def bring_up_model(run: StageRun, name: str) -> Made:
    """Build a tiny model beside the one that stands, and put it in its place when it is whole.

    Raises:
        MissingUpstream: its world has not been drawn.
        GeoError: the environment over that world does not start, or it is too small for the lessons.
        BeingWritten: the same model is being brought up already.
    """
    spec: BaseModelSpec = getattr(run.specs, name)
    world = run.require(WORLD)
    if spec.lessons > run.specs.small_world.played:
        raise GeoError(
            f"{name} wants {spec.lessons} lessons and the small world has {run.specs.small_world.played} "
            "places to play at",
            "Lower its lessons, or raise `played` of the small world, in geo_assets/config/settings.py",
        )
    target = run.folder().path
    with single_writer(target.with_name(f".{name}.lock"), name):
        recover(target)
        aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
        try:
            staged = AssetFolder(aside, name)
            made = _brought_up(run, name, spec, world.path, staged)
            staged.publish(made.data_version, dict(made.facts))
            swap(staged.path, target, aside)
        finally:
            recover(target)
    return made


def _brought_up(run: StageRun, name: str, spec: BaseModelSpec, world: Path, folder: AssetFolder) -> Made:
    # Torch is imported where it is needed: whoever only lists the assets should not wait for it.
    from geo_assets.training.bring_up import bring_up

    model = folder.path / MODEL
    with _served(world, run.specs.environment, folder.file(CONFIG)) as url:
        losses = bring_up(model, spec, world, url, run.specs.environment.max_turns, run.say)
    files = {path.name: sha256_file(path) for path in sorted(model.iterdir()) if path.is_file()}
    version = content_version(files)
    facts = {
        "name": name,
        # Adapters say what they were trained on by this name; no model of the Hub is meant in the sandbox.
        "repo": name,
        "revision": version,
        "stands_in_for": spec.repo,
        "view_px": spec.shape.view_px,
        "shape": asdict(spec.shape),
        "faults": asdict(spec.faults) | {"looks": list(spec.faults.looks)},
        "weights_mb": round((model / "model.safetensors").stat().st_size / 1e6, 2),
        **losses,
    }
    return Made(version, facts)


@contextmanager
def _served(world: Path, environment: EnvironmentSpec, config: Path) -> Iterator[str]:
    """The environment over the small world, for as long as its lessons are played."""
    body = {
        "splits": {"train": {"tasks": str(world / "tasks.jsonl"), "panos": str(world / "panos")}},
        "mode": "simulation",
        "play": environment.mode,
        "max_turns": environment.max_turns,
        "view_px": environment.view_px,
        "max_concurrent": 2,
        "environment_version": "small-world",
    }
    atomic_write(config, json.dumps(body, indent=2).encode() + b"\n")
    try:
        with ServerProcess(
            ENVIRONMENT_SERVER, ["--config", str(config), "--port", "0"], name="environment service"
        ) as server:
            yield server.url
    finally:
        config.unlink()
