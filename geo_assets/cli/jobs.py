"""`geo jobs`: jobs that were launched for assets, on this machine and on the Hub, and how to stop one."""

import json
import time
from typing import TYPE_CHECKING

import typer

from env_service.errors import GeoError

if TYPE_CHECKING:
    from resources.compute import Compute, Job

ON_HUB = "a100-large"
ENDED_SHOWN = 20


def jobs(
    cancel: str = typer.Option("", "--cancel", metavar="ID", help="Stop this job."),
    everything: bool = typer.Option(False, "--all", help="Ended ones, too."),
    as_json: bool = typer.Option(False, "--json", help="Machine-readable."),
) -> None:
    """List the jobs of this home that run, or cancel one."""
    from geo_assets.config.compute import load_compute, open_compute
    from geo_assets.config.settings import load_settings
    from resources.compute import HOME, LOCAL, PROJECT, PROJECT_NAME

    settings = load_compute(load_settings())
    places = [open_compute(settings, LOCAL, "geo jobs")]
    # The Hub is asked only where jobs could have been launched on it.
    if settings.token is not None and settings.image:
        places.append(open_compute(settings, ON_HUB, "geo jobs"))
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    found = [(place, job) for place in places for job in place.find(labels)]
    if cancel:
        _cancel(cancel, found)
        return
    shown = [job for _, job in found if job.live]
    shown += [job for _, job in found if not job.live][:ENDED_SHOWN] if everything else []
    if as_json:
        print(json.dumps({"jobs": [_row(job) for job in shown]}, indent=2))
        return
    if not shown:
        print("No job is running." if not everything else "No job has been launched.")
    for job in shown:
        minutes = (time.time() - job.created_at) / 60
        asset = _row(job)["asset"]
        print(
            f"{job.id}  {job.state:<9}  {job.flavor:<10}  {asset}  launched {minutes:.0f} min ago  {job.url}"
        )


def _cancel(wanted: str, found: "list[tuple[Compute, Job]]") -> None:
    for place, job in found:
        if job.id == wanted:
            if job.live:
                place.cancel(job.id)
            print(
                f"Job {job.id} is cancelled" if job.live else f"Job {job.id} had ended before ({job.state})"
            )
            return
    known = ", ".join(job.id for _, job in found if job.live) or "none is running"
    raise GeoError(f"There is no job {wanted!r} of this home", f"Running: {known}")


def _row(job: "Job") -> dict[str, object]:
    from resources.compute import ASSET

    return {
        "id": job.id,
        "asset": job.labels.get(ASSET, ""),
        "state": job.state,
        "flavor": job.flavor,
        "created_at": job.created_at,
        "url": job.url,
    }
