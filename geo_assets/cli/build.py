"""`geo build`: materialize assets and everything they are made from, saying all the way how far it is."""

import time

import typer

from env_service.errors import GeoError
from geo_assets.cli._running import opened_instance, run_assets, whole_graph_job


def build(
    names: list[str] = typer.Argument(None, help="Assets to build, e.g. board_table; none means all."),
    only: bool = typer.Option(False, "--only", help="Just these, fresh or not; not what they are made from."),
    again: bool = typer.Option(False, "--again", help="Build what is fresh, too."),
) -> None:
    """Build what is not fresh of some assets and all that they are made from, with progress."""
    import dagster as dg

    from geo_assets.definitions import load_stage
    from geo_assets.lineage.assets import OUTSIDE_PLAN
    from geo_assets.lineage.plan import make_plan

    stage = load_stage()
    graph = whole_graph_job().asset_layer.asset_graph
    known = {key.to_user_string() for key in graph.get_all_asset_keys()}
    names = names or sorted(known)
    for name in names:
        if name not in known:
            raise GeoError(f"There is no asset {name!r}", f"Known: {', '.join(sorted(known))}")
    selection = dg.AssetSelection.assets(*names)
    keys = sorted((selection if only else selection.upstream()).resolve(graph))
    began = time.monotonic()
    with opened_instance(stage) as instance:
        if not (only or again):
            # In one run nothing can be cut off early, so what may follow is built with what is stale.
            plan = make_plan(instance, graph, stage, [key.to_user_string() for key in keys])
            wanted = {*plan.names, *plan.may_follow}
            if wanted:
                # The plan itself follows every other asset.
                wanted |= {key.to_user_string() for key in keys if OUTSIDE_PLAN in graph.get(key).tags}
            fresh = len(keys) - len(wanted)
            keys = [key for key in keys if key.to_user_string() in wanted]
            if fresh:
                print(f"{fresh} assets are fresh and left as they are (--again builds them, too)")
        if not keys:
            return
        ran = run_assets(instance, stage, keys, lambda line: print(line, flush=True))
    if ran.interrupted:
        raise KeyboardInterrupt
    ran.refuse(len(keys))
    print(f"{len(keys)} assets built in {time.monotonic() - began:.0f} s under {stage.settings.home}")
