"""`geo refresh`: rebuild what is stale, stage by stage, and nothing that comes out the same."""

import json
import sys
import time
from collections.abc import Sequence

import typer


def refresh(
    select: str = typer.Option("", "--select", help="Assets wanted, in Dagster's selection syntax."),
    budget: float | None = typer.Option(None, "--budget", help="Dollars that it may cost at most."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be built, and build nothing."),
    as_json: bool = typer.Option(False, "--json", help="In the form of docs/schemas/refresh.json."),
) -> None:
    """Build what is stale, planning anew after each stage; one run per asset."""
    import dagster as dg

    from env_service.errors import GeoError
    from geo_assets.cli._running import opened_instance, run_assets, selected, whole_graph_job
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.plan import make_plan
    from geo_assets.lineage.plan_text import plan_text
    from geo_assets.lineage.refreshing import Refreshed
    from geo_assets.lineage.refreshing import refresh as refreshed

    def tell(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    stage = load_stage()
    graph = whole_graph_job().asset_layer.asset_graph
    wanted = selected(graph, select)
    told = True
    with opened_instance(stage) as instance:
        if dry_run:
            plan = make_plan(instance, graph, stage, wanted)
            planned = {"would_rerun": list(plan.names), **plan.plain(), **Refreshed().plain()}
            planned.pop("stale")
            print(json.dumps(planned, ensure_ascii=False, indent=1) if as_json else plan_text(plan))
            return

        def run(names: Sequence[str]) -> bool:
            nonlocal told
            ran = run_assets(instance, stage, [dg.AssetKey(name) for name in names], tell)
            told &= ran.success or bool(ran.causes)
            if ran.interrupted:
                raise KeyboardInterrupt
            return ran.success

        began = time.monotonic()
        result = refreshed(instance, graph, stage, run, wanted, budget, tell)
    if as_json:
        print(json.dumps(result.plain(), ensure_ascii=False, indent=1))
    else:
        took = time.monotonic() - began
        print(f"{len(result.reran)} assets built in {took:.0f} s, {len(result.changed)} of them changed")
        for name, why in result.skipped.items():
            print(f"skipped {name}: {why}")
    if result.failed:
        # What to do was told with each cause; a second advice would bury that one.
        raise GeoError(
            f"{', '.join(result.failed)} failed",
            "" if told else f"Read the end of {stage.settings.home / 'build.log'}, and run it again",
        )
