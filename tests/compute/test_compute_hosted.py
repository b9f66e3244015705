"""A model served by a job: waited for, asked who it is, paid for, and torn down whatever happens."""

import os
from pathlib import Path
from typing import Any

import pytest
from compute_lab import HERE, lab_stage, rented
from fake_hub import FakeHub

from env_service.errors import GeoError
from geo_assets.config.arms import load_arms
from geo_assets.config.compute import load_compute
from geo_assets.sweeps import self_hosted
from geo_assets.sweeps.self_hosted import PORT, Hosting, WrongModelServed, hosted_endpoint, vllm_command
from geo_assets.sweeps.served_models import ServedModels
from geo_assets.sweeps.serving import served_model
from resources.compute import ASSET, PROJECT, PROJECT_NAME, JobFailed


def hosting(*more: str, root: str = "owner/model", **changes: Any) -> Hosting:
    """A tiny server as a job."""
    command = ("python", "-m", "tiny_server", "--model", "m", "--root", "owner/model", "--port", str(PORT))
    env = {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])}
    return Hosting("sweep_m", "m", root, (*command, *more), env=env, **changes)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> FakeHub:
    """Jobs are rented from a fake Hub."""
    for name, value in rented(hub).items():
        monkeypatch.setenv(name, value)
    return hub


def test_it_answers_at_the_exposed_address_with_the_token(away: FakeHub) -> None:
    away.scheduling_s = 0.3
    said: list[str] = []
    settings = load_compute(lab_stage().settings)
    with hosted_endpoint(hosting(), settings, said.append) as hosted:
        (job,) = away.jobs.values()
        assert hosted.base_url == f"{away.url}/exposed/{job.id}/8000/v1"
        assert hosted.key is not None and hosted.key.get_secret_value() == away.token
        assert list(ServedModels(hosted.base_url, hosted.key).cards()) == ["m"]
        with pytest.raises(GeoError, match="answered 401"):
            ServedModels(hosted.base_url).cards()
        labels = {PROJECT: PROJECT_NAME, ASSET: "sweep_m"}
        assert labels.items() <= job.labels.items() and job.spec["expose"] == {"ports": [PORT]}
        assert job.spec["timeoutSeconds"] == 4 * 3600
    assert job.stage == "CANCELED" and "Cancelled job" in said[-1]
    assert hosted.cost["flavor"] == "a100-large" and hosted.cost["job_id"] == job.id


@pytest.mark.parametrize("place", ["hub", "local"])
def test_it_is_torn_down_when_the_sweep_fails(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("GEO_COMPUTE", place)
    settings = load_compute(lab_stage().settings)
    with (
        pytest.raises(ZeroDivisionError),
        hosted_endpoint(hosting(), settings, lambda text: None) as hosted,
    ):
        raise ZeroDivisionError
    with pytest.raises(GeoError, match=r"cannot be reached|answered 502"):
        ServedModels(hosted.base_url, hosted.key).cards()


def test_a_job_that_was_left_running_is_gone_on_with(away: FakeHub) -> None:
    settings = load_compute(lab_stage().settings)
    entered = hosted_endpoint(hosting(), settings, lambda text: None)
    first = entered.__enter__()  # whose sweep is killed: nobody leaves the block
    said: list[str] = []
    with hosted_endpoint(hosting(), settings, said.append) as second:
        assert second.job.id == first.job.id and said[0].startswith("Going on with job")
    assert away.launches() == 1 and next(iter(away.jobs.values())).stage == "CANCELED"
    with pytest.raises(StopIteration):
        next(entered.gen)


def test_a_lost_answer_is_never_an_earlier_server(away: FakeHub) -> None:
    settings = load_compute(lab_stage().settings)
    with hosted_endpoint(hosting(), settings, lambda text: None) as first:
        pass
    away.faults.storm("POST /api/jobs/tester", count=1)
    with hosted_endpoint(hosting(), settings, lambda text: None) as second:
        assert second.job.id != first.job.id
    away.faults.lose_reply()
    with hosted_endpoint(hosting(), settings, lambda text: None) as third:
        assert list(ServedModels(third.base_url, third.key).cards()) == ["m"]
    assert away.launches() == 3


def test_another_model_a_death_and_a_late_start_are_told(away: FakeHub, tmp_path: Path) -> None:
    settings = load_compute(lab_stage().settings)
    with (
        pytest.raises(WrongModelServed, match="serves owner/model as m, not owner/other"),
        hosted_endpoint(hosting(root="owner/other"), settings, lambda text: None),
    ):
        pass
    with (
        pytest.raises(JobFailed, match=r"ended before it answered: .* last words: CUDA out of memory"),
        hosted_endpoint(hosting("--dies"), settings, lambda text: None),
    ):
        pass
    with (
        pytest.raises(JobFailed, match=r"last words: my token is \*\*\*") as told,
        hosted_endpoint(hosting("--says-token"), settings, lambda text: None),
    ):
        pass
    assert away.token not in str(told.value)
    away.scheduling_s = 60
    with (
        pytest.raises(GeoError, match="did not serve m within 0 s"),
        hosted_endpoint(hosting(start_s=0.4), settings, lambda text: None),
    ):
        pass
    assert {job.stage for job in away.jobs.values()} <= {"CANCELED", "ERROR"}


def test_vllm_is_told_the_revision_and_the_port() -> None:
    command = vllm_command("owner/model", "abc", "name")
    assert command[:5] == ("vllm", "serve", "owner/model", "--revision", "abc")
    assert command[command.index("--port") + 1] == str(PORT)


def test_an_arm_without_an_address_is_served_at_a_commit(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, ...]] = []

    def tiny(*arguments: str) -> tuple[str, ...]:
        asked.append(arguments)
        program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import tiny_server; tiny_server.main()"
        return (
            "python",
            "-c",
            program,
            "--model",
            "owner/model",
            "--root",
            "owner/model",
            "--port",
            str(PORT),
        )

    monkeypatch.setattr(self_hosted, "vllm_command", tiny)
    away.models["owner/model"] = {"main": "c" * 40}
    arm = load_arms("live").get("qwen3_5_4b").model_copy(update={"model": "owner/model"})
    with served_model(arm, tmp_path, lambda text: None) as model:
        (job,) = away.jobs.values()
        assert str(model.endpoint.base_url).startswith(f"{away.url}/exposed/{job.id}/8000/v1")
        assert model.cost == {}
    assert asked == [("owner/model", "c" * 40, "owner/model")] and job.labels[ASSET] == "sweep_qwen3_5_4b"
    assert model.cost["served_revision"] == "c" * 40 and model.cost["flavor"] == "a100-large"
