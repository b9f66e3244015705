"""What rented jobs have cost: recorded for each of them, however it ended and whoever was there to see it.

The run that takes a job's result records the cost with it. Every other end (a failure, a run that was
cancelled or killed, a result that was refused, a server whose sweep broke off, an orphan) has nobody to do
so. So whenever jobs are looked at, each rented job of this home that has ended, and whose id is in no event
of its asset yet, becomes an observation of that asset with the cost. Who adds up records counts an id once:
of a job that was settled and whose result was taken later, there are two.

A note of each rented job is kept under `$GEO_HOME/jobs/rented`, so that one which the Hub has forgotten is
settled too; it is removed when the job's id is in an event.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterExecutionInterruptedError, DagsterInstance

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.compute import ComputeSettings, image_digest, load_compute, open_compute
from geo_assets.config.prices import load_prices
from geo_assets.config.settings import Settings
from geo_assets.lineage.costs import JOB_ID
from resources.compute import ASSET, HOME, LOCAL, PROJECT, PROJECT_NAME, Compute, Job, JobStatus
from resources.compute.labels import limit_of, work_of

RENTING_GROUPS = ("sweeps", "training")
"""Groups of assets that jobs may be rented for."""
RENTED = "a100-large"
NOTES = "rented"
PATIENCE_S = 10.0
"""A Hub that is down is not waited for here: what is not settled now is settled at the next look."""
SKEW_S = 86400.0
"""How far the Hub's clock, by which a job was made, may be ahead of ours, by which an event was recorded."""
PAGE = 200
SAYS = "What a rented job cost whose result no run took"


def cost_metadata(
    job: Job, status: JobStatus, settings: ComputeSettings, now: float | None = None
) -> dict[str, Any]:
    """What a job cost and where it ran, under the names that plans and tables read.

    Args:
        job, status: the job, and how it is.
        settings: where jobs run.
        now: seconds since 1970; the present if not given.
    """
    prices, here = load_prices(), job.flavor == LOCAL
    seconds = paid_seconds(job, status, time.time() if now is None else now)
    return {
        "gpu_seconds": prices.gpu_seconds(job.flavor, seconds),
        "usd": prices.usd(job.flavor, seconds),
        "prices_as_of": str(prices.as_of),
        "flavor": job.flavor,
        "image_digest": "none" if here else _digest(status.image or settings.image),
        "job_url": dg.MetadataValue.url(job.url),
        JOB_ID: job.id,
        "job_seconds": round(seconds, 3),
    }


def _digest(image: str) -> str:
    try:
        return image_digest(image)
    except GeoError:
        return "unknown"  # of a job that nobody knows any more, where the variable is not set now


def paid_seconds(job: Job, status: JobStatus, now: float) -> float:
    """Seconds that a job is paid for: those it ran. Where nobody knows them any more, those since it was
    made, and at most its time limit, so that a budget is not told too little."""
    if status.running_s is not None:
        return status.running_s
    return 0.0 if status.live else min(max(0.0, now - job.created_at), limit_of(job.labels))


def note(settings: ComputeSettings, job: Job) -> None:
    """Keep in mind that a job was rented."""
    if job.flavor == LOCAL:
        return
    body = {
        "id": job.id,
        "labels": dict(job.labels),
        "url": job.url,
        "flavor": job.flavor,
        "created_at": job.created_at,
    }
    path = _notes(settings) / f"{job.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(body).encode())


def rented_place(settings: ComputeSettings) -> Compute | None:
    """Where rented jobs of this home run; None where none can have been rented with these settings."""
    if settings.token is None or not settings.image:
        return None
    # One look says whether a job is known: what is settled is older than what the Hub may not know yet.
    hasty = replace(settings, patience_s=min(settings.patience_s, PATIENCE_S), vanish_s=0.0)
    try:
        return open_compute(hasty, RENTED, "settling")
    except GeoError:
        return None


def settle_jobs(
    instance: DagsterInstance,
    settings: ComputeSettings,
    *,
    work: Collection[str] | None = None,
    waited_for: Collection[str] = (),
    now: float | None = None,
) -> list[str]:
    """Record the cost of every rented job of this home that has ended and is in no event.

    Args:
        instance: with the events.
        settings: where jobs run.
        work: look at jobs for this alone (see `work_of`); at all if not given.
        waited_for: work that runs in progress wait for: they record it themselves.
        now: seconds since 1970; the present if not given.

    Returns:
        Ids of the jobs that were recorded.

    Raises:
        ComputeError: the Hub does not answer.
    """
    place = rented_place(settings)
    if place is None or (work is not None and not work):
        return []
    moment = time.time() if now is None else now
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    noted = {job.id: job for job in _noted(settings)}
    names = {None} if work is None else {one.partition(":")[0] for one in work}
    listed = [
        job for name in names for job in place.find(labels if name is None else {**labels, ASSET: name})
    ]
    by_asset: dict[str, list[Job]] = {}
    for job in {**noted, **{job.id: job for job in listed}}.values():
        mine = work_of(job.labels)
        wanted = mine not in waited_for if work is None else mine in work
        # A live one is asked again only where it was not listed: its note is from when it was launched.
        ended = not job.live or job.id not in {one.id for one in listed}
        if wanted and ended and job.flavor != LOCAL and job.labels.get(ASSET):
            by_asset.setdefault(job.labels[ASSET], []).append(job)
    done = []
    for asset, jobs in by_asset.items():
        known = recorded_jobs(instance, asset, min(job.created_at for job in jobs) - SKEW_S)
        for job in jobs:
            if job.id not in known:
                status = place.status(job.id)
                young = moment - job.created_at < settings.vanish_s  # not known everywhere yet
                if status.live or (status.state == "vanished" and young):
                    continue
                cost = cost_metadata(job, status, settings, moment)
                instance.report_runless_asset_event(
                    dg.AssetObservation(asset, description=f"{SAYS} ({status.state})", metadata=cost)
                )
                done.append(job.id)
            (_notes(settings) / f"{job.id}.json").unlink(missing_ok=True)
    return done


def recorded_jobs(instance: DagsterInstance, asset: str, since: float) -> set[str]:
    """Ids of the jobs in events of an asset that were recorded since then."""
    found: set[str] = set()
    filtered = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), after_timestamp=since)
    for fetch in (instance.fetch_materializations, instance.fetch_observations):
        cursor = None
        while True:
            page = fetch(filtered, limit=PAGE, cursor=cursor)
            for record in page.records:
                event = record.asset_materialization or record.event_log_entry.asset_observation
                if event is not None and JOB_ID in event.metadata:
                    found.add(str(event.metadata[JOB_ID].value))
            if not page.has_more:
                break
            cursor = page.cursor
    return found


@contextmanager
def jobs_settled(
    instance: DagsterInstance, settings: Settings, work: Collection[str], say: Callable[[str], None]
) -> Iterator[None]:
    """Settle the jobs of some work before a block that may launch some, and again where it fails.

    Args:
        instance: with the events.
        settings: of the profile.
        work: assets, or `asset:purpose`; nothing happens where it is empty.
        say: told what was recorded, and why where nothing could be.
    """
    try_settling(instance, settings, say, work=work)
    try:
        yield
    except (Exception, KeyboardInterrupt, DagsterExecutionInterruptedError):
        try_settling(instance, settings, say, work=work)
        raise


def try_settling(
    instance: DagsterInstance,
    settings: Settings,
    say: Callable[[str], None],
    *,
    work: Collection[str] | None = None,
    waited_for: Collection[str] = (),
) -> None:
    """`settle_jobs`, which a Hub that does not answer keeps from nothing else: that is told, and no error."""
    try:
        for one in settle_jobs(instance, load_compute(settings), work=work, waited_for=waited_for):
            say(f"Recorded what job {one} cost")
    except GeoError as error:
        # Never in the way of what the block does, or of what it failed with.
        say(f"What earlier jobs cost is not recorded yet: {error}")


def _notes(settings: ComputeSettings) -> Path:
    return settings.local_root.parent / NOTES


def _noted(settings: ComputeSettings) -> Iterator[Job]:
    """Jobs that were rented and are in no event yet, as far as is known here."""
    for path in sorted(_notes(settings).glob("*.json")):
        try:
            body: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            labels = {str(key): str(value) for key, value in body["labels"].items()}
            created = float(body["created_at"])
            yield Job(str(body["id"]), labels, str(body["url"]), str(body["flavor"]), created, "running")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
