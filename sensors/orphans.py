"""GPU jobs of ours that no run waits for: reported at once, cancelled after a grace period.

The grace is for a person who runs the same command again: that run goes on with the job, and pays once.
Only jobs with this home's own label are looked at, on this machine and, where it is set up, on the Hub.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from env_service.errors import GeoError
from geo_assets.config.budget import load_automation
from geo_assets.config.compute import ComputeSettings, load_compute, open_compute
from geo_assets.config.prices import load_prices
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.faults import machine_fault
from geo_assets.lineage.launches import IN_PROGRESS
from geo_assets.lineage.settling import try_settling
from geo_assets.lineage.waiting import waited_for_by
from resources.compute import ASSET, HOME, LOCAL, PROJECT, PROJECT_NAME, Compute, Job, orphans
from sensors._launching import graph_of

EVERY_S = 120
SAYS = (
    "Reports GPU jobs of this home that no run in progress waits for, and cancels them after the grace "
    "period of `config/budget.yaml`. Running the asset again within it goes on with the job."
)
RENTED = "a100-large"
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
        places: where jobs run; by default what `geo jobs` looks at.
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
    """This machine, and the Hub where jobs could have been launched on it."""
    settings = load_compute(stage.settings)
    found = [open_compute(settings, LOCAL, "orphan_sensor")]
    if settings.token is not None and settings.image:
        found.append(open_compute(settings, RENTED, "orphan_sensor"))
    return found


def alone(
    places: Sequence[Compute],
    settings: ComputeSettings,
    waited_for: set[str],
    seen: Mapping[str, float],
    now: float,
) -> Iterator[Orphan]:
    """Jobs that no run waits for, with the moment when each was first seen so."""
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    for place in places:
        for job in orphans(place.find(labels), waited_for):
            yield Orphan(job, place, seen.get(job.id, now))


def _looked(
    context: dg.SensorEvaluationContext, stage: Stage, places: Sequence[Compute], now: float
) -> dg.SensorResult:
    grace = load_automation(stage.settings.profile).orphans.grace_minutes
    known = {key.to_user_string() for key in graph_of(context).get_all_asset_keys()}
    runs = context.instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS))
    waited_for = {work for run in runs for work in waited_for_by(run, known)}
    try_settling(context.instance, stage.settings, context.log.info, waited_for=waited_for)
    seen = _seen(context.cursor)
    lines, events, left = [], [], {}
    for one in alone(places, load_compute(stage.settings), waited_for, seen, now):
        late = one.minutes(now) >= grace
        if late:
            one.place.cancel(one.job.id)
        else:
            left[one.job.id] = one.since
        lines.append(_words(one, grace, late, now))
        context.log.warning(lines[-1])
        if (late or one.job.id not in seen) and one.job.labels.get(ASSET) in known:
            events.append(_observation(one, lines[-1], late))
    return dg.SensorResult(
        skip_reason="\n".join(lines) or "Every job has a run that waits for it.",
        asset_events=events,
        cursor=json.dumps(left, sort_keys=True),
    )


def _words(one: Orphan, grace: float, late: bool, now: float) -> str:
    job = one.job
    what = f"Job {job.id} ({job.flavor}) of {job.labels.get(ASSET, 'no asset')} has no run that waits for it"
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
