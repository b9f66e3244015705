"""GPU jobs of ours that no run waits for: reported at once, cancelled after a grace period.

The grace is for a person who runs the same command again: that run goes on with the job, and pays once.
Only jobs with this home's own label are looked at, on this machine and, where it is set up, on the Hub.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from env_service.errors import GeoError
from geo_assets.config.budget import load_automation
from geo_assets.config.compute import ComputeSettings, load_compute, places_known
from geo_assets.config.prices import load_prices
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.faults import machine_fault
from geo_assets.lineage.launches import runs_in_progress
from geo_assets.lineage.settling import try_settling
from geo_assets.lineage.waiting import waited_for_by
from resources.compute import ASSET, HOME, PROJECT, PROJECT_NAME, Compute, Job, orphans
from sensors._launching import graph_of

EVERY_S = 120
SAYS = (
    "Reports GPU jobs of this home that no run in progress waits for, and cancels them after the grace "
    "period of `config/budget.yaml`. Running the asset again within it goes on with the job."
)
TICK_S = 20.0
"""Seconds after which no other job is cancelled in one look: Dagster ends a look that takes a minute."""
Places = Callable[[Stage], Sequence[Compute]]


@dataclass(frozen=True)
class Orphan:
    """A job that nobody waits for, where it runs, and since when it has been seen alone."""

    job: Job
    place: Compute
    since: float

    def minutes(self, now: float) -> float:
        """How long it has been alone."""
        return (now - self.since) / 60.0


def orphan_sensor(
    stage: Stage, places: Places | None = None, clock: Callable[[], float] = time.time
) -> dg.SensorDefinition:
    """The sensor of one profile; it is off until it is switched on.

    Args:
        stage: the profile.
        places: where jobs run; by default what `geo jobs` looks at, each asked once.
        clock: seconds since 1970.
    """

    @dg.sensor(
        name="orphan_sensor",
        # It launches nothing; Dagster wants to be told of something that it could.
        asset_selection=dg.AssetSelection.groups("training", "sweeps"),
        minimum_interval_seconds=EVERY_S,
        description=SAYS,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def orphan(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            return _looked(context, stage, (places or all_places)(stage), clock())
        except GeoError as error:
            return dg.SkipReason(str(error))
        except Exception as error:
            if (fault := machine_fault(error)) is None:
                raise
            return dg.SkipReason(fault)

    return orphan


def all_places(stage: Stage) -> list[Compute]:
    """This machine, and the Hub where jobs could have been launched on it; each is asked once."""
    settings = replace(load_compute(stage.settings), patience_s=0.0)
    return places_known(settings)


def _looked(
    context: dg.SensorEvaluationContext, stage: Stage, places: Sequence[Compute], now: float
) -> dg.SensorResult:
    grace = load_automation(stage.settings.profile).orphans.grace_minutes
    known = {key.to_user_string() for key in graph_of(context).get_all_asset_keys()}
    seen, deadline = _seen(context.cursor), time.monotonic() + TICK_S
    # Jobs before runs: a job that is launched in between is not seen, and one that is seen has its run.
    found, lines = _found(places, load_compute(stage.settings))
    runs = runs_in_progress(context.instance, stage)
    waited_for = {work for run in runs for work in waited_for_by(run, known)}
    try_settling(context.instance, stage.settings, context.log.info, waited_for=waited_for)
    # What runs at a place that does not answer is alone since when it was seen so.
    answered = {job.id for _, job in found}
    left = {job: since for job, since in seen.items() if lines and job not in answered}
    events = []
    for place, job in found:
        if not orphans([job], waited_for):
            continue
        one = Orphan(job, place, seen.get(job.id, now))
        late = one.minutes(now) >= grace
        fault = _cancel(one, deadline) if late else ""
        if not late or fault:
            left[job.id] = one.since
        lines.append(_words(one, grace, late, now, fault))
        if ((late and not fault) or job.id not in seen) and job.labels.get(ASSET) in known:
            events.append(_observation(one, lines[-1], late and not fault))
    for line in lines:
        context.log.warning(line)
    return dg.SensorResult(
        skip_reason="\n".join(lines) or "Every job has a run that waits for it.",
        asset_events=events,
        cursor=json.dumps(left, sort_keys=True),
    )


def _found(
    places: Sequence[Compute], settings: ComputeSettings
) -> tuple[list[tuple[Compute, Job]], list[str]]:
    """Live jobs of this home wherever they can be asked for, and what is wrong with the other places."""
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    found: list[tuple[Compute, Job]] = []
    faults = []
    for place in places:
        try:
            found += [(place, job) for job in place.find(labels) if job.live]
        except Exception as error:
            faults.append(f"Jobs of one place are not known: {_told(error)}")
    return found, faults


def _cancel(one: Orphan, deadline: float) -> str:
    """Cancel a job; why it could not be, if so."""
    if time.monotonic() > deadline:
        return "this look has taken too long"
    try:
        one.place.cancel(one.job.id)
    except Exception as error:
        return _told(error)
    return ""


def _told(error: Exception) -> str:
    """A fault of one place or job, which must not keep the sensor from the others."""
    return str(error) if isinstance(error, GeoError) else machine_fault(error) or type(error).__name__


def _words(one: Orphan, grace: float, late: bool, now: float, fault: str) -> str:
    job = one.job
    what = f"Job {job.id} ({job.flavor}) of {job.labels.get(ASSET, 'no asset')} has no run that waits for it"
    if fault:
        return f"{what}, and is not cancelled ({fault}); the next look tries again: {job.url}"
    if late:
        return f"{what}; cancelled after {one.minutes(now):.0f} minutes: {job.url}"
    rate = load_prices().flavors
    price = f", at ${rate[job.flavor].usd_per_hour:.2f} an hour" if job.flavor in rate else ""
    rest = max(0.0, grace - one.minutes(now))
    return (
        f"{what}{price}; cancelled in {rest:.0f} minutes. Go on with it: geo build --only "
        f"{job.labels.get(ASSET, 'ASSET')}. Cancel it: geo jobs --cancel {job.id}"
    )


def _observation(one: Orphan, words: str, late: bool) -> dg.AssetObservation:
    metadata: dict[str, dg.MetadataValue | str] = {
        "orphan": one.job.id,
        "what": "cancelled" if late else "reported",
        "job_url": dg.MetadataValue.url(one.job.url),
    }
    return dg.AssetObservation(one.job.labels[ASSET], description=words, metadata=metadata)


def _seen(cursor: str | None) -> dict[str, float]:
    try:
        found = json.loads(cursor or "{}")
        return {str(name): float(at) for name, at in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
