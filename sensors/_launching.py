"""What sensors that launch runs have in common: one evaluation, told in full, that never raises."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from env_service.errors import GeoError
from geo_assets.config.budget import Automation, load_automation
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.budget import EXPECTED_USD, Decision, Launch, Skip
from geo_assets.lineage.faults import machine_fault
from geo_assets.lineage.launches import LAUNCH_KEY, Look, decisions

WORDS = 1000
Choose = Callable[[Look, Automation], tuple[Sequence[str], dict[str, str]]]
"""Gives the assets that a sensor looks after, and what some of them lack before they may be built."""
Clock = Callable[[], float]


def evaluate(
    context: dg.SensorEvaluationContext, stage: Stage, choose: Choose, clock: Clock = time.time
) -> dg.SensorResult | dg.SkipReason:
    """Launch what is stale, ready and affordable.

    What is skipped is told three times: in the sensor's log, as an observation on the asset when its reason
    is a new one, and, where nothing at all is launched, as the tick's reason.
    """
    try:
        automation = load_automation(stage.settings.profile)
        look = Look(context.instance, graph_of(context), stage, clock())
        names, lacking = choose(look, automation)
        made = list(decisions(look, names, automation.budget, lacking))
    except GeoError as error:
        return dg.SkipReason(str(error))
    except Exception as error:
        if (fault := machine_fault(error)) is None:
            raise
        return dg.SkipReason(fault)
    return told(context, look, made)


def told(
    context: dg.SensorEvaluationContext, look: Look, made: Sequence[Decision]
) -> dg.SensorResult | dg.SkipReason:
    """Decisions as what Dagster takes from a sensor."""
    launches = [one for one in made if isinstance(one, Launch)]
    skips = [one for one in made if isinstance(one, Skip)]
    for skip in skips:
        context.log.info(skip.words)
    before = _reasons(context.cursor)
    events = [_observation(skip) for skip in skips if before.get(skip.asset) != skip.reason]
    words = "\n".join(skip.words for skip in skips) or "Nothing that this sensor looks after is stale."
    return dg.SensorResult(
        run_requests=[_request(look, one) for one in launches] or None,
        skip_reason=None if launches else words[:WORDS],
        asset_events=events,
        cursor=json.dumps({skip.asset: skip.reason for skip in skips}, sort_keys=True),
    )


def graph_of(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext) -> Any:
    """The asset graph of whatever a sensor or a schedule is loaded with.

    Raises:
        GeoError: it is loaded with nothing.
    """
    repository = context.repository_def
    if repository is None:
        raise GeoError("It was called without definitions", "Give its context a repository_def")
    return repository.asset_graph


def _request(look: Look, launch: Launch) -> dg.RunRequest:
    key = look.key(launch.asset)
    return dg.RunRequest(
        run_key=key,
        asset_selection=[dg.AssetKey(name) for name in look.state.together(launch.asset)],
        tags={LAUNCH_KEY: key, EXPECTED_USD: f"{launch.usd:.4f}"},
    )


def _observation(skip: Skip) -> dg.AssetObservation:
    metadata: dict[str, str | float] = {"not_built_because": skip.reason, "price_usd": round(skip.usd, 4)}
    return dg.AssetObservation(skip.asset, description=skip.words, metadata=metadata)


def _reasons(cursor: str | None) -> dict[str, str]:
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
