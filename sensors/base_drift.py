"""Once a week the frozen base is swept again, one pass, and its drift is tracked.

The pass is no asset: it would follow every change of the harness, and nothing is made from it. It is a job
that plays with the same code as `sweep_<base>`, guards included, into `$GEO_HOME/drift/<base>/<day>/`. Each
point of the series is an observation on `sweep_<base>` (Dagster draws its figures over time) and a line of
`$GEO_HOME/drift/<base>/series.jsonl`. A drift beyond two standard errors fails the run, once it is recorded.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec, load_arms
from geo_assets.config.budget import Budget, load_automation
from geo_assets.lineage.assets import Stage, StageRun, failing_clearly
from geo_assets.lineage.budget import EXPECTED_USD, Launch, decide_pass
from geo_assets.lineage.costs import GPU_SECONDS, JOB_ID, USD
from geo_assets.lineage.folders import AssetFolder, require
from geo_assets.lineage.jobs import POOL
from geo_assets.lineage.launches import NO_ASSETS, Look
from geo_assets.lineage.run_processes import followed
from geo_assets.lineage.settling import jobs_settled
from geo_assets.lineage.waiting import jobs_for
from geo_assets.reports.base_drift import SERIES, append_point, base_arms, drift_of, rewards_by_task
from geo_assets.sweeps.factory import sweep_arm
from geo_assets.sweeps.names import asset_name, folder_name
from geo_assets.sweeps.version import harness_version
from resources.compute.labels import ASSET, DRIFT, PURPOSE, work_of
from sensors._launching import graph_of

JOB, SCHEDULE = "base_drift", "base_drift_schedule"
WEEKLY = "0 5 * * 1"
FOLDER = "drift"
COST = (USD, GPU_SECONDS, "flavor", "job_seconds", JOB_ID)
"""Of what the pass's server cost, what is recorded with the point."""
SAYS = (
    "Plays one more pass of each board's base arm, into a folder of its own, and holds it against the "
    "standing sweep task by task. Fails where the drift lies beyond two standard errors."
)


@dataclass(frozen=True)
class _Aside(StageRun):
    """A stage run whose own folder stands elsewhere."""

    aside: str = ""

    def folder(self, name: str | None = None) -> AssetFolder:
        """The folder of the pass."""
        return AssetFolder(self.settings.home, self.aside)


class DriftConfig(dg.Config):
    """Which arm, and the day that names the folder of the pass."""

    arm: str
    day: str


def base_drift_job(stage: Stage) -> dg.JobDefinition:
    """The job of one profile."""

    hosted = any(arm.by_job for arm in base_arms(load_arms(stage.settings.profile)))

    @dg.op(name="play_base_again", description=SAYS, pool=POOL if hosted else None)
    def play_base_again(context: dg.OpExecutionContext, config: DriftConfig) -> None:
        with failing_clearly():
            arm = load_arms(stage.settings.profile).get(config.arm)
            # Whoever launched this run: its server has a run that waits for it.
            context.instance.add_run_tags(context.run_id, dict(jobs_for(_work(arm))))
            with jobs_settled(context.instance, stage.settings, [_work(arm)], context.log.info):
                _played(context, stage, arm, config.day)

    executor = followed(dg.in_process_executor, stage.settings.home)

    @dg.job(name=JOB, description=SAYS, tags={NO_ASSETS: "true"}, executor_def=executor)
    def base_drift() -> None:
        play_base_again()

    return base_drift


def base_drift_schedule(stage: Stage, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of one profile, Mondays at 05:00 UTC; it is off until it is switched on."""

    @dg.schedule(
        name=SCHEDULE,
        cron_schedule=WEEKLY,
        execution_timezone="UTC",
        job=job,
        description=SAYS,
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
    def weekly(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        try:
            profile = stage.settings.profile
            look = Look(context.instance, graph_of(context), stage, time.time())
            day = f"{context.scheduled_execution_time:%Y-%m-%d}"
            budget = load_automation(profile).budget
            requests, reasons = wanted(look, base_arms(load_arms(profile)), budget, day)
        except GeoError as error:
            return dg.SkipReason(str(error))
        for words in reasons:
            context.log.info(words)
        return requests or dg.SkipReason("\n".join(reasons) or "This profile has no base arm.")

    return weekly


def wanted(
    look: Look, arms: Sequence[ArmSpec], budget: Budget, day: str
) -> tuple[list[dg.RunRequest], list[str]]:
    """Passes that are asked for, and why others are not.

    Args:
        look: at the present state.
        arms: the bases.
        budget: of the profile.
        day: of the tick; names the pass.
    """
    spent = look.spent
    requests, reasons = [], []
    for arm in arms:
        name = asset_name(arm.slug)
        usd = look.usual_cost(name) / arm.k
        decision = decide_pass(look.plan, name, usd, spent, budget, look.around(name))
        if isinstance(decision, Launch):
            spent = spent.and_then(decision.usd)
            requests.append(_request(arm, day, decision.usd))
        else:
            reasons.append(decision.words)
    return requests, reasons


def _request(arm: ArmSpec, day: str, usd: float) -> dg.RunRequest:
    config = dg.RunConfig(ops={"play_base_again": DriftConfig(arm=arm.slug, day=day)})
    tags = {EXPECTED_USD: f"{usd:.4f}", **jobs_for(_work(arm))}
    return dg.RunRequest(run_key=f"{arm.slug}:{day}", run_config=config, tags=tags)


def _work(arm: ArmSpec) -> str:
    """What the jobs of a pass work at."""
    return work_of({ASSET: asset_name(arm.slug), PURPOSE: DRIFT})


def _played(context: dg.OpExecutionContext, stage: Stage, arm: ArmSpec, day: str) -> None:
    """Play the pass, record the point, and fail where it is an alert."""
    name = asset_name(arm.slug)
    standing = require(stage.settings.home, name, JOB, folder_name(arm.slug))
    environment = require(stage.settings.home, "eval_environment", JOB)
    now = {"environment_version": environment.data_version, "harness_version": harness_version()}
    if any(standing.facts.get(field) != value for field, value in now.items()):
        raise GeoError(
            f"{name} was played by another environment or harness than today's, so nothing can be compared",
            f"Run: geo refresh --select '*{name}'",
        )
    aside = f"{FOLDER}/{arm.slug}/{day}"
    run = _Aside(stage, JOB, context.log.info, aside=aside, purpose=DRIFT)
    made = sweep_arm(run, arm.model_copy(update={"k": 1}))
    run.folder().publish(made.data_version, dict(made.facts))
    point = drift_of(arm.slug, rewards_by_task(standing.path), rewards_by_task(run.folder().path))
    cost = {key: value for key, value in made.metadata.items() if key in COST}
    record = {**point.plain(), "day": day, "run": context.run_id, **now}
    append_point(series_path(stage, arm.slug), record)
    context.log_event(_observation(name, record, cost))
    if point.alert:
        raise dg.Failure(
            description=f"The frozen base {arm.slug} drifted by {point.drift:+.4f} (standard error "
            f"{point.se:.4f}, {point.tasks} tasks): gains measured in different weeks do not compare.",
            allow_retries=False,
        )


def _observation(name: str, record: dict[str, Any], cost: dict[str, Any]) -> dg.AssetObservation:
    figures = {f"drift_{key}" if key != "drift" else key: v for key, v in record.items() if v is not None}
    return dg.AssetObservation(
        name, description="One more pass of the frozen base", metadata={**figures, **cost}
    )


def series_path(stage: Stage, slug: str) -> Path:
    """Where the series of an arm stands."""
    return stage.settings.home / FOLDER / slug / SERIES
