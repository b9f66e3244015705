"""`geo refresh`: rebuild what is stale, stage by stage, and nothing that comes out the same."""

import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

import typer


def refresh(
    select: str = typer.Option("", "--select", help="Assets wanted, in Dagster's selection syntax."),
    budget: float | None = typer.Option(
        None, "--budget", help="Dollars: nothing is begun that should cost more than is left of them."
    ),
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
    from geo_assets.lineage.refreshing import Refreshed, foresee
    from geo_assets.lineage.refreshing import refresh as refreshed

    def tell(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    if budget is not None and not (math.isfinite(budget) and budget >= 0):
        raise typer.BadParameter("it is a number of dollars, 0 or more", param_hint="--budget")
    stage = load_stage()
    graph = whole_graph_job().asset_layer.asset_graph
    wanted = selected(graph, select)
    told = True
    with opened_instance(stage) as instance:
        if dry_run:
            plan = make_plan(instance, graph, stage, wanted)
            foreseen = foresee(instance, graph, stage, plan, budget)
            if as_json:
                planned = {"would_rerun": foreseen.reran, **plan.plain(), **foreseen.plain(), "reran": []}
                planned.pop("stale")
                print(json.dumps(planned, ensure_ascii=False, indent=1))
            else:
                print(plan_text(plan))
                _tell_skipped(foreseen.skipped, "would skip")
            return

        def run(names: Sequence[str]) -> bool:
            nonlocal told
            ran = run_assets(instance, stage, [dg.AssetKey(name) for name in names], tell)
            told &= ran.success or bool(ran.causes)
            if ran.interrupted:
                raise KeyboardInterrupt
            return ran.success

        began = time.monotonic()
        result = Refreshed()
        try:
            refreshed(instance, graph, stage, run, wanted, budget, tell, result)
        except KeyboardInterrupt:
            left = None if budget is None else budget - result.spent_usd
            print(interrupted_words(select, left, as_json), file=sys.stderr)
            raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(result.plain(), ensure_ascii=False, indent=1))
    else:
        took = time.monotonic() - began
        print(f"{len(result.reran)} assets built in {took:.0f} s, {len(result.changed)} of them changed")
        _tell_skipped(result.skipped, "skipped")
    if result.failed:
        # What to do was told with each cause; a second advice would bury that one.
        raise GeoError(
            f"{', '.join(result.failed)} failed",
            "" if told else f"Read the end of {stage.settings.home / 'build.log'}, and run it again",
        )


def interrupted_words(select: str, left_usd: float | None, as_json: bool) -> str:
    """What to type to go on after Ctrl-C; the budget is what the runs so far have left of it."""
    from geo_assets.lineage.costs import dollars

    words = ["geo", "refresh", *(["--select", select] if select else [])]
    words += ["--budget", dollars(left_usd).removeprefix("$")] if left_usd is not None else []
    words += ["--json"] if as_json else []
    return f"interrupted: what was built is kept. To go on, type: {shlex.join(words)}"


def _tell_skipped(skipped: Mapping[str, str], word: str) -> None:
    for name, why in skipped.items():
        print(f"{word} {name}: {why}")
