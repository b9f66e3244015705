"""The mirror as workers of a cluster run it, with workers taken away; an environment built over the bucket.

History is in a real Postgres, step logs and pictures in S3 on loopback, and each step of the graph is a
worker that was given a command line and nothing else. Workers are killed with `kill -9` at random moments,
run after run, and what comes out in the end is byte for byte what an undisturbed run on one disk makes.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("scaleout", "doubles", "env_assets")]

import s3fs  # noqa: E402
from aws_double import ACCESS_KEY, SECRET_KEY, Aws, aws  # noqa: E402
from env_assets_lab import compute, make_home, make_task, publish_split  # noqa: E402
from postgres_double import PASSWORD, postgres, postgres_programs  # noqa: E402
from scaleout_lab import REPOSITORY, World, instance_home, stage_of, wait_for_lines, world  # noqa: E402

from env_service.store import PanoramaStore  # noqa: E402
from geo_assets.data.mirrored_panoramas import mirror_all, shard_log, verify  # noqa: E402
from geo_assets.environment.deployment_local import deployment_local  # noqa: E402
from geo_assets.environment.eval_environment import eval_environment  # noqa: E402
from geo_assets.lineage.assets import StageRun  # noqa: E402

pytestmark = pytest.mark.slow

TASKS, THREADS, RUNS, SHARDS = 60, 4, 3, 2
PACE = "1800"
DAGSTER = Path(sys.executable).parent / "dagster"
STEP = "mirrored_panoramas.mirror_shard[{:03d}]"
PUBLISHED = ("tasks.jsonl", "manifest.json")


@pytest.fixture(scope="module")
def cloud() -> Iterator[Aws]:
    """S3 on loopback; this process and its children are clients of it."""
    with aws() as double, pytest.MonkeyPatch.context() as patch:
        for name, value in double.variables.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield double
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[World]:
    """A recorded world behind a real server."""
    with world(tmp_path / "world", TASKS) as served:
        yield served


@pytest.fixture
def database() -> Iterator[dict[str, str]]:
    """A real Postgres."""
    if postgres_programs() is None:
        pytest.skip("needs Postgres: install the package postgresql")
    with postgres() as variables:
        yield variables


def _start(variables: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as sink:
        return subprocess.Popen(
            [str(DAGSTER), "asset", "materialize", "--select", "mirrored_panoramas"],
            cwd=REPOSITORY,
            env={**os.environ, **variables},
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )


def test_workers_taken_away_change_no_byte(
    cloud: Aws, recorded: World, database: Mapping[str, str], tmp_path: Path
) -> None:
    calm = StageRun(stage_of(recorded.home(tmp_path / "calm")), "mirrored_panoramas", lambda text: None)
    expected = mirror_all(calm)
    assert recorded.fetched().total() == recorded.pictures

    home, workers = tmp_path / "home", tmp_path / "workers"
    workers.mkdir()
    pictures, logs = cloud.make_bucket(), cloud.make_bucket()
    variables = {
        **recorded.home(home, f"s3://{pictures}/panos"),
        **database,
        "DAGSTER_LOGS_BUCKET": logs,
        "DAGSTER_HOME": str(instance_home(home / "dagster")),
        "DAGSTER_MODULE_NAME": "geo_assets.definitions",
        "GEO_EXECUTOR": "worker_executor:workers",
        "GEO_WORKERS": str(THREADS),
        "GEO_REQUESTS_PER_MINUTE": PACE,
        "WORKERS": str(workers),
        "PYTHONPATH": os.pathsep.join([str(TESTS / "doubles"), os.environ["PYTHONPATH"]]),
    }
    run = StageRun(stage_of(variables), "mirrored_panoramas", lambda text: None)
    dice = random.Random("scale-out 2026")
    asked: Counter[str] = Counter()
    for _ in range(RUNS):
        for pid in workers.glob("*.pid"):
            pid.unlink()
        logs_of = [
            run.folder().path / "verified" / f"{shard_log(run, shard)}.jsonl" for shard in range(SHARDS)
        ]
        known = [log.read_bytes().count(b"\n") if log.exists() else 0 for log in logs_of]
        process = _start(variables, tmp_path / "runs.log")
        for shard, log in enumerate(logs_of):
            wait_for_lines(log, known[shard] + dice.randint(4, 14), process)
            os.killpg(int((workers / f"{STEP.format(shard)}.pid").read_text()), signal.SIGKILL)
        assert process.wait(timeout=600) != 0, "a run whose workers are gone is a failure, and ends"
        asked += recorded.fetched()
    process = _start({**variables, "GEO_REQUESTS_PER_MINUTE": "100000"}, tmp_path / "runs.log")
    assert process.wait(timeout=600) == 0, (tmp_path / "runs.log").read_text()[-3000:]
    asked += recorded.fetched()

    stored = cloud.objects(pictures, "panos/")
    assert stored == {path.name: path.read_bytes() for path in (calm.folder().path / "store").iterdir()}
    for name in PUBLISHED:
        assert (run.folder().path / name).read_bytes() == (calm.folder().path / name).read_bytes()
    again = asked.total() - recorded.pictures
    kills = RUNS * SHARDS
    print(f"\n{kills} workers killed, {recorded.pictures} pictures, {again} fetched again")
    assert set(asked) == {name.removesuffix(".jpg") for name in stored}
    assert again <= kills * THREADS, "only what a killed worker had in hand"
    assert verify(run).passed
    _history(variables, cloud, expected.data_version)
    written = b"".join(
        path.read_bytes() for folder in (home, workers) for path in folder.rglob("*") if path.is_file()
    )
    said = written + (tmp_path / "runs.log").read_bytes() + b"".join(cloud.objects(logs).values())
    assert not [key for key in (PASSWORD, ACCESS_KEY, SECRET_KEY) if key.encode() in said]


def _history(variables: Mapping[str, str], cloud: Aws, data_version: str) -> None:
    """Every run is in Postgres, the last with the data version; each of its steps has a log in S3."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        with dg.DagsterInstance.from_config(variables["DAGSTER_HOME"]) as instance:
            statuses = Counter(record.dagster_run.status for record in instance.get_run_records())
            assert statuses == {dg.DagsterRunStatus.FAILURE: RUNS, dg.DagsterRunStatus.SUCCESS: 1}
            last = instance.get_latest_materialization_event(dg.AssetKey("mirrored_panoramas"))
            assert last is not None and last.asset_materialization is not None
            assert (last.asset_materialization.tags or {})["dagster/data_version"] == data_version
            logs = cloud.objects(variables["DAGSTER_LOGS_BUCKET"])
            assert sum(last.run_id in name for name in logs) >= 4


def test_an_environment_is_built_and_carried_off_over_a_bucket(cloud: Aws, tmp_path: Path) -> None:
    url = f"s3://{cloud.make_bucket()}/panos"
    stage = make_home(tmp_path / "home", eval_tasks=0, train_tasks=0)
    stage = replace(stage, settings=replace(stage.settings, store_url=url))
    publish_split(stage, "eval", [make_task(PanoramaStore(url), index, "eval") for index in range(3)])
    for asset in (eval_environment, deployment_local):
        checks = compute(asset, stage).checks
        assert checks and all(check.passed for check in checks)
