"""What of the graph is stale, why, and what rebuilding it costs: the plan of `geo stale`, on Dagster's page.

**What.** `plan.json`, in the form that `geo stale --json` prints, and the same as a table.

**Why.** Dagster marks one hop: a child turns stale once its parent has new content. The plan says what may
follow, names the symbol, field or content that changed, and adds up the cost, before anything is spent.

**Cost.** Seconds. It follows every other asset, and is no part of its own plan.
"""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg

from env_service.canonical import atomic_write
from geo_assets.lineage.assets import OUTSIDE_PLAN, GeoAsset, Made, StageRun, geo_asset
from geo_assets.lineage.plan import Plan, make_plan
from geo_assets.lineage.plan_text import plan_markdown
from geo_assets.lineage.versions import content_version

NAME = "staleness_plan"
PLAN = "plan.json"


def staleness_plan_asset(deps: list[str], graph: Callable[[], Any]) -> GeoAsset:
    """The asset for one profile.

    Args:
        deps: the assets at the end of the graph.
        graph: gives the asset graph of the whole profile; called when the asset runs.
    """

    @geo_asset(
        name=NAME,
        group="reports",
        deps=deps,
        kinds={"json"},
        tags={OUTSIDE_PLAN: "true"},
        priority=-100,
    )
    def staleness_plan(run: StageRun) -> Made:
        with dg.DagsterInstance.get() as instance:
            return published(run, make_plan(instance, graph(), run.stage))

    return staleness_plan


def published(run: StageRun, plan: Plan) -> Made:
    """Write a plan and say what it says."""
    body = plan.plain()
    atomic_write(run.folder().file(PLAN), json.dumps(body, ensure_ascii=False, indent=1).encode() + b"\n")
    metadata = {"plan": dg.MetadataValue.md(plan_markdown(plan))}
    facts = {
        "stale": len(plan.stale),
        "may_follow": len(plan.may_follow),
        **{f"cost_{name}": value for name, value in plan.cost.plain().items()},
    }
    said = {key: body[key] for key in ("stale", "may_follow")}
    return Made(content_version(said), facts, metadata)
