"""The one place where the asset graph is put together, for the profile that the environment names."""

from collections.abc import Sequence

import dagster as dg

from geo_assets.config.executors import step_executor
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.data.candidate_sequences import candidate_sequences
from geo_assets.data.coverage_tiles import coverage_tiles
from geo_assets.data.data_source_probe import data_source_probe
from geo_assets.data.eval_mirror import eval_mirror
from geo_assets.data.mirrored_panoramas import mirrored_panoramas
from geo_assets.data.task_pool import task_pool
from geo_assets.data.task_split import task_split
from geo_assets.data.train_mirror import train_mirror
from geo_assets.environment.deployment_local import deployment_local
from geo_assets.environment.eval_environment import eval_environment
from geo_assets.environment.train_environment import train_environment
from geo_assets.lineage.assets import GeoAsset, Stage
from geo_assets.lineage.fingerprint import keep
from geo_assets.lineage.run_processes import followed
from geo_assets.reports.board_table import board_table_asset
from geo_assets.reports.cost_table import cost_table_asset
from geo_assets.reports.findings import findings_asset
from geo_assets.reports.first_look import first_look_asset
from geo_assets.reports.first_sweep_table import first_sweep_asset
from geo_assets.reports.hacking_audit import hacking_audit_asset
from geo_assets.reports.learning_controls import learning_controls_asset
from geo_assets.reports.paired_gains import paired_gains_asset
from geo_assets.reports.report_site import report_site_asset
from geo_assets.reports.slice_table import slice_table_asset
from geo_assets.reports.staleness_plan import staleness_plan_asset
from geo_assets.sweeps.adapter_sweep import adapter_sweep_assets
from geo_assets.sweeps.factory import sweep_assets
from geo_assets.training.base_models import base_model_assets
from geo_assets.training.run_factory import adapter_assets
from geo_assets.training.warm_start_world import warm_start_world
from sensors import automations

WHOLE_GRAPH = "whole_graph"


def load_stage() -> Stage:
    """The profile that `GEO_PROFILE` and `GEO_HOME` name.

    Raises:
        GeoError: a variable is wrong.
    """
    settings = load_settings()
    return Stage(settings, stage_specs(settings.profile))


def build_definitions(stage: Stage) -> dg.Definitions:
    """All assets of one profile; each step works in a process of its own, here or as `GEO_EXECUTOR` says."""
    declared = [
        data_source_probe,
        coverage_tiles,
        candidate_sequences,
        task_pool,
        mirrored_panoramas,
        task_split,
        eval_mirror,
        train_mirror,
        eval_environment,
        train_environment,
        deployment_local,
        *sweep_assets(stage),
        *([warm_start_world] if stage.settings.profile == "sandbox" else []),
        *base_model_assets(stage),
        *adapter_assets(stage),
        *adapter_sweep_assets(stage),
        board_table_asset(stage),
        paired_gains_asset(stage),
        first_sweep_asset(stage),
        first_look_asset(stage),
        slice_table_asset(stage),
        findings_asset(stage),
        hacking_audit_asset(stage),
        *([controls] if (controls := learning_controls_asset(stage)) else []),
    ]
    declared.append(report_site_asset(stage, [asset for asset in declared if asset.group == "reports"]))
    # Dollars stand in no other report: a change of prices must restate this one alone.
    declared.append(cost_table_asset(stage, declared))
    # It follows everything, so it is declared when everything else is.
    declared.append(
        staleness_plan_asset(
            ends_of(declared),
            lambda: build_definitions(stage).resolve_job_def(WHOLE_GRAPH).asset_layer.asset_graph,
        )
    )
    automatic = automations(stage)
    definitions = dg.Definitions(
        assets=[asset.definition(stage) for asset in declared],
        jobs=[
            dg.define_asset_job(WHOLE_GRAPH, description="Every asset; `geo build` runs a part of it."),
            *automatic.jobs,
        ],
        sensors=automatic.sensors,
        schedules=automatic.schedules,
        executor=followed(step_executor(), stage.settings.home),
    )
    keep()
    return definitions


def ends_of(declared: Sequence[GeoAsset]) -> list[str]:
    """Assets that no other is made from."""
    parents = {name for asset in declared for name in asset.deps}
    return [name for asset in declared for name in asset.names if name not in parents]


@dg.definitions
def defs() -> dg.Definitions:
    """What `dagster` and `dg` load."""
    return build_definitions(load_stage())
