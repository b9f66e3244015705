"""Which jobs a run waits for: those of the assets that it builds, and others that its tags name."""

from collections.abc import Iterable, Mapping

import dagster as dg

from geo_assets.lineage.launches import built_by

JOBS_FOR = "geo/jobs_for"
"""Tag of a run whose jobs work for assets that it does not build: `asset:purpose`, with commas between."""


def jobs_for(*work: str) -> Mapping[str, str]:
    """The tag of a run that waits for jobs of some work; see `resources.compute.labels.work_of`."""
    return {JOBS_FOR: ",".join(work)}


def waited_for_by(run: dg.DagsterRun, everything: Iterable[str]) -> set[str]:
    """Work whose jobs a run waits for; `everything` as for `built_by`."""
    named = {one for one in run.tags.get(JOBS_FOR, "").split(",") if one}
    return built_by(run, everything) | named
