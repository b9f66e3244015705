"""What arms, adapters and deployments have cost: the one table with dollars.

**What.** A row per asset that can cost money: runs, seconds, GPU seconds, tokens, the dollars that its runs
recorded, and what the same hardware and tokens cost at today's prices (`config/prices.yaml`, and an arm's own
`price`). A dash is a figure that nobody recorded; nothing is made up for it.

**Why.** Prices change and episodes do not. A change of prices restates this table and nothing else.

**Cost.** A second. It reads what Dagster recorded of those assets, and opens none of their files. Durations
and dollars differ from run to run and enter no data version, so its own speaks of the prices and of what is
priced.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster import DagsterInstance

from geo_assets.config.arms import load_arms
from geo_assets.config.prices import Prices, load_prices
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.budget import job_of
from geo_assets.lineage.costs import GPU_SECONDS, SECONDS, USD
from geo_assets.lineage.versions import content_version
from geo_assets.reports._report_text import grid
from geo_assets.reports.tables import column, markdown, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import ADAPTER_PREFIX
from geo_assets.sweeps.names import asset_name
from geo_assets.sweeps.spending import price_of
from resources.calls import Price

NAME = "cost_table"
PRICES = ("geo_assets.config.prices:Prices", "resources.calls:Price")
"""How dollars are computed: the table is handed the objects, and prices themselves enter by value."""
TABLE = "costs"
DEPLOYMENT_PREFIX = "deployment_"
PAGE = 500
TOKENS_IN, TOKENS_OUT, FLAVOR, JOB_SECONDS = "prompt_tokens", "completion_tokens", "flavor", "job_seconds"

SCHEMA = pa.schema(
    [
        column("asset", pa.string(), "the asset"),
        column("kind", pa.string(), "arm, adapter or deployment"),
        column("runs", pa.int32(), "runs that were recorded"),
        column("seconds", pa.float64(), "of all runs; null where none was recorded"),
        column("flavor", pa.string(), "hardware of the last run that rented some; null if none did"),
        column("gpu_seconds", pa.float64(), "seconds times cards, over all runs"),
        column("prompt_tokens", pa.int64(), "sent to a provider, over all runs"),
        column("completion_tokens", pa.int64(), "received from one"),
        column("usd_recorded", pa.float64(), "dollars as recorded, at the prices of their day"),
        column("usd_last", pa.float64(), "of them, those of the last run"),
        column("usd_at_prices", pa.float64(), "the same hardware and tokens at the prices of prices_as_of"),
        column("prices_as_of", pa.string(), "day of the hardware prices"),
    ]
)
MARKDOWN = {
    "asset": "`{asset}`",
    "runs": "{runs}",
    "seconds": "{seconds:,.0f}",
    "hardware": "{flavor}",
    "GPU seconds": "{gpu_seconds:,.0f}",
    "tokens in": "{prompt_tokens:,}",
    "tokens out": "{completion_tokens:,}",
    "$ recorded": "{usd_recorded:.2f}",
    "$ last run": "{usd_last:.2f}",
    "$ at today's prices": "{usd_at_prices:.2f}",
}
TEXT = {
    "asset": "{asset}",
    "runs": "{runs}",
    "seconds": "{seconds:,.0f}",
    "GPU s": "{gpu_seconds:,.0f}",
    "tokens": "{completion_tokens:,}",
    "$ spent": "{usd_recorded:.2f}",
    "$ last": "{usd_last:.2f}",
    "$ today": "{usd_at_prices:.2f}",
}


@dataclass(frozen=True)
class Recorded:
    """What one run, or one job that failed, recorded of itself; `run` says which of the two."""

    figures: Mapping[str, Any]
    run: bool = True

    def number(self, name: str) -> float | None:
        """A figure, if it is there and is one."""
        value = self.figures.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def cost_table_asset(stage: Stage, declared: Sequence[GeoAsset]) -> GeoAsset:
    """The asset for one profile.

    Args:
        stage: the profile.
        declared: the assets of the graph; those that can cost money are its parents.

    Raises:
        ArmsFileError, PricesFileError: a file cannot be used.
    """
    kinds = priced(declared)
    tokens = {asset_name(arm.slug): price_of(arm) for arm in load_arms(stage.settings.profile).arms}
    prices = load_prices()

    @geo_asset(
        name=NAME,
        group="reports",
        deps=list(kinds),
        spec=lambda specs: spec_of(prices, tokens),
        runs=PRICES,
        kinds={"csv", "parquet"},
    )
    def cost_table(run: StageRun) -> Made:
        recorded = {name: records_of(run, name) for name in kinds}
        return make_cost_table(run, kinds, recorded, prices, tokens)

    return cost_table


def priced(declared: Iterable[GeoAsset]) -> dict[str, str]:
    """Assets that can cost money, and what they are."""
    found = {}
    for asset in declared:
        for name in asset.names:
            if asset.group == "sweeps":
                found[name] = "arm"
            elif name.startswith(ADAPTER_PREFIX):
                found[name] = "adapter"
            elif name.startswith(DEPLOYMENT_PREFIX):
                found[name] = "deployment"
    return found


def spec_of(prices: Prices, tokens: Mapping[str, Price | None]) -> dict[str, Any]:
    """All prices, as JSON: the only place where they enter a code version."""
    own = {name: [one.input_usd, one.output_usd] for name, one in tokens.items() if one is not None}
    return {"hardware": prices.model_dump(mode="json"), "tokens": own}


def make_cost_table(
    run: StageRun,
    kinds: Mapping[str, str],
    recorded: Mapping[str, Sequence[Recorded]],
    prices: Prices,
    tokens: Mapping[str, Price | None],
) -> Made:
    """Add up what was recorded, and write the table."""
    rows = [
        rounded(cost_row(name, kind, recorded.get(name, ()), prices, tokens.get(name)))
        for name, kind in kinds.items()
    ]
    folder = run.folder().path
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder, TABLE, rows, SCHEMA, grid(rows, TEXT))
    facts = {
        "assets": len(rows),
        "total_usd_recorded": round(sum(row["usd_recorded"] or 0.0 for row in rows), 4),
        "total_gpu_seconds": round(sum(row["gpu_seconds"] or 0.0 for row in rows), 3),
        "without_a_price": sum(row["usd_at_prices"] is None for row in rows),
        "prices_as_of": str(prices.as_of),
    }
    metadata = {"table": dg.MetadataValue.md(markdown(rows, MARKDOWN)), **table_metadata(rows, SCHEMA)}
    version = content_version({"prices": spec_of(prices, tokens), "assets": sorted(kinds.items())})
    return Made(version, facts, metadata)


def cost_row(
    asset: str, kind: str, recorded: Sequence[Recorded], prices: Prices, tokens: Price | None
) -> dict[str, Any]:
    """The row of one asset.

    Args:
        asset, kind: what it is.
        recorded: its runs and failed jobs, newest first.
        prices: of hardware.
        tokens: of its provider's; None where nobody knows.
    """
    runs = [one for one in recorded if one.run]
    flavors = [one.figures[FLAVOR] for one in recorded if isinstance(one.figures.get(FLAVOR), str)]
    return {
        "asset": asset,
        "kind": kind,
        "runs": len(runs),
        "seconds": _sum(runs, SECONDS),
        "flavor": flavors[0] if flavors else None,
        "gpu_seconds": _sum(recorded, GPU_SECONDS),
        "prompt_tokens": _whole(_sum(recorded, TOKENS_IN)),
        "completion_tokens": _whole(_sum(recorded, TOKENS_OUT)),
        "usd_recorded": _sum(recorded, USD),
        "usd_last": runs[0].number(USD) if runs else None,
        "usd_at_prices": at_prices(recorded, prices, tokens),
        "prices_as_of": str(prices.as_of),
    }


def at_prices(recorded: Sequence[Recorded], prices: Prices, tokens: Price | None) -> float | None:
    """What some runs cost at given prices; None where a price is missing, or nothing was recorded."""
    total, known = 0.0, False
    for one in recorded:
        flavor, seconds = one.figures.get(FLAVOR), one.number(JOB_SECONDS)
        if isinstance(flavor, str) and seconds is not None:
            if flavor not in prices.flavors:
                return None
            total, known = total + prices.usd(flavor, seconds), True
        elif one.number(TOKENS_IN) is not None:
            if tokens is None:
                return None
            sent, got = one.number(TOKENS_IN) or 0.0, one.number(TOKENS_OUT) or 0.0
            total, known = total + tokens.of(int(sent), int(got)), True
    return total if known else None


def records_of(run: StageRun, name: str) -> list[Recorded]:
    """What Dagster recorded of an asset, newest first; nothing where the stage is called without a run."""
    if run.context is None:
        return []
    return recorded_of(run.context.instance, name)


def recorded_of(instance: DagsterInstance, name: str) -> list[Recorded]:
    """Figures of an asset's materializations, and of observations that carry dollars."""
    found: list[tuple[float, Recorded]] = []
    # A job whose result was taken late is in an observation too: runs come first, and count.
    jobs: set[str] = set()
    key = dg.AssetKey(name)
    for fetch, run in ((instance.fetch_materializations, True), (instance.fetch_observations, False)):
        cursor = None
        while True:
            page = fetch(key, limit=PAGE, cursor=cursor)
            for record in page.records:
                event = record.asset_materialization or record.event_log_entry.asset_observation
                figures = _figures(event.metadata if event is not None else {})
                job = job_of(event) if event is not None else ""
                again = job in jobs
                jobs |= {job} - {""}
                if run or (USD in figures and not again):
                    found.append((record.timestamp, Recorded(figures, run)))
            if not page.has_more:
                break
            cursor = page.cursor
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _figures(metadata: Mapping[str, Any]) -> dict[str, Any]:
    wanted = (SECONDS, GPU_SECONDS, USD, TOKENS_IN, TOKENS_OUT, FLAVOR, JOB_SECONDS)
    return {name: metadata[name].value for name in wanted if name in metadata}


def _sum(recorded: Iterable[Recorded], name: str) -> float | None:
    """The sum of a figure; None where nobody recorded it."""
    values = [value for one in recorded if (value := one.number(name)) is not None]
    return sum(values) if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
