"""A tiny asset made by a tiny job, on this machine or on a fake Hub, and the command that materializes it.

python compute_lab.py        materializes `tiny` as the variables say, in the instance of DAGSTER_HOME
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun, failing_clearly
from geo_assets.lineage.jobs import POOL, AssetJob, JobResult, run_job
from geo_assets.lineage.run_processes import followed
from geo_assets.lineage.settling import jobs_settled
from resources.compute.following import Limits

HERE = Path(__file__).parent
IMAGE = "registry.example/geo@sha256:" + "ab" * 32
TEXT = "what was made"
LINES = 4
ACCEPT: list[Callable[[JobResult], None]] = [lambda result: None]
"""What the asset thinks of a result; a test puts another into its place."""
# Small enough for a test: nothing here waits for a real Hub.
FAST = {"GEO_JOB_POLL_S": "0.1", "GEO_JOB_PATIENCE_S": "20", "GEO_JOB_VANISH_S": "0.3"}


def wish(**changes: Any) -> dict[str, Any]:
    """What a tiny job is asked for."""
    return {"lines": LINES, "text": TEXT, **changes}


def rented(hub: Any, **changes: str) -> dict[str, str]:
    """Variables under which a tiny job is rented from a fake Hub; its folders stay on this machine."""
    return {**hub.environ, **FAST, "GEO_COMPUTE": "hub", "GEO_JOB_IMAGE": IMAGE, **changes}


def tiny_result(run: StageRun, wanted: dict[str, Any], line: Callable[[str], None] = print) -> JobResult:
    """Have the job run; what it made is in `<home>/tiny`."""
    job = AssetJob(
        module="tiny_job",
        hardware=os.environ.get("TINY_HARDWARE", "1xA100"),
        timeout_s=float(wanted.get("timeout_s", 120)),
        spec={"text": wanted["text"]},
        parents={"parent": "parent-version"},
        env={"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        limits=Limits(queue_s=60, spare_s=5, settle_s=2),
        fix="Run: dagster asset materialize --select tiny",
    )
    return run_job(run, job, lambda payload: wanted, run.settings.home / "tiny", line, ACCEPT[0])


def lab_stage() -> Stage:
    """The profile of the variables."""
    return Stage(load_settings(), stage_specs("sandbox"))


@dg.asset(code_version="code-1", pool=POOL)
def tiny(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
    """Made by a job, as the variable TINY_WISH says."""
    wanted = json.loads(os.environ["TINY_WISH"])
    with failing_clearly(), jobs_settled(context.instance, load_settings(), ["tiny"], context.log.info):
        run = StageRun(lab_stage(), "tiny", context.log.info, context, "code-1")
        result = tiny_result(run, wanted, context.log.info)
        if held := wanted.get("hold_after"):  # the result is here, and nobody has been told yet
            Path(held).touch()
            while not Path(f"{held}.go").exists():
                time.sleep(0.02)
        metadata = {**result.metadata, **result.figures}
        yield dg.MaterializeResult(data_version=dg.DataVersion(result.data_version), metadata=metadata)


defs = dg.Definitions(
    [tiny],
    jobs=[dg.define_asset_job("typed")],
    # The step works in the run's own process, and the run is followed as those of the project are.
    executor=followed(dg.in_process_executor, load_settings().home),
)


def tiny_job() -> dg.JobDefinition:
    """The job over it."""
    return defs.resolve_job_def("typed")


def messages(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """What a run's log says."""
    return [entry.user_message for entry in instance.all_logs(run_id)]


def said_lines(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """The tiny job's messages in a run's log, in order."""
    return [text for text in messages(instance, run_id) if text.startswith("line ")]


def main() -> int:
    """Materialize `tiny`."""
    import compute_lab

    with dg.DagsterInstance.get() as instance:
        result = dg.execute_job(dg.reconstructable(compute_lab.tiny_job), instance)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main())
