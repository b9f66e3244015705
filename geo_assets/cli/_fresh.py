"""Which assets need not be built again: Dagster calls them fresh, and their folders say the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geo_assets.lineage.folders import AssetFolder, folder_of

if TYPE_CHECKING:
    import dagster as dg
    from dagster import DagsterInstance


def fresh_assets(
    instance: "DagsterInstance", graph: Any, keys: Sequence["dg.AssetKey"], home: Path
) -> set["dg.AssetKey"]:
    """Those of `keys` that are what the present code and parents would make.

    An asset counts only if its parents do, its folder stands with the data version that Dagster recorded, no
    blocking check failed, and nothing in it waits to be completed.
    """
    # Dagster computes staleness for its web interface only; these two have no public name.
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    found: set[dg.AssetKey] = set()
    wanted = set(keys)
    # Parents first: what stands below an asset that is built again may have to change with it.
    for key in (key for key in graph.toposorted_asset_keys if key in wanted):
        if not graph.get(key).parent_keys <= found:
            continue
        built = AssetFolder(home, folder_of(key.to_user_string())).built()
        if built is None or built.failed_checks or built.facts.get("complete") is False:
            continue
        if resolver.get_status(key) != StaleStatus.FRESH:
            continue
        if resolver.get_current_data_version(key).value == built.data_version:
            found.add(key)
    return found
