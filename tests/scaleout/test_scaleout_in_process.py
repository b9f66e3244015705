"""Runs that a command starts in its own task of ECS, under the eyes of the daemon that looks after runs."""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest
from aws_double import Aws
from dagster._core.workspace.context import BaseWorkspaceRequestContext
from dagster._daemon.monitoring.run_monitoring import monitor_started_run
from dagster._daemon.types import DaemonHeartbeat
from dagster_aws.ecs import EcsRunLauncher
from scaleout_lab import instance_home

from env_service.errors import GeoError
from geo_assets.cli._running import opened_instance, run_assets
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.ecs_tasks import CLUSTER, MONITORING, TASK, task_tags
from geo_assets.lineage.run_processes import followed

SEEN: list[dg.DagsterRunStatus] = []


def look(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    """What the daemon does with a run every 30 seconds, and how the run is after it."""
    record = instance.get_run_record_by_id(run_id)
    assert record is not None
    nowhere = cast(BaseWorkspaceRequestContext, None)
    monitor_started_run(instance, nowhere, record, logging.getLogger("monitoring"))
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


@dg.asset
def sweep(context: dg.AssetExecutionContext) -> None:
    """The daemon looks while it is being made."""
    SEEN.append(look(context.instance, context.run_id))


def job() -> dg.JobDefinition:
    """The job over it; its step works in this process, so that this test sees it."""
    executor = followed(dg.in_process_executor, load_settings().home)
    defs = dg.Definitions([sweep], jobs=[dg.define_asset_job("all")], executor=executor)
    return defs.resolve_job_def("all")


@pytest.fixture
def aws_home(
    as_client: Aws, database: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Of the instance that `deploy/dagster-aws.yaml` declares; its history is empty again afterwards."""
    for name, value in {**database, "DAGSTER_LOGS_BUCKET": as_client.make_bucket()}.items():
        monkeypatch.setenv(name, value)
    home = instance_home(tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    SEEN.clear()
    yield home
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.wipe()


@pytest.fixture
def task(as_client: Aws, aws_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """This process is in a running task, which answers for itself as ECS does."""
    ecs, ec2 = as_client.client("ecs"), as_client.client("ec2")
    cluster = ecs.create_cluster(clusterName="geo")["cluster"]["clusterArn"]
    ecs.register_task_definition(
        family="geo-in-process",
        networkMode="awsvpc",
        requiresCompatibilities=["FARGATE"],
        cpu="256",
        memory="512",
        containerDefinitions=[{"name": "web", "image": "geo", "essential": True, "memory": 256}],
    )
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    (started,) = ecs.run_task(
        cluster="geo",
        taskDefinition="geo-in-process",
        launchType="FARGATE",
        networkConfiguration={"awsvpcConfiguration": {"subnets": [subnet], "securityGroups": [group]}},
    )["tasks"]
    told = {"Cluster": cluster, "TaskARN": started["taskArn"]}

    class Metadata(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(told).encode() if self.path == "/v4/x/task" else b"{}"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", f"http://127.0.0.1:{server.server_port}/v4/x")
        yield told
        server.shutdown()


def test_the_daemon_lets_a_run_of_a_command_go_on(task: dict[str, str], aws_home: Path) -> None:
    with dg.DagsterInstance.from_config(str(aws_home)) as instance:
        assert isinstance(instance.run_launcher, EcsRunLauncher)
        made = dg.execute_job(dg.reconstructable(job), instance)
        run = instance.get_run_by_id(made.run_id)
        assert made.success and SEEN == [dg.DagsterRunStatus.STARTED]
        assert run is not None and run.status == dg.DagsterRunStatus.SUCCESS
        assert (run.tags[TASK], run.tags[CLUSTER]) == (task["TaskARN"], task["Cluster"])


def test_a_run_of_geo_says_its_task_from_the_first_moment(
    task: dict[str, str], aws_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geo_assets.cli._running.whole_graph_job", job)
    monkeypatch.setattr("geo_assets.lineage.run_processes.task_tags", lambda instance: {})
    stage = Stage(load_settings(), stage_specs("sandbox"))
    with opened_instance(stage) as instance:
        assert run_assets(instance, stage, [sweep.key], print).success
        (record,) = instance.get_run_records(limit=1)
    assert SEEN == [dg.DagsterRunStatus.STARTED]
    assert record.dagster_run.tags[TASK] == task["TaskARN"]


def test_a_run_whose_task_is_gone_is_ended(task: dict[str, str], aws_home: Path) -> None:
    with dg.DagsterInstance.from_config(str(aws_home)) as instance:
        tags, started = task_tags(instance), dg.DagsterRunStatus.STARTED
        for arn, status in ((tags[TASK], started), (tags[TASK][:-4] + "gone", dg.DagsterRunStatus.FAILURE)):
            run = instance.create_run_for_job(job(), tags={**tags, TASK: arn}, status=started)
            assert look(instance, run.run_id) == status


def test_outside_of_ecs_a_run_is_refused_where_a_daemon_would_end_it(aws_home: Path) -> None:
    with dg.DagsterInstance.from_config(str(aws_home)) as instance:
        assert task_tags(instance) == {}, "nobody looks after runs"
        beat = DaemonHeartbeat(time.time(), MONITORING, "daemon")
        instance.add_daemon_heartbeat(beat)
        with pytest.raises(GeoError, match="its daemon would end one that works here"):
            task_tags(instance)
        instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - 3600, MONITORING, "daemon"))
        assert task_tags(instance) == {}


def test_a_task_that_does_not_say_which_it_is_is_named(
    aws_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", "http://127.0.0.1:9/v4/x")
    with (
        dg.DagsterInstance.from_config(str(aws_home)) as instance,
        pytest.raises(GeoError, match="ECS does not say in which task this is"),
    ):
        task_tags(instance)


def test_here_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", "http://127.0.0.1:9/v4/x")
    with dg.DagsterInstance.ephemeral() as instance:
        assert task_tags(instance) == {}
