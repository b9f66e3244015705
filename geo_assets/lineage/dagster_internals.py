"""The one module that touches Dagster's internals: what its page computes of staleness has no public name.

Pinned by `tests/lineage/test_lineage_internals.py`, where a new Dagster that moves one of these fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import dagster as dg
from dagster import DagsterInstance
from dagster._core.definitions.data_version import (
    NULL_DATA_VERSION,
    CachingStaleStatusResolver,
    StaleCauseCategory,
)
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from geo_assets.lineage.costs import GPU_SECONDS, LIKE, RUNS_LOOKED_AT, SECONDS, SHARE, USD, WORK

CauseKind = Literal["code", "data", "dependency"]
_KINDS: Mapping[StaleCauseCategory, CauseKind] = {
    StaleCauseCategory.CODE: "code",
    StaleCauseCategory.DATA: "data",
    StaleCauseCategory.DEPENDENCIES: "dependency",
}
CODE_VERSION, DATA_VERSION, INPUT = (
    "dagster/code_version",
    "dagster/data_version",
    "dagster/input_data_version/",
)


@dataclass(frozen=True)
class Cause:
    """One cause that Dagster finds: its kind, its words, and the parent that it lies in, if any."""

    kind: CauseKind
    words: str
    parent: str = ""


@dataclass(frozen=True)
class Recorded:
    """What Dagster recorded of an asset's last materialization.

    Attributes:
        code_version, data_version: empty where there is none.
        parents: data versions that the parents had.
    """

    code_version: str = ""
    data_version: str = ""
    parents: Mapping[str, str] | None = None


class DagsterState:
    """One look at an instance; nothing of it is refreshed.

    Args:
        instance: with the history.
        graph: `Definitions.resolve_asset_graph()` or a job's.
    """

    def __init__(self, instance: DagsterInstance, graph: Any) -> None:
        self._instance, self._graph = instance, graph
        self._resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        # All at once: one query for each asset takes longer than everything else that a plan does.
        self._resolver.instance_queryer.prefetch_asset_records(graph.materializable_asset_keys)

    @cached_property
    def order(self) -> list[str]:
        """Every asset, parents first."""
        keys = self._graph.toposorted_asset_keys
        return [key.to_user_string() for key in keys if not self._graph.get(key).is_external]

    def parents(self, name: str) -> list[str]:
        """Names of an asset's parents, sorted."""
        return sorted(key.to_user_string() for key in self._node(name).parent_keys)

    def together(self, name: str) -> tuple[str, ...]:
        """The assets that one function makes together with this one, itself included."""
        return tuple(sorted(key.to_user_string() for key in self._node(name).assets_def.keys))

    def tags(self, name: str) -> Mapping[str, str]:
        """Tags of its definition."""
        return dict(self._node(name).tags)

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Metadata of its definition."""
        return dict(self._node(name).metadata)

    def code_version(self, name: str) -> str:
        """What its code version is now."""
        return str(self._node(name).code_version or "")

    def causes(self, name: str) -> list[Cause]:
        """Why Dagster calls it stale; empty where it is fresh or was never materialized."""
        causes = self._resolver.get_stale_causes(dg.AssetKey(name))
        return [
            Cause(
                _KINDS[cause.category],
                str(cause.reason),
                cause.dependency_asset_key.to_user_string() if cause.dependency_asset_key else "",
            )
            for cause in causes
        ]

    def status(self, name: str) -> str:
        """Dagster's own word: FRESH, STALE or MISSING."""
        return str(self._resolver.get_status(dg.AssetKey(name)).value)

    def data_version(self, name: str) -> str:
        """The data version it has now; empty where it was never materialized."""
        version = self._resolver.get_current_data_version(dg.AssetKey(name))
        return "" if version == NULL_DATA_VERSION else str(version.value)

    def recorded(self, name: str) -> Recorded:
        """What was recorded of its last materialization."""
        event = self._instance.get_latest_materialization_event(dg.AssetKey(name))
        materialization = event.asset_materialization if event is not None else None
        if materialization is None:
            return Recorded()
        tags = materialization.tags or {}
        parents = {key.removeprefix(INPUT): value for key, value in tags.items() if key.startswith(INPUT)}
        return Recorded(tags.get(CODE_VERSION, ""), tags.get(DATA_VERSION, ""), parents)

    def made_by(self, name: str) -> str:
        """The run of its last materialization; empty where there is none."""
        record = self._resolver.instance_queryer.get_asset_record(dg.AssetKey(name))
        event = record.asset_entry.last_materialization if record is not None else None
        return event.run_id if event is not None else ""

    def runs(self, name: str) -> list[dict[str, float | str]]:
        """What the last runs recorded of their cost, newest first, as `costs.cost_of` takes it."""
        wanted = (SECONDS, GPU_SECONDS, USD, SHARE, WORK, LIKE)
        found = []
        filtered = dg.AssetRecordsFilter(asset_key=dg.AssetKey(name))
        for record in self._instance.fetch_materializations(filtered, limit=RUNS_LOOKED_AT).records:
            materialization = record.asset_materialization
            metadata = materialization.metadata if materialization is not None else {}
            values = {key: getattr(metadata.get(key), "value", None) for key in wanted}
            found.append(
                {key: value for key, value in values.items() if isinstance(value, int | float | str)}
            )
        return found

    @cached_property
    def failed_checks(self) -> Mapping[str, tuple[str, ...]]:
        """Blocking checks that failed when they last ran, by asset."""
        keys = [key for key in self._graph.asset_check_keys if self._graph.get(key).blocking]
        latest = self._instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        failed: dict[str, list[str]] = {}
        for key, record in latest.items():
            if record.status == AssetCheckExecutionRecordStatus.FAILED:
                failed.setdefault(key.asset_key.to_user_string(), []).append(key.name)
        return {name: tuple(sorted(names)) for name, names in failed.items()}

    def _node(self, name: str) -> Any:
        return self._graph.get(dg.AssetKey(name))
