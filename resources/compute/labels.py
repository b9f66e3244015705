"""What a job is labelled with, and which jobs nobody is waiting for.

The Hub takes at most 100 letters, digits, dashes and underscores for a key or a value, so do all of ours.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from resources.compute.protocol import Job

PROJECT: Final = "geo-project"
"""On every job of this project; its value is `PROJECT_NAME`."""
PROJECT_NAME: Final = "geo-assets"
HOME: Final = "geo-home"
"""Which deployment asked for it (see `home_label`): jobs of another one are not ours to cancel."""
ASSET: Final = "geo-asset"
"""The asset that it works for."""
FINGERPRINT: Final = "geo-fingerprint"
"""Code version, spec and parents' data versions: a job with the same one makes the same thing."""
LAUNCH: Final = "geo-launch"
"""Which launch of them: names the folder of its payload and its artifacts."""
PURPOSE: Final = "geo-purpose"
"""What a served model is for: `MAKING`, or something beside it, such as `DRIFT`. Two that are served for the
same asset at once are told apart by it. Not on jobs that can only be for making."""
MAKING, DRIFT = "making", "drift"
LIMIT: Final = "geo-limit-s"
"""Its time limit in whole seconds."""
SUBMIT: Final = "geo-submit"
"""Which request started it: no two jobs of a rented place share one."""

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,100}")


def allowed(labels: Mapping[str, str]) -> bool:
    """Whether the Hub would take these labels."""
    return all(_ALLOWED.fullmatch(part) for pair in labels.items() for part in pair)


def work_of(labels: Mapping[str, str]) -> str:
    """What a job works at: its asset where it makes that, `asset:purpose` where it does not."""
    asset, purpose = labels.get(ASSET, ""), labels.get(PURPOSE, MAKING)
    return asset if purpose == MAKING else f"{asset}:{purpose}"


def limit_of(labels: Mapping[str, str]) -> float:
    """Time limit of a job in seconds, infinite where its labels do not say."""
    said = labels.get(LIMIT, "")
    return float(said) if said.isascii() and said.isdigit() else math.inf


def orphans(jobs: Iterable[Job], waited_for: Collection[str]) -> list[Job]:
    """Jobs that cost money while no run waits for them.

    Args:
        jobs: what `Compute.find({PROJECT: PROJECT_NAME, HOME: home_label(...)})` gave.
        waited_for: what runs in progress work at; see `work_of`.

    Returns:
        Of the jobs that are queued or running, those whose work is in none of these runs, oldest first.
    """
    alone = [job for job in jobs if job.live and work_of(job.labels) not in waited_for]
    return sorted(alone, key=lambda job: job.created_at)
