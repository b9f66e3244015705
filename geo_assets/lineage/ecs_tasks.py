"""The task of ECS that a run lives in, for runs that a command starts in its own process.

Dagster's ECS launcher asks after a run by the task in its tags, and its daemon ends a run without them as one
whose worker is lost. The launcher tags what it launches itself; what works in the process of a command, or of
`dagster asset materialize`, has to say so.
"""

import os
import time

import httpx
from dagster import DagsterInstance

from env_service.errors import GeoError

TASK, CLUSTER = "ecs/task_arn", "ecs/cluster"
METADATA = "ECS_CONTAINER_METADATA_URI_V4"
"""Variable that ECS sets in every container: where it answers for the task."""
TIMEOUT_S = 5.0
FRESH_S = 300.0
"""A daemon that was heard of less long ago is at work."""
MONITORING = "MONITORING"


def task_tags(instance: DagsterInstance) -> dict[str, str]:
    """Tags that say in which task this process is; none where no launcher asks after them.

    Raises:
        GeoError: the launcher would ask, and this process is in no task, or cannot learn in which.
    """
    if not any(one.__name__ == "EcsRunLauncher" for one in type(instance.run_launcher).__mro__):
        return {}
    address = os.environ.get(METADATA)
    if not address:
        if not _watched(instance):
            return {}
        raise GeoError(
            "Runs of this instance are tasks of ECS, and its daemon would end one that works here",
            "Start it as a task with this command (docs/deploy.md), or on Dagster's page",
        )
    try:
        found = httpx.get(f"{address}/task", timeout=TIMEOUT_S).raise_for_status().json()
        return {TASK: str(found["TaskARN"]), CLUSTER: str(found["Cluster"])}
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise GeoError(
            f"ECS does not say in which task this is ({METADATA}: {type(error).__name__})",
            "Run the same command again",
        ) from None


def _watched(instance: DagsterInstance) -> bool:
    """Whether a daemon looks after runs of this instance."""
    heard = instance.get_daemon_heartbeats().get(MONITORING)
    return heard is not None and time.time() - heard.timestamp < FRESH_S
