"""What the plan needs of Dagster's internals is there, and means what it is taken for."""

import dagster as dg

from geo_assets.lineage import dagster_internals
from geo_assets.lineage.dagster_internals import DagsterState


def _graph(version: str, blocking: bool = True) -> dg.Definitions:
    @dg.asset(code_version="1")
    def parent():  # type: ignore[no-untyped-def]
        return dg.MaterializeResult(data_version=dg.DataVersion(version))

    @dg.asset(
        deps=["parent"],
        code_version=version,
        check_specs=[dg.AssetCheckSpec("sound", asset="child", blocking=blocking)],
    )
    def child():  # type: ignore[no-untyped-def]
        return dg.MaterializeResult(
            data_version=dg.DataVersion("c"),
            metadata={"seconds": 2.5, "usd": 1.0, "note": "x"},
            check_results=[dg.AssetCheckResult(passed=version != "2", check_name="sound")],
        )

    return dg.Definitions(assets=[parent, child])


def _state(instance: dg.DagsterInstance, definitions: dg.Definitions) -> DagsterState:
    job = definitions.resolve_implicit_global_asset_job_def()
    return DagsterState(instance, job.asset_layer.asset_graph)


def _run(instance: dg.DagsterInstance, definitions: dg.Definitions, *names: str) -> None:
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = [dg.AssetKey(name) for name in names]
    job.execute_in_process(instance=instance, asset_selection=keys, raise_on_error=False)


def test_causes_versions_and_runs_are_as_dagster_has_them() -> None:
    one, two = _graph("1"), _graph("2")
    with dg.DagsterInstance.ephemeral() as instance:
        state = _state(instance, one)
        assert state.order == ["parent", "child"] and state.parents("child") == ["parent"]
        assert state.status("child") == "MISSING" and state.data_version("child") == ""
        assert state.causes("child") == [] and state.recorded("child") == dagster_internals.Recorded()
        _run(instance, one, "parent", "child")
        state = _state(instance, one)
        assert state.status("child") == "FRESH" and state.causes("child") == []
        assert state.recorded("child") == dagster_internals.Recorded("1", "c", {"parent": "1"})
        assert state.runs("child") == [{"seconds": 2.5, "usd": 1.0}]
        state = _state(instance, two)
        assert state.status("child") == "STALE"
        assert [(cause.kind, cause.parent) for cause in state.causes("child")] == [("code", "")]
        _run(instance, two, "parent")
        causes = {(cause.kind, cause.parent) for cause in _state(instance, two).causes("child")}
        assert causes == {("code", ""), ("data", "parent")}


def test_failed_checks_count_where_they_block() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        _run(instance, _graph("2"), "parent", "child")
        assert _state(instance, _graph("2")).failed_checks == {"child": ("sound",)}
        assert _state(instance, _graph("2", blocking=False)).failed_checks == {}
        _run(instance, _graph("1"), "child")
        assert _state(instance, _graph("1")).failed_checks == {}


def test_nothing_else_of_ours_imports_dagsters_internals() -> None:
    import re
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    found = [
        str(path.relative_to(root))
        for package in ("geo_assets", "resources", "sensors")
        for path in (root / package).rglob("*.py")
        if re.search(r"^\s*(from|import) dagster\._", path.read_text(), re.MULTILINE)
    ]
    assert found == ["geo_assets/lineage/dagster_internals.py"]
