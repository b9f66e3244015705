"""An adapter trained in the environment, from a run of `config/runs.yaml`.

**What.** LoRA weights, with the spec they were trained by, the course of the training line by line and as a
picture, and a configuration that names the base model and its revision.

**Why.** The policy plays tasks of the train split, several attempts at each, and is moved towards those of
its own attempts that earned more. Whatever could alter the weights is in the spec, the base model or the
environment, and each of those is a version; the data version is the weights themselves.

**Cost.** The sandbox trains a tiny model in minutes on two cores; a live run needs a card for hours.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.runs import RunSpec, load_runs
from geo_assets.lineage.assets import (
    PROGRESS_EVERY_S,
    Check,
    CheckSpec,
    GeoAsset,
    Made,
    Stage,
    StageRun,
    geo_asset,
)
from geo_assets.lineage.folders import AssetFolder, Published
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.swapping import recover, swap
from geo_assets.lineage.versions import content_version
from geo_assets.reports.charts import inline_png
from geo_assets.sweeps.kept import KeptServer, ServerDied
from geo_assets.training.curves import curves_chart
from geo_assets.training.libraries import TRAINING_LIBRARIES, training_estimate
from resources.compute import JobDone, LocalJob

ENVIRONMENT, ENVIRONMENT_SERVER, TRAINER = (
    "train_environment",
    "env_service.server",
    "geo_assets.training.grpo",
)
CONFIG, MODEL = "config.json", "model"
SPEC, RESULT, METRICS, CURVES, TRAINING, LOG = (
    "spec.json",
    "result.json",
    "metrics.jsonl",
    "curves.png",
    "training.json",
    "training.log",
)
KEPT = ("adapter", METRICS, "timings.jsonl", "rollouts.jsonl", CURVES, SPEC, TRAINING, LOG)
CHECKPOINTS = "checkpoints"
WHOLE, MAX_BROKEN_SHARE = "rollouts_are_whole", 0.02
SPARE_SESSIONS, IDLE_S = 4, 3600.0
CPU = "cpu"
CARD = Path("/dev/nvidiactl")
CHILD_ENV = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}


def adapter_assets(stage: Stage) -> list[GeoAsset]:
    """One asset `adapter_<slug>` for every run of the stage's profile that has one.

    Raises:
        ArmsFileError: the runs file cannot be used.
    """
    return [adapter_asset(run) for run in load_runs(stage.settings.profile).assets]


def adapter_asset(spec: RunSpec) -> GeoAsset:
    """The asset of one run."""
    name, words = f"adapter_{spec.slug}", (__doc__ or "").strip()

    @geo_asset(
        name=name,
        group="training",
        deps=[spec.base, ENVIRONMENT],
        spec=lambda specs: spec.identity(),
        runs=[TRAINER],
        inputs=TRAINING_LIBRARIES,
        estimate=lambda stage: training_estimate(spec),
        kinds={"pytorch", "huggingface"},
        descriptions={name: f"**{spec.label}** (on `{spec.base}`, {spec.steps} steps).\n\n{words}"},
        priority=8,
        tags={"run": spec.slug, "base": spec.base, "hardware": spec.hardware.lower()},
        checks=[
            # Not blocking: what an adapter is worth is measured by its sweep.
            CheckSpec(WHOLE, "Hardly a rollout was lost or cut off by the trainer's length.", blocking=False)
        ],
    )
    def adapter(run: StageRun) -> Made:
        return train_adapter(run, spec)

    return adapter


def train_adapter(run: StageRun, spec: RunSpec) -> Made:
    """Train into a folder aside, and put it in place when it is whole.

    Raises:
        MissingUpstream: base model or environment have not been built.
        GeoError: there is nothing to play, no card where one is needed, or the environment died for good.
        JobFailed: the trainer ended without an adapter.
        BeingWritten: the same adapter is being trained already.
    """
    environment, base = run.require(ENVIRONMENT), run.require(spec.base)
    if "empty_because" in environment.facts:
        why = environment.facts["empty_because"]
        raise GeoError(f"{run.name} has nothing to train on: the train split is empty ({why})")
    if spec.hardware != CPU and not CARD.exists():
        raise GeoError(
            f"{run.name} needs a GPU job ({spec.hardware}), and this machine has no card",
            "Materialize it on a machine with a CUDA device, or set GEO_PROFILE=sandbox",
        )
    target = run.folder().path
    with single_writer(target.with_name(f".{run.name}.lock"), run.name):
        recover(target)
        aside = Path(tempfile.mkdtemp(prefix=f".{run.name}.", dir=target.parent))
        try:
            staged = AssetFolder(aside, run.name)
            staged.path.mkdir()
            log = target.with_name(f".{run.name}.log")  # outside, so that it stands after a failure too
            done = _train(run, spec, environment, base, staged.path, log)
            log.rename(staged.path / LOG)
            made = _made(spec, environment, base, staged.path, done, target)
            # Marked before it is moved, so that a finished adapter stands there at every moment.
            staged.publish(made.data_version, dict(made.facts))
            swap(staged.path, target, aside)
        finally:
            recover(target)
    return made


def _train(
    run: StageRun, spec: RunSpec, environment: Published, base: Published, out: Path, log: Path
) -> JobDone:
    """Serve the environment, and run the trainer against it to its end."""
    again = f"Run: dagster asset materialize --select {run.name}"
    atomic_write(out / SPEC, spec.model_dump_json(indent=2).encode() + b"\n")
    config, sessions = environment.path / CONFIG, spec.generation_batch + SPARE_SESSIONS
    options = ["--config", str(config), "--max-concurrent", str(sessions), "--idle-s", str(IDLE_S)]
    folder = base.path / MODEL
    if "stands_in_for" in base.facts and not folder.is_dir():
        raise GeoError(f"{folder} is gone", f"Run: geo build --only {spec.base}")
    model, offline = (str(folder), {"HF_HUB_OFFLINE": "1"}) if folder.is_dir() else (base.facts["repo"], {})
    revision = str(base.facts.get("revision") or base.data_version)
    with KeptServer(
        ENVIRONMENT_SERVER, options, name="environment service", command=again, config=config
    ) as server:
        arguments = ["--spec", str(out / SPEC), "--environment", server.url, "--out", str(out)]
        arguments += ["--base", str(model), "--revision", revision]
        job = LocalJob(
            TRAINER,
            arguments,
            name=f"training of {run.name}",
            log=log,
            env={**CHILD_ENV, **offline},
            fix=f"{again}; all that it said is in {log}",
        )
        try:
            return job.run(_Progress(run, spec.steps), lambda: server.mended(server.generation))
        except ServerDied:
            raise GeoError(
                f"The environment that {run.name} trained in died and could not be brought back", again
            ) from None


class _Progress:
    """Tells every two seconds how far the trainer is."""

    def __init__(self, run: StageRun, steps: int) -> None:
        self._run = run
        self._steps = steps
        self._last = -PROGRESS_EVERY_S

    def __call__(self, printed: str) -> None:
        line = _step(printed)
        now = time.monotonic()
        if line is None or (now - self._last < PROGRESS_EVERY_S and line["step"] != self._steps):
            return
        self._last = now
        figures = ", ".join(
            f"{label} {line[name]:.{digits}f}"
            for name, label, digits in (
                ("reward", "reward", 3),
                ("no_guess_share", "no guess", 2),
                ("looks", "looks", 2),
                ("median_km", "median km", 0),
            )
            if line.get(name) is not None
        )
        self._run.say(f"step {line['step']:,} of {self._steps:,}: {figures}")


def _step(printed: str) -> dict[str, Any] | None:
    """A step's line; None for whatever else was printed."""
    try:
        value = json.loads(printed)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "step" in value else None


def _made(
    spec: RunSpec, environment: Published, base: Published, out: Path, done: JobDone, target: Path
) -> Made:
    """Facts, figures and the picture of a finished training."""
    result: dict[str, Any] = json.loads((out / RESULT).read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (out / METRICS).read_text(encoding="utf-8").splitlines()]
    facts = {
        **result,
        "base": spec.base,
        "base_version": base.data_version,
        "base_repo": str(base.facts.get("repo") or spec.base),
        "environment_version": environment.data_version,
    }
    picture = curves_chart(lines, f"{spec.label} ({spec.slug}, seed {spec.seed})")
    atomic_write(out / CURVES, picture)
    atomic_write(out / TRAINING, json.dumps(facts, indent=2, allow_nan=False).encode() + b"\n")
    kept = (*KEPT, CHECKPOINTS) if spec.save_every else KEPT
    for path in out.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    broken, played = int(result["lost"]) + int(result["cut"]), int(result["rollouts"])
    check = Check(
        WHOLE,
        broken <= MAX_BROKEN_SHARE * played,
        {"rollouts": played, "lost": result["lost"], "cut": result["cut"], "limit": MAX_BROKEN_SHARE},
    )
    version = {name: facts[name] for name in ("weights_sha256", "base_repo", "base_revision")}
    metadata: Mapping[str, Any] = {
        "curves": dg.MetadataValue.md(inline_png(picture, f"Training of {spec.label}")),
        "curves_path": dg.MetadataValue.path(str(target / CURVES)),
        "adapter_path": dg.MetadataValue.path(str(target / "adapter")),
        "trainer_seconds": done.seconds,
        "trainer_peak_memory_mb": done.peak_memory_mb,
    }
    return Made(content_version(version), facts, metadata, [check])
