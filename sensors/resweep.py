"""A sweep or a table that is stale, with fresh and checked parents, gets one run, if the budget has room."""

import dagster as dg

from geo_assets.config.budget import Automation
from geo_assets.lineage.assets import OUTSIDE_PLAN, Stage
from geo_assets.lineage.launches import Look
from sensors._launching import evaluate

GROUPS = ("sweeps", "reports")
EVERY_S = 60
SAYS = (
    "Builds stale sweeps and tables whose parents are fresh and checked, one run each, within "
    "`config/budget.yaml`. What failed is not tried again until something has changed."
)


def resweep_sensor(stage: Stage, every_s: int = EVERY_S) -> dg.SensorDefinition:
    """The sensor of one profile, looking every so many seconds; it is off until it is switched on."""

    @dg.sensor(
        name="resweep_sensor",
        asset_selection=dg.AssetSelection.groups(*GROUPS),
        minimum_interval_seconds=every_s,
        description=SAYS,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def resweep(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return evaluate(context, stage, chosen)

    return resweep


def chosen(look: Look, automation: Automation) -> tuple[list[str], dict[str, str]]:
    """Sweeps and tables, parents first."""
    names = [name for name in look.named(GROUPS) if OUTSIDE_PLAN not in look.state.tags(name)]
    return names, {}
