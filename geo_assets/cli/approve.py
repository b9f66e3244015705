"""`geo approve`: say yes to one launch of a stale adapter; the retrain sensor launches it."""

import typer

from env_service.errors import GeoError


def approve(asset: str = typer.Argument(..., metavar="ADAPTER", help="Such as adapter_run3.")) -> None:
    """Approve of training a stale adapter once, as things are now; whatever changes first voids it."""
    import time

    import dagster as dg

    from geo_assets.cli._running import opened_instance, whole_graph_job
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.launches import APPROVED, Look
    from geo_assets.lineage.plan_text import cost_words
    from geo_assets.sweeps.adapter_arms import ADAPTER_PREFIX

    stage = load_stage()
    with opened_instance(stage) as instance:
        look = Look(instance, whole_graph_job().asset_layer.asset_graph, stage, time.time())
        adapters = [name for name in look.named(["training"]) if name.startswith(ADAPTER_PREFIX)]
        if asset not in adapters:
            known = ", ".join(adapters) or "none"
            raise GeoError(f"There is no adapter {asset!r} in this profile", f"Known: {known}")
        if asset not in look.plan.names:
            raise GeoError(f"{asset} is not stale, so there is nothing to approve of", "Look with: geo stale")
        key = look.key(asset)
        instance.report_runless_asset_event(
            dg.AssetObservation(asset, description="Training is approved of.", metadata={APPROVED: key})
        )
        print(f"{asset} may be trained once, as things are now ({cost_words(look.plan.costs[asset])}).")
