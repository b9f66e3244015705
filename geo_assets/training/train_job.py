"""One training as a job: bring what it needs, serve the environment, train, store the adapter, report it.

    python -m geo_assets.training.train_job --payload ADDRESS

Started by `run_factory` through `resources.compute`, on this machine or on a rented card; the program that
trains is `grpo`, under torchrun on several cards. What is said on the way are messages of Dagster Pipes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.runs import RunSpec
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.versions import content_version
from geo_assets.sweeps.kept import KeptServer, ServerDied
from resources.compute.inside import JobSide, fetched, job_side, read_payload
from resources.programs import Program, ProgramFailed

TRAINER = "geo_assets.training.grpo"
ENVIRONMENT_SERVER = "env_service.server"
TORCHRUN = "torch.distributed.run"
CONFIG, SPEC, RESULT, LOG = "config.json", "spec.json", "result.json", "training.log"
VERSION = ("weights_sha256", "base_repo", "base_revision")
"""What an adapter's data version is made of."""
SPARE_SESSIONS, IDLE_S = 4, 3600.0
CHILD_ENV = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
LOG_LINES = 200
PROGRESS_EVERY_S = 2.0


def train(job: JobSide, payload: dict[str, Any], scratch: Path) -> None:
    """Train one adapter and report it.

    Raises:
        GeoError: the payload cannot be used, or this is another code than the one that was asked for.
        ProgramFailed: the trainer ended without an adapter.
    """
    if payload["trainer"] != trainer_version():
        raise GeoError(
            "The job's image holds another trainer than the checkout that launched it",
            "Build the image again from this checkout, and set GEO_JOB_IMAGE to its digest",
        )
    spec = RunSpec.model_validate(payload["spec"])
    environment = fetched(payload["environment"], scratch, "environment")
    base = str(fetched(payload["base"], scratch, "base")) if payload["base_is_folder"] else payload["base"]
    out = scratch / "out"
    out.mkdir()
    atomic_write(out / SPEC, spec.model_dump_json(indent=2).encode() + b"\n")
    config, sessions = environment / CONFIG, spec.generation_batch + SPARE_SESSIONS
    options = ["--config", str(config), "--max-concurrent", str(sessions), "--idle-s", str(IDLE_S)]
    with KeptServer(
        ENVIRONMENT_SERVER, options, name="environment service", command="the same command", config=config
    ) as server:
        arguments = ["--spec", str(out / SPEC), "--environment", server.url, "--out", str(out)]
        arguments += ["--base", base, "--revision", payload["revision"]]
        done = _run(job, spec, arguments, out, payload, server)
    result = {**json.loads((out / RESULT).read_text(encoding="utf-8")), "base_repo": payload["base_repo"]}
    version = content_version({name: result[name] for name in VERSION})
    job.finish(out, version, done)


def _run(
    job: JobSide,
    spec: RunSpec,
    arguments: Sequence[str],
    out: Path,
    payload: dict[str, Any],
    server: KeptServer,
) -> dict[str, Any]:
    """Run the trainer to its end; returns its seconds and its peak memory."""
    cards = int(payload["cards"])
    spread = ["--standalone", "--nproc-per-node", str(cards), "-m", TRAINER] if cards > 1 else []
    program = Program(
        TORCHRUN if spread else TRAINER,
        [*spread, *arguments],
        name=f"training of adapter_{spec.slug}",
        log=out / LOG,
        env={**CHILD_ENV, **({"HF_HUB_OFFLINE": "1"} if payload["base_is_folder"] else {})},
    )
    try:
        done = program.run(_Progress(job, spec.steps), lambda: server.mended(server.generation))
    except ServerDied:
        raise GeoError(
            f"The environment that adapter_{spec.slug} trained in died and could not be brought back"
        ) from None
    except ProgramFailed:
        for line in (out / LOG).read_text(errors="replace").splitlines()[-LOG_LINES:]:
            print(line, flush=True)  # into the job's log, which outlives this folder
        raise
    return {"trainer_seconds": done.seconds, "trainer_peak_memory_mb": done.peak_memory_mb}


def trainer_version() -> str:
    """Version of the trainer's code, so that an image that holds another one is noticed before it trains."""
    return code_version([TRAINER])


class _Progress:
    """Passes on each step's line, and says every two seconds how far the trainer is."""

    def __init__(self, job: JobSide, steps: int) -> None:
        self._job = job
        self._steps = steps
        self._last = -PROGRESS_EVERY_S

    def __call__(self, printed: str) -> None:
        line = _step(printed)
        if line is None:
            return
        self._job.progress(line)
        now = time.monotonic()
        if now - self._last < PROGRESS_EVERY_S and line["step"] != self._steps:
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
        self._job.say(f"step {line['step']:,} of {self._steps:,}: {figures}")


def _step(printed: str) -> dict[str, Any] | None:
    """A step's line; None for whatever else was printed."""
    try:
        value = json.loads(printed)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "step" in value else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when the adapter is stored and reported, 2 for a fault that was told."""
    parser = argparse.ArgumentParser(
        prog="python -m geo_assets.training.train_job", description="Train one adapter as a job."
    )
    parser.add_argument("--payload", required=True, help="address of the job's payload")
    options = parser.parse_args(arguments)
    with job_side() as job, tempfile.TemporaryDirectory(prefix="geo-train-") as scratch:
        train(job, read_payload(options.payload, Path(scratch) / "payload"), Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
