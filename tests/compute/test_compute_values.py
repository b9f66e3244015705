"""Prices, settings, stored folders and messages: what is refused, and what comes back."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from compute_lab import IMAGE, rented
from fake_hub import FakeHub
from fsspec.implementations.local import LocalFileSystem
from typer.testing import CliRunner

from env_service.errors import GeoError
from geo_assets.cli import _register, app
from geo_assets.config.compute import deployment_id, flavor_for, load_compute, open_compute
from geo_assets.config.prices import PricesFileError, UnknownHardware, load_prices
from geo_assets.config.settings import REPOSITORY, load_settings
from resources.compute import ASSET, HOME, PROJECT, PROJECT_NAME, JobRequest
from resources.compute.artifacts import (
    BrokenArtifact,
    DamagedArtifact,
    get_folder,
    put_folder,
    read_manifest,
    refuse_folder,
    remove_folder,
)
from resources.compute.inside import MAX_MESSAGE, MessageTooLarge, _LineChannel
from resources.compute.local import LocalCompute


def test_a_minute_that_has_begun_is_paid() -> None:
    prices = load_prices()
    assert prices.flavor_of("1xA100") == "a100-large" and prices.flavor_of("4xA100") == "a100x4"
    assert prices.usd("a100-large", 3600) == 2.5 and prices.usd("a100x4", 3600) == 10.0
    assert prices.usd("a100-large", 0) == 0 and prices.usd("a100-large", 1) == prices.usd("a100-large", 60)
    assert prices.usd("a100-large", 61) == pytest.approx(2 * 2.5 / 60, abs=1e-4)
    assert prices.gpu_seconds("a100x4", 10) == 40 and prices.gpu_seconds("local", 10) == 0
    with pytest.raises(UnknownHardware, match=r"prices\.yaml has no price for h200"):
        prices.usd("h200", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("as_of: soon", "as_of: "),
        ("flavors: {x: {usd_per_hour: -1, gpus: 0}}", "flavors.x.usd_per_hour"),
        ("hardware: {y: z}", "hardware y is z, which is no flavor"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_broken_price_table_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.yaml"
    whole = {"as_of": "2026-01-01", "source": "s", "flavors": {}, "hardware": {}}
    key = text.partition(":")[0]
    path.write_text("\n".join([text, *(f"{k}: {json.dumps(v)}" for k, v in whole.items() if k != key)]))
    with pytest.raises(PricesFileError, match=said):
        load_prices(path)


def test_where_a_job_runs_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()

    def told(**env: str) -> Any:
        return load_compute(settings, env)

    assert flavor_for(told(), "cpu") == "local" and flavor_for(told(GEO_COMPUTE="local"), "4xA100") == "local"
    assert flavor_for(told(GEO_COMPUTE="hub"), "4xA100") == "a100x4"
    with pytest.raises(GeoError, match="HF_TOKEN and GEO_JOB_IMAGE and GEO_JOBS_URL must be set"):
        open_compute(told(), "a100-large", "adapter_run3")
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    remote = {"HF_TOKEN": "t", "GEO_JOBS_URL": "s3://bucket/jobs", **keys}
    with pytest.raises(GeoError, match="is not pinned by digest"):
        open_compute(told(**remote, GEO_JOB_IMAGE="registry/x:latest"), "a100-large", "a")
    open_compute(told(**remote, GEO_JOB_IMAGE=IMAGE), "a100-large", "a")
    for bad in ({"GEO_COMPUTE": "moon"}, {"GEO_JOB_POLL_S": "-1"}, {"GEO_JOB_POLL_S": "x"}):
        with pytest.raises(GeoError):
            told(**bad)
    assert "planted" not in repr(told(HF_TOKEN="planted", AWS_SECRET_ACCESS_KEY="planted"))


def test_a_job_that_could_not_open_its_stores_is_not_rented(monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"HF_TOKEN": "t", "GEO_JOB_IMAGE": IMAGE}
    on_s3 = {**token, "GEO_JOBS_URL": "s3://bucket/jobs"}

    def opened(env: dict[str, str]) -> dict[str, str]:
        settings = load_compute(load_settings(), env)
        open_compute(settings, "a100-large", "adapter_run3")
        return {name: value.get_secret_value() for name, value in settings.secrets.items()}

    lacking = "adapter_run3 needs a rented job .* AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
    with pytest.raises(GeoError, match=lacking):
        opened(on_s3)
    with pytest.raises(GeoError, match=r"GEO_JOB_AWS_ACCESS_KEY_ID"):
        opened({**on_s3, "AWS_ACCESS_KEY_ID": "k"})
    own = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "of-the-role"}
    assert opened({**on_s3, **own}) == {**own, "HF_TOKEN": "t"}
    of_jobs = {"GEO_JOB_AWS_ACCESS_KEY_ID": "jk", "GEO_JOB_AWS_SECRET_ACCESS_KEY": "js"}
    passed = {"AWS_ACCESS_KEY_ID": "jk", "AWS_SECRET_ACCESS_KEY": "js", "HF_TOKEN": "t"}
    assert opened({**on_s3, **own, **of_jobs}) == passed, "the two kinds are not mixed"
    assert opened({**token, "GEO_JOBS_URL": "hf://datasets/a/b"}) == {"HF_TOKEN": "t"}
    with pytest.raises(GeoError, match="no credentials for gs://"):
        opened({**token, "GEO_JOBS_URL": "gs://bucket/jobs"})
    # The pictures count too.
    monkeypatch.setenv("GEO_STORE_URL", "s3://bucket/panos")
    with pytest.raises(GeoError, match=lacking):
        opened({**token, "GEO_JOBS_URL": "hf://datasets/a/b"})


@pytest.mark.parametrize("url", ["s3://KEY:planted@bucket/jobs", "https://x/jobs?signature=planted"])
def test_an_address_of_jobs_that_holds_credentials_is_refused(url: str) -> None:
    with pytest.raises(GeoError, match=r"GEO_JOBS_URL: .* holds credentials") as refused:
        load_compute(load_settings(), {"GEO_JOBS_URL": url})
    assert "planted" not in str(refused.value)


def test_homes_that_share_a_bucket_do_not_share_their_jobs(tmp_path: Path) -> None:
    def label(home: str, bucket: str = "one") -> str:
        settings = load_settings({"GEO_HOME": str(tmp_path / home)})
        return load_compute(settings, {"GEO_JOBS_URL": f"s3://{bucket}/jobs"}).home_label

    mine, theirs = label("mine"), label("theirs")
    assert mine != theirs and label("mine") == mine and label("mine", "two") != mine
    assert deployment_id(tmp_path / "mine") not in (mine, deployment_id(tmp_path / "theirs"))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: deployment_id(tmp_path / "new"), range(8)))) == 1


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_a_folder_comes_back_as_it_was_or_not_at_all(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path}/store/one"
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.bin").write_bytes(b"\x00\x01")
    (source / "b.txt").symlink_to(source / "deep" / "a.bin")
    assert read_manifest(url) is None
    with pytest.raises(BrokenArtifact, match="Nothing finished"):
        get_folder(url, tmp_path / "back")
    put_folder(source, url, {"data_version": "v"})
    assert get_folder(url, tmp_path / "back") == {"data_version": "v"}
    assert (tmp_path / "back" / "deep" / "a.bin").read_bytes() == b"\x00\x01"
    assert (tmp_path / "back" / "b.txt").read_bytes() == b"\x00\x01"
    remove_folder(url)
    assert read_manifest(url) is None
    remove_folder(url)


def test_a_folder_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    source, url = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    (source / "a").write_text("one")
    put_folder(source, str(url))
    (url / "a").write_text("two")
    with pytest.raises(DamagedArtifact, match="is not what was stored"):
        get_folder(str(url), tmp_path / "back")
    (url / "a").unlink()
    with pytest.raises(DamagedArtifact, match="is not there any more"):
        get_folder(str(url), tmp_path / "back")
    manifest = url / "_manifest.json"
    manifest.write_text(manifest.read_text().replace('"a"', '"../a"'))
    with pytest.raises(DamagedArtifact, match="a file outside of its folder"):
        get_folder(str(url), tmp_path / "back")
    for body in ("{", "[]", '{"files": []}', '{"files": {}, "report": 3}'):
        manifest.write_text(body)
        with pytest.raises(DamagedArtifact, match="cannot be read"):
            read_manifest(str(url))
    with pytest.raises(BrokenArtifact) as unknown:
        read_manifest("nosuch://bucket/jobs")
    assert not isinstance(unknown.value, DamagedArtifact)
    refuse_folder(str(url))
    assert read_manifest(str(url)) is None and (url / "_manifest.json").parent.exists()
    refuse_folder(str(url))


def test_a_transfer_that_is_cut_short_once_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    (source / "a").write_text("one")
    put_folder(source, str(url))
    real, asked = LocalFileSystem.get_file, list[str]()

    def short(self: LocalFileSystem, path: str, to: str, *more: Any, **options: Any) -> Any:
        asked.append(path)
        return real(self, path, to, *more, **options) if len(asked) > 1 else Path(to).write_text("on")

    monkeypatch.setattr(LocalFileSystem, "get_file", short)
    get_folder(str(url), tmp_path / "back")
    assert (tmp_path / "back" / "a").read_text() == "one" and len(asked) == 2


def test_a_message_that_a_log_line_would_not_hold_is_refused() -> None:
    with pytest.raises(MessageTooLarge, match="has 100,"):
        _LineChannel().write_message({"method": "log", "params": {"message": "x" * MAX_MESSAGE}})  # type: ignore[typeddict-item]


def test_the_job_side_imports_neither_dagster_nor_torch() -> None:
    import subprocess

    code = (
        "import sys, geo_assets.training.train_job; print({'dagster', 'torch', 'pandas'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_jobs_are_listed_and_cancelled(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    if not app.registered_commands:
        _register()
    cli, settings = CliRunner(), load_compute(load_settings())
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    here = LocalCompute(settings.local_root)
    sleeping = ("python", "-c", "import time; time.sleep(60)")
    local = here.submit(JobRequest("j", sleeping, {**labels, ASSET: "one"}, 60))
    for name, value in rented(hub).items():
        monkeypatch.setenv(name, value)
    spec = {"command": ["sleep", "60"], "arguments": [], "environment": {}, "flavor": "a100-large"}
    rent = hub.start({**spec, "labels": {**labels, ASSET: "two"}})
    listed = json.loads(cli.invoke(app, ["jobs", "--json"]).stdout)
    jsonschema.validate(listed, json.loads((REPOSITORY / "docs" / "schemas" / "jobs.json").read_text()))
    assert {row["id"]: row["asset"] for row in listed["jobs"]} == {local.id: "one", rent.id: "two"}
    assert "one" in cli.invoke(app, ["jobs"]).stdout
    for number in (local.id, rent.id):
        assert cli.invoke(app, ["jobs", "--cancel", number]).stdout.startswith(f"Job {number} is cancelled")
    assert rent.stage == "CANCELED" and here.status(local.id).state == "cancelled"
    assert "had ended before" in cli.invoke(app, ["jobs", "--cancel", rent.id]).stdout
    assert "There is no job 'x'" in str(cli.invoke(app, ["jobs", "--cancel", "x"]).exception)
    assert cli.invoke(app, ["jobs"]).stdout == "No job is running.\n"


def test_jobs_are_known_without_all_that_a_launch_needs(
    monkeypatch: pytest.MonkeyPatch, hub: FakeHub
) -> None:
    if not app.registered_commands:
        _register()
    cli, settings = CliRunner(), load_compute(load_settings())
    labels = {PROJECT: PROJECT_NAME, HOME: settings.home_label}
    here = LocalCompute(settings.local_root)
    local = here.submit(JobRequest("j", ("python", "-c", "input()"), {**labels, ASSET: "one"}, 60))
    for name, value in hub.environ.items():
        monkeypatch.setenv(name, value)
    rent = hub.start({"command": ["sleep", "60"], "arguments": [], "environment": {}, "flavor": "a100-large",
                      "labels": {**labels, ASSET: "two"}})  # fmt: skip

    def listed() -> set[str]:
        result = cli.invoke(app, ["jobs", "--json"])
        return {row["id"] for row in json.loads(result.stdout)["jobs"]}

    assert listed() == {local.id, rent.id}, "the token is enough to ask"
    monkeypatch.setenv("GEO_JOB_IMAGE", IMAGE)
    assert listed() == {local.id, rent.id}, "half of what a launch needs is no fault"
    monkeypatch.setenv("GEO_JOB_IMAGE", "registry/x:latest")
    assert cli.invoke(app, ["jobs", "--cancel", rent.id]).stdout.startswith(f"Job {rent.id} is cancelled")
    # A Hub that refuses hides nothing that runs here.
    hub.faults.storm(status=403, count=99)
    refused = cli.invoke(app, ["jobs", "--json"])
    assert local.id in refused.stdout and "refuses" in str(refused.exception)
    assert "refuses" in str(cli.invoke(app, ["jobs", "--cancel", "elsewhere"]).exception)
    monkeypatch.delenv("GEO_JOB_IMAGE")
    told = cli.invoke(app, ["jobs", "--json"])
    assert told.exit_code == 0 and "refuses" in told.stderr, "nothing is rented, so its answer is no need"
    assert cli.invoke(app, ["jobs", "--cancel", local.id]).stdout.startswith(f"Job {local.id} is cancelled")
