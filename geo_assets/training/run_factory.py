"""An adapter trained in the environment, from a run of `config/runs.yaml`.

**What.** LoRA weights, with the spec they were trained by, the course of the training line by line and as a
picture, and a configuration that names the base model and its revision.

**Why.** The policy plays tasks of the train split, several attempts at each, and is moved towards those of
its own attempts that earned more. Whatever could alter the weights is in the spec, the base model or the
environment, and each of those is a version; the data version is the weights themselves.

**Cost.** The sandbox trains a tiny model in minutes on two cores; a live run rents a card for hours, as a job
that outlives whoever launched it, and carries its GPU seconds and dollars.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.runs import RunSpec, load_runs
from geo_assets.lineage.assets import (
    Check,
    CheckSpec,
    GeoAsset,
    Made,
    Stage,
    StageRun,
    geo_asset,
)
from geo_assets.lineage.folders import AssetFolder, Published
from geo_assets.lineage.jobs import POOL, AssetJob, JobResult, run_job
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.swapping import recover, swap
from geo_assets.lineage.versions import content_version
from geo_assets.reports.charts import inline_png
from geo_assets.training.curves import curves_chart
from geo_assets.training.job_payload import training_payload
from geo_assets.training.libraries import TRAINING_LIBRARIES, time_limit_s, training_estimate
from geo_assets.training.train_job import TRAINER, VERSION
from resources.compute import JobFailed

ENVIRONMENT, TRAIN_JOB = "train_environment", "geo_assets.training.train_job"
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
CPU = "cpu"
OPERATIONAL = ("geo_assets.training.libraries:time_limit_s",)
"""How long a job may take alters nothing of what it makes."""


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
        runs=[TRAINER, TRAIN_JOB],
        inputs=TRAINING_LIBRARIES,
        apart=OPERATIONAL,
        estimate=lambda stage: training_estimate(spec),
        pool=None if spec.hardware == CPU else POOL,
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
        GeoError: there is nothing to play, or a job cannot be had; the message names what is missing.
        JobFailed: the job ended without an adapter.
        BeingWritten: the same adapter is being trained already.
    """
    environment, base = run.require(ENVIRONMENT), run.require(spec.base)
    if "empty_because" in environment.facts:
        why = environment.facts["empty_because"]
        raise GeoError(f"{run.name} has nothing to train on: the train split is empty ({why})")
    target = run.folder().path
    with single_writer(target.with_name(f".{run.name}.lock"), run.name):
        recover(target)
        aside = Path(tempfile.mkdtemp(prefix=f".{run.name}.", dir=target.parent))
        try:
            staged = AssetFolder(aside, run.name)
            staged.path.mkdir()
            log = target.with_name(f".{run.name}.log")  # outside, so that it stands after a failure too
            done = _train(run, spec, environment, base, staged.path, log)
            log.unlink()
            made = _made(spec, _facts(spec, environment, base, staged.path), staged.path, done, target)
            # Marked before it is moved, so that a finished adapter stands there at every moment.
            staged.publish(made.data_version, dict(made.facts))
            swap(staged.path, target, aside)
        finally:
            recover(target)
    return made


def _train(
    run: StageRun, spec: RunSpec, environment: Published, base: Published, out: Path, log: Path
) -> JobResult:
    """Have the trainer run as a job, and bring back what it made; what it printed besides goes to `log`."""
    job = AssetJob(
        module=TRAIN_JOB,
        hardware=spec.hardware,
        timeout_s=time_limit_s(spec),
        spec=spec.identity(),
        parents={environment.name: environment.data_version, base.name: base.data_version},
        fix=f"Run: dagster asset materialize --select {run.name}; what it printed is in {log}",
    )
    with log.open("w", encoding="utf-8") as lines:

        def keep(text: str) -> None:
            lines.write(f"{text}\n")
            lines.flush()

        def accept(done: JobResult) -> None:
            version = content_version({name: _facts(spec, environment, base, out)[name] for name in VERSION})
            if version != done.data_version:
                raise JobFailed(f"it reported version {done.data_version}, and its adapter has {version}")

        return run_job(
            run, job, lambda payload: training_payload(payload, spec, environment, base), out, keep, accept
        )


def _facts(spec: RunSpec, environment: Published, base: Published, out: Path) -> dict[str, Any]:
    """What a finished training says of itself, and what it was made from.

    Raises:
        JobFailed: it does not say all of it.
    """
    try:
        result: dict[str, Any] = json.loads((out / RESULT).read_text(encoding="utf-8"))
        facts = {
            **result,
            "base": spec.base,
            "base_version": base.data_version,
            "base_repo": str(base.facts.get("repo") or spec.base),
            "environment_version": environment.data_version,
        }
        metrics = _metrics(out)
        if missing := [name for name in (*VERSION, "rollouts", "lost", "cut") if name not in facts]:
            raise ValueError(f"no {missing[0]}")
        if not metrics:
            raise ValueError(f"{METRICS} is empty")
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise JobFailed(f"its artifacts are not those of a training ({error})") from None
    return facts


def _metrics(out: Path) -> list[Any]:
    return [json.loads(line) for line in (out / METRICS).read_text(encoding="utf-8").splitlines()]


def _made(spec: RunSpec, facts: dict[str, Any], out: Path, done: JobResult, target: Path) -> Made:
    """Figures and the picture of a finished training."""
    lines = _metrics(out)
    picture = curves_chart(lines, f"{spec.label} ({spec.slug}, seed {spec.seed})")
    atomic_write(out / CURVES, picture)
    atomic_write(out / TRAINING, json.dumps(facts, indent=2, allow_nan=False).encode() + b"\n")
    kept = (*KEPT, CHECKPOINTS) if spec.save_every else KEPT
    for path in out.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    broken, played = int(facts["lost"]) + int(facts["cut"]), int(facts["rollouts"])
    check = Check(
        WHOLE,
        broken <= MAX_BROKEN_SHARE * played,
        {"rollouts": played, "lost": facts["lost"], "cut": facts["cut"], "limit": MAX_BROKEN_SHARE},
    )
    metadata: Mapping[str, Any] = {
        "curves": dg.MetadataValue.md(inline_png(picture, f"Training of {spec.label}")),
        "curves_path": dg.MetadataValue.path(str(target / CURVES)),
        "adapter_path": dg.MetadataValue.path(str(target / "adapter")),
        **done.figures,
        **done.metadata,
    }
    return Made(done.data_version, facts, metadata, [check])
