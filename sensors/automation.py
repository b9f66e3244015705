"""Everything that happens by itself, for one profile."""

from dataclasses import dataclass

import dagster as dg

from geo_assets.lineage.assets import Stage
from sensors.base_drift import base_drift_job, base_drift_schedule
from sensors.orphans import orphan_sensor
from sensors.resweep import resweep_sensor
from sensors.retrain import retrain_sensor


@dataclass(frozen=True)
class Automations:
    """What the definitions register."""

    sensors: tuple[dg.SensorDefinition, ...]
    schedules: tuple[dg.ScheduleDefinition, ...] = ()
    jobs: tuple[dg.JobDefinition, ...] = ()


def automations(stage: Stage) -> Automations:
    """The sensors, schedules and jobs of one profile; all are off until they are switched on."""
    drift = base_drift_job(stage)
    return Automations(
        sensors=(resweep_sensor(stage), retrain_sensor(stage), orphan_sensor(stage)),
        schedules=(base_drift_schedule(stage, drift),),
        jobs=(drift,),
    )
