"""The instance on AWS, as `deploy/dagster-aws.yaml` declares it, over a real Postgres and S3 on loopback."""

import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from aws_double import ACCESS_KEY, SECRET_KEY, Aws
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster_aws.ecs import EcsRunLauncher
from dagster_aws.s3 import S3ComputeLogManager
from dagster_aws.secretsmanager.secrets import get_tagged_secrets
from dagster_postgres.event_log import PostgresEventLogStorage
from postgres_double import PASSWORD
from scaleout_lab import REPOSITORY, instance_home

from env_service.errors import GeoError
from geo_assets.config.compute import AWS_KEYS, OF_JOBS
from geo_assets.config.executors import step_executor
from geo_assets.lineage.dagster_internals import DagsterState

SAID = "the cellar has 12 steps"


def _declared(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((REPOSITORY / name).read_text()))


def _graph(code: str = "1") -> dg.Definitions:
    @dg.asset(code_version=code)
    def cellar(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        print(SAID)
        return dg.MaterializeResult(data_version=dg.DataVersion("twelve"), metadata={"steps": 12})

    @dg.asset(code_version="1", deps=[cellar])
    def house() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(data_version=dg.DataVersion("house"))

    return dg.Definitions([cellar, house], jobs=[dg.define_asset_job("all")])


@pytest.fixture
def home(
    as_client: Aws, database: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    for name, value in {**database, "DAGSTER_LOGS_BUCKET": as_client.make_bucket()}.items():
        monkeypatch.setenv(name, value)
    return instance_home(tmp_path / "dagster")


def test_what_is_not_about_places_is_declared_as_on_a_laptop() -> None:
    local, cloud = _declared("dagster.yaml"), _declared("deploy/dagster-aws.yaml")
    assert local.items() <= cloud.items()
    assert cloud.keys() - local.keys() == {
        "storage",
        "local_artifact_storage",
        "compute_logs",
        "run_launcher",
    }
    assert cloud["concurrency"]["pools"]["granularity"] == "op"


def test_a_run_is_remembered_in_postgres_and_its_log_in_the_bucket(home: Path, as_client: Aws) -> None:
    defs = _graph()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.event_log_storage, PostgresEventLogStorage)
        assert isinstance(instance.compute_log_manager, S3ComputeLogManager)
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        run = defs.resolve_job_def("all").execute_in_process(instance=instance)
        assert run.success

    logs = as_client.objects(os.environ["DAGSTER_LOGS_BUCKET"])
    assert any(name.endswith(".out") and SAID.encode() in body for name, body in logs.items())
    assert all(name.startswith("compute-logs/") for name in logs)
    written = b"".join([*logs.values(), *(path.read_bytes() for path in home.rglob("*") if path.is_file())])
    assert not [secret for secret in (PASSWORD, ACCESS_KEY, SECRET_KEY) if secret.encode() in written]
    assert not list(home.rglob("*.db")), "no history on this disk"

    with dg.DagsterInstance.from_config(str(home)) as instance:
        remembered = instance.get_latest_materialization_event(dg.AssetKey("cellar"))
        assert remembered is not None and remembered.run_id == run.run_id
        assert remembered.asset_materialization is not None
        assert remembered.asset_materialization.metadata["steps"].value == 12
        assert _statuses(instance, defs) == {"cellar": "FRESH", "house": "FRESH"}
        assert _statuses(instance, _graph(code="2")) == {"cellar": "STALE", "house": "FRESH"}
        assert instance.get_runs_count() == 1


def _statuses(instance: dg.DagsterInstance, defs: dg.Definitions) -> dict[str, str]:
    state = DagsterState(instance, defs.resolve_job_def("all").asset_layer.asset_graph)
    return {name: state.status(name) for name in state.order}


def test_a_run_would_be_a_task_of_ecs(home: Path, as_client: Aws) -> None:
    """Dagster checks the launcher's part against its schema and makes it; ECS itself is not asked."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        launcher = instance.run_launcher
        assert isinstance(launcher, EcsRunLauncher)
        assert launcher.use_current_ecs_task_config and launcher.container_name == "geo"
        assert launcher.run_resources == {"cpu": "4096", "memory": "16384", "ephemeral_storage": 50}
        tags = launcher.secrets_tags
    secrets = as_client.client("secretsmanager")
    secrets.create_secret(
        Name="MAPILLARY_ACCESS_TOKEN", SecretString="x", Tags=[{"Key": tags[0], "Value": ""}]
    )
    secrets.create_secret(Name="SOMEBODY_ELSES", SecretString="x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        found = list(get_tagged_secrets(secrets, tags))
    assert found == ["MAPILLARY_ACCESS_TOKEN"]


def test_the_task_that_launches_is_one_that_ecs_takes(as_client: Aws) -> None:
    """`deploy/ecs-task.json`, filled in, can be registered, and gives all that the instance reads."""
    text = (REPOSITORY / "deploy" / "ecs-task.json").read_text()
    for name in set(re.findall(r"\$\{(\w+)\}", text)):
        text = text.replace(f"${{{name}}}", "eu-central-1" if name == "AWS_DEFAULT_REGION" else name.lower())
    registered = as_client.client("ecs").register_task_definition(**json.loads(text))["taskDefinition"]
    assert [container["name"] for container in registered["containerDefinitions"]] == ["web", "daemon"]
    image = (REPOSITORY / "deploy" / "Dockerfile").read_text()
    read = set(re.findall(r"env: (\w+)", (REPOSITORY / "deploy" / "dagster-aws.yaml").read_text()))
    for container in registered["containerDefinitions"]:
        given = {entry["name"] for entry in container["environment"] + container["secrets"]}
        assert read - given == {"GEO_HOME"} and "GEO_HOME=/mnt/geo" in image
        assert container["mountPoints"][0]["containerPath"] == "/mnt/geo"
        # All that a rented job needs, and no key in the place of the task's role.
        names = {entry["name"] for entry in container["environment"]}
        assert {"GEO_JOBS_URL", "GEO_JOB_IMAGE"} <= names and not given & {*AWS_KEYS}
        secrets = {entry["name"] for entry in container["secrets"]}
        assert {"HF_TOKEN", *(OF_JOBS + name for name in AWS_KEYS[:2])} <= secrets
    assert (
        "cp deploy/dagster-aws.yaml /srv/instance/dagster.yaml" in image
        and "DAGSTER_HOME=/srv/instance" in image
    )


def test_steps_work_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_executor().name == "multiprocess"
    monkeypatch.setenv("GEO_EXECUTOR", "dagster_aws.ecs:ecs_executor")
    assert step_executor().name == "ecs"
    for wrong in ("dagster_aws.ecs", "nowhere_at_all:executor", "json:dumps", ":"):
        monkeypatch.setenv("GEO_EXECUTOR", wrong)
        with pytest.raises(GeoError, match="GEO_EXECUTOR"):
            step_executor()


@pytest.mark.parametrize("name", ["DAGSTER_PG_PASSWORD", "DAGSTER_LOGS_BUCKET"])
def test_a_variable_that_is_not_set_is_named(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name)
    with (
        pytest.raises(Exception, match=name),
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        assert instance.compute_log_manager is not None  # made when it is first asked for
