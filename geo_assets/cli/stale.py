"""`geo stale`: what is stale and why, what may follow, and what rebuilding costs."""

import json

import typer


def stale(
    as_json: bool = typer.Option(False, "--json", help="In the form of docs/schemas/stale.json."),
    explain: str = typer.Option("", "--explain", help="An asset: what changed of it, old and new."),
    select: str = typer.Option("", "--select", help="Assets asked about, in Dagster's selection syntax."),
) -> None:
    """Say what is stale now, in the order of building, with its cause in words and its cost."""
    from geo_assets.cli._running import opened_instance, selected, whole_graph_job
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.plan import explain as explained
    from geo_assets.lineage.plan import make_plan
    from geo_assets.lineage.plan_text import explanation, plan_text

    stage = load_stage()
    graph = whole_graph_job().asset_layer.asset_graph
    with opened_instance(stage) as instance:
        if explain:
            reasons, changes = explained(instance, graph, stage, explain)
            if as_json:
                body = {
                    "asset": explain,
                    "reasons": [{"kind": one.kind, "what": one.what} for one in reasons],
                    "changes": [vars(change) for change in changes],
                }
                print(json.dumps(body, ensure_ascii=False, indent=1))
            else:
                print(explanation(explain, reasons, changes))
            return
        plan = make_plan(instance, graph, stage, selected(graph, select))
    print(json.dumps(plan.plain(), ensure_ascii=False, indent=1) if as_json else plan_text(plan))
