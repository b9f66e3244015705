"""A real training on a rented job, over an object store, and a sweep of a model that a job serves."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import dagster as dg
import httpx
import pytest
import s3fs
from moto.server import ThreadedMotoServer

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("compute", "doubles", "training", "sweeps")]

from compute_lab import IMAGE, rented  # noqa: E402
from fake_hub import FakeHub  # noqa: E402
from sweeps_lab import build_environment, lab_arm  # noqa: E402
from sweeps_lab import lab_run as sweeps_run  # noqa: E402
from training_lab import lab_run, make_model, served, write_world  # noqa: E402
from vlm_lab import opening_of, publish_adapter, publish_base  # noqa: E402

from geo_assets.config.compute import load_compute  # noqa: E402
from geo_assets.config.settings import load_settings, stage_specs  # noqa: E402
from geo_assets.lineage.assets import Stage  # noqa: E402
from geo_assets.lineage.folders import AssetFolder  # noqa: E402
from geo_assets.sweeps.adapter_arms import adapter_sweeps  # noqa: E402
from geo_assets.sweeps.adapter_sweep import sweep_pair  # noqa: E402
from geo_assets.sweeps.harness import make_plan, run_sweep  # noqa: E402
from geo_assets.sweeps.lock import WriterLock  # noqa: E402
from geo_assets.sweeps.self_hosted import PORT, Hosting, hosted_endpoint  # noqa: E402
from geo_assets.sweeps.serving import policy_options, served_environment  # noqa: E402
from geo_assets.sweeps.store import SweepStore  # noqa: E402
from geo_assets.training.run_factory import adapter_asset  # noqa: E402
from resources.endpoints import ChatEndpoint  # noqa: E402

pytestmark = pytest.mark.slow
KEY = "planted-store-key"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub whose jobs run here."""
    (tmp_path / "hub").mkdir()
    with FakeHub(tmp_path / "hub") as server:
        yield server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An object store on loopback, and credentials for it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    httpx.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()  # moto keeps one state a process
    told = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "eu-central-1"}
    for name, value in {**told, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    region = {"LocationConstraint": "eu-central-1"}
    boto3.client("s3").create_bucket(Bucket="jobs", CreateBucketConfiguration=region)  # type: ignore[typeddict-item]
    s3fs.S3FileSystem.clear_instance_cache()  # it keeps to the address that it first saw
    yield "s3://jobs/geo"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_an_adapter_trained_on_a_rented_job_is_the_one_trained_here(
    hub: FakeHub, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, world = tmp_path / "home", write_world(tmp_path / "world")
    monkeypatch.setenv("GEO_HOME", str(home))
    with served(world) as server:
        model = make_model(tmp_path / "model", server.url)
    environment, base = AssetFolder(home, "train_environment"), AssetFolder(home, "base_model_4b")
    environment.file("config.json").write_bytes(world.read_bytes())
    environment.publish("environment-version", {"tasks": 3, "max_turns": 6})
    base.path.mkdir(parents=True)
    (base.path / "model").symlink_to(model)
    base.publish("base-version", {"repo": "base_model_4b", "revision": "base-version"})
    stage = Stage(load_settings(), stage_specs("sandbox"))
    asset = adapter_asset(lab_run(slug="run3", hardware="1xA100")).definition(stage)
    versions = []
    for place in ("hub", "local"):
        for name, value in rented(hub, GEO_COMPUTE=place, GEO_JOBS_URL=bucket).items():
            monkeypatch.setenv(name, value)
        with dg.DagsterInstance.ephemeral() as instance:
            result = dg.materialize([asset], instance=instance)
            (event,) = result.asset_materializations_for_node("adapter_run3")
            log = "\n".join(entry.user_message for entry in instance.all_logs(result.run_id))
        assert "step 2 of 2: reward" in log and KEY not in log and hub.token not in log
        versions.append((event.tags or {})["dagster/data_version"])
        flavor = {"hub": "a100-large", "local": "local"}[place]
        assert event.metadata["flavor"].value == flavor
    assert versions[0] == versions[1]
    (job,) = hub.jobs.values()
    assert job.spec["dockerImage"] == IMAGE and job.stage == "COMPLETED"
    assert str(home) not in str({**job.spec, "environment": 0}), "nothing of this machine's disk is named"
    kept = [path for path in home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert not kept


def test_an_adapter_is_swept_beside_its_base_by_a_job_that_both_were_carried_to(
    hub: FakeHub, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rented(hub, GEO_JOBS_URL=bucket).items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    config = build_environment(home, 2)
    with served_environment(config, 2) as served_here:
        opening, tools = opening_of(served_here.url)
    publish_base(home, opening, tools)
    publish_adapter(home)
    sweep, said = adapter_sweeps("sandbox")[0], list[str]()
    made = sweep_pair(sweeps_run(home, f"sweep_{sweep.slug}", said), sweep)
    assert made.facts["complete"] and made.facts["episodes"] == 2 * 4 * 2
    (job,) = hub.jobs.values()
    assert job.stage == "CANCELED" and made.metadata["job_id"] == job.id
    assert made.metadata["flavor"] == "a100-large" and str(home) not in str(job.spec["command"])
    assert any("base and adapter are served, and they differ" in line for line in said)
    folders = boto3.client("s3").list_objects_v2(Bucket="jobs").get("Contents", [])
    assert not folders, "what was carried to the job is cleared away with it"
    # The same two, served here: the same episodes, so the same version.
    monkeypatch.setenv("GEO_COMPUTE", "local")
    shutil.rmtree(home / "sweeps")
    again = sweep_pair(sweeps_run(home, f"sweep_{sweep.slug}", []), sweep)
    assert again.data_version == made.data_version


def test_a_sweep_of_a_model_that_a_job_serves(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rented(hub).items():
        monkeypatch.setenv(name, value)
    config = build_environment(tmp_path / "home", 3)
    arm = lab_arm("noisy_oracle", k=1)
    command = (
        "python",
        "-m",
        "resources.sandbox.policy_server",
        *policy_options(config),
        "--port",
        str(PORT),
    )
    hosting = Hosting("sweep_noisy_oracle", arm.model, "", command)
    said: list[str] = []
    with (
        served_environment(config, 2) as environment,
        hosted_endpoint(hosting, load_compute(load_settings()), said.append) as hosted,
    ):
        endpoint = ChatEndpoint(hosted.base_url, arm.model, hosted.key)
        plan = make_plan(arm, environment.url, "lab-1", "harness-1")
        with WriterLock(tmp_path / "sweep", arm.slug) as lock:
            store = SweepStore(tmp_path / "sweep", lock, {"arm": arm.identity()})
            swept = run_sweep(plan, environment.url, endpoint, store, said.append, 2)
        endpoint.close()
    assert len(swept.records) == 3 and swept.complete
    (job,) = hub.jobs.values()
    assert job.stage == "CANCELED" and hosted.cost["job_id"] == job.id
    records = (tmp_path / "sweep").rglob("*")
    assert not [path for path in records if path.is_file() and hub.token.encode() in path.read_bytes()]
