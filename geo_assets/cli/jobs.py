"""`geo jobs`: jobs that were launched for assets, on this machine and on the Hub, and how to stop one."""

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from env_service.errors import GeoError

if TYPE_CHECKING:
    from resources.compute import Compute, Job

PATIENCE_S = 20.0
"""How long a Hub that does not answer is asked, by a command that somebody waits for."""
ENDED_SHOWN = 20


def jobs(
    cancel: str = typer.Option("", "--cancel", metavar="ID", help="Stop this job."),
    everything: bool = typer.Option(False, "--all", help="Ended ones, too."),
    as_json: bool = typer.Option(False, "--json", help="Machine-readable."),
) -> None:
    """List the jobs of this home that run, or cancel one."""
    from geo_assets.config.compute import load_compute, places_known
    from geo_assets.config.settings import load_settings
    from resources.compute import HOME, PROJECT, PROJECT_NAME

    settings = load_compute(load_settings())
    settings = replace(settings, patience_s=min(settings.patience_s, PATIENCE_S))
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    found: list[tuple[Compute, Job]] = []
    fault: GeoError | None = None
    for place in places_known(settings):
        try:
            found += [(place, job) for job in place.find(labels)]
        except GeoError as error:
            fault = error  # what runs elsewhere is told all the same
    if cancel:
        _cancel(cancel, found, fault)
        return
    shown = [job for _, job in found if job.live]
    shown += [job for _, job in found if not job.live][:ENDED_SHOWN] if everything else []
    if as_json:
        print(json.dumps({"jobs": [_row(job) for job in shown]}, indent=2))
        _refuse(fault, bool(settings.image))
        return
    if not shown:
        print("No job is running." if not everything else "No job has been launched.")
    for job in shown:
        minutes = (time.time() - job.created_at) / 60
        asset = _row(job)["asset"]
        print(
            f"{job.id}  {job.state:<9}  {job.flavor:<10}  {asset}  launched {minutes:.0f} min ago  {job.url}"
        )
    _refuse(fault, bool(settings.image))


def _cancel(wanted: str, found: "list[tuple[Compute, Job]]", fault: GeoError | None) -> None:
    for place, job in found:
        if job.id == wanted:
            if job.live:
                place.cancel(job.id)
            print(
                f"Job {job.id} is cancelled" if job.live else f"Job {job.id} had ended before ({job.state})"
            )
            return
    if fault is not None:
        raise fault  # it may run there
    known = ", ".join(job.id for _, job in found if job.live) or "none is running"
    raise GeoError(f"There is no job {wanted!r} of this home", f"Running: {known}")


def _refuse(fault: GeoError | None, rents: bool) -> None:
    """Say that a place did not answer; an error only where jobs are launched there."""
    if fault is not None and rents:
        raise fault
    if fault is not None:
        print(f"The Hub's jobs are not known: {fault}", file=sys.stderr)


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
