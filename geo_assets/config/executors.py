"""Where the steps of a run work: in processes of this machine, or wherever `GEO_EXECUTOR` says.

The steps of a run share nothing but `GEO_HOME`, the store and the instance, so the same graph spreads over
machines once these are reachable from all of them. `GEO_EXECUTOR=module:attribute` names any executor that is
installed, such as `dagster_aws.ecs:ecs_executor`, `dagster_k8s:k8s_job_executor` or
`dagster_celery:celery_executor`. Where a step works alters nothing of what it makes, so it is no part of a
version.
"""

import importlib
import os

import dagster as dg

from env_service.errors import GeoError

VARIABLE = "GEO_EXECUTOR"


def step_executor() -> dg.ExecutorDefinition:
    """The executor that `GEO_EXECUTOR` names; without it, processes of this machine, two to a few at a time.

    Raises:
        GeoError: what it names is not there, or is no executor.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        return dg.multiprocess_executor.configured(
            {
                "max_concurrent": max(2, os.cpu_count() or 2),
                # A server that has imported the definitions once forks each step from itself.
                "start_method": {"forkserver": {"preload_modules": ["geo_assets.cli.preload"]}},
            }
        )
    module, _, attribute = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise GeoError(
            f"{VARIABLE}={named!r} names no executor ({error})",
            "Install its package and write module:attribute, or unset it to work on this machine",
        ) from error
    if not isinstance(found, dg.ExecutorDefinition):
        raise GeoError(f"{VARIABLE}={named!r} is no Dagster executor", "Name one, or unset it")
    return found
