"""An adapter that is stale, with fresh and checked parents, gets one run, if a person has approved of it.

An approval is for one launch: this code, these parents, this state. `geo approve adapter_run3` records it
as an observation on the asset. `retrain: {auto: true}` in `config/budget.yaml` does without.
"""

import dagster as dg

from geo_assets.config.budget import Automation
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.launches import Look
from geo_assets.sweeps.adapter_arms import ADAPTER_PREFIX
from sensors._launching import evaluate

GROUPS = ("training",)
EVERY_S = 60
SAYS = (
    "Trains stale adapters whose parents are fresh and checked, one run each, within `config/budget.yaml`; "
    "each launch needs `geo approve ADAPTER`, or `retrain: {auto: true}` in that file."
)


def retrain_sensor(stage: Stage) -> dg.SensorDefinition:
    """The sensor of one profile; it is off until it is switched on."""

    @dg.sensor(
        name="retrain_sensor",
        asset_selection=dg.AssetSelection.groups(*GROUPS),
        minimum_interval_seconds=EVERY_S,
        description=SAYS,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def retrain(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return evaluate(context, stage, chosen)

    return retrain


def chosen(look: Look, automation: Automation) -> tuple[list[str], dict[str, str]]:
    """Adapters, and which of them wait for an approval."""
    names = [name for name in look.named(GROUPS) if name.startswith(ADAPTER_PREFIX)]
    stale = set(look.plan.names)
    waiting = {
        name: f"it has no approval; approve of it with: geo approve {name}"
        for name in names
        if not automation.retrain.auto and name in stale and not look.approved(name)
    }
    return names, waiting
