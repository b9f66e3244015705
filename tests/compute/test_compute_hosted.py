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
from geo_assets.config.parsers import Parsers, UnknownFamily, family_parsers
from geo_assets.sweeps import self_hosted
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.self_hosted import (
    PORT,
    Hosting,
    WrongModelServed,
    arm_parsers,
    hosted_endpoint,
    served_commit,
    vllm_command,
)
from geo_assets.sweeps.served_models import ServedModels
from geo_assets.sweeps.serving import served_model
from geo_assets.sweeps.store import SERVED, SweepStore
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
    command = vllm_command("owner/model", "abc", "name", Parsers("hermes", "qwen3"))
    assert command[:5] == ("vllm", "serve", "owner/model", "--revision", "abc")
    assert command[command.index("--port") + 1] == str(PORT)
    assert command[command.index("--tool-call-parser") + 1] == "hermes"
    assert command[command.index("--reasoning-parser") + 1] == "qwen3"
    bare = vllm_command("owner/model", "abc", "name", Parsers("", ""))
    assert not {"--tool-call-parser", "--enable-auto-tool-choice", "--reasoning-parser"} & set(bare)


def test_a_sweep_goes_on_at_the_commit_that_its_episodes_were_played_at(
    away: FakeHub, tmp_path: Path
) -> None:
    arm = load_arms("live").get("qwen3_5_4b").model_copy(update={"model": "owner/model"})
    away.models["owner/model"] = {"main": "c" * 40, "v2": "e" * 40}
    token = load_compute(lab_stage().settings).token
    assert served_commit(arm, token, tmp_path) == "c" * 40
    away.models["owner/model"]["main"] = "d" * 40
    assert served_commit(arm, token, tmp_path) == "d" * 40, "nothing was played yet"
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    away.models["owner/model"]["main"] = "f" * 40
    assert served_commit(arm, token, tmp_path) == "d" * 40
    assert served_commit(arm, token, None) == "f" * 40, "a look at the endpoint is no sweep"
    other = arm.model_copy(update={"revision": "v2"})
    assert arm.identity() != other.identity()
    with WriterLock(tmp_path / "s", "s") as lock:
        SweepStore(tmp_path / "s", lock, {"arm": arm.identity()})
        (tmp_path / "s" / SERVED).write_text("{}")
        SweepStore(tmp_path / "s", lock, {"arm": other.identity()})
        assert not (tmp_path / "s" / SERVED).exists(), "it went aside with the episodes"
    assert served_commit(other, token, tmp_path / "s") == "e" * 40


@pytest.mark.parametrize(
    ("slug", "parsers"),
    [
        ("qwen3_5_9b", Parsers("qwen3_coder")),
        ("qwen3_5_0_8b", Parsers("qwen3_coder")),
        ("qwen3_vl_4b_instruct", Parsers("hermes")),
        ("qwen3_vl_2b_instruct", Parsers("hermes")),
    ],
)
def test_each_family_is_served_with_its_own_parsers(slug: str, parsers: Parsers) -> None:
    assert arm_parsers(load_arms("live").get(slug)) == parsers


@pytest.mark.parametrize(
    ("model", "parsers"),
    [
        ("Qwen/Qwen3.5-4B", Parsers("qwen3_coder", "qwen3")),
        ("me/my-qwen3.5-4b-merged", Parsers("qwen3_coder", "qwen3")),
        ("Qwen/Qwen3-VL-8B-Thinking", Parsers("hermes", "deepseek_r1")),
        ("Qwen/Qwen2.5-VL-7B-Instruct", Parsers("hermes")),
        ("Qwen/SomethingElse", None),
        ("owner/model", None),
    ],
)
def test_the_family_is_read_from_the_models_name(model: str, parsers: Parsers | None) -> None:
    assert family_parsers(model) == parsers
    arm = load_arms("live").get("qwen3_5_4b")
    plain = arm.sampling.model_copy(update={"extra": {}})
    served = arm.model_copy(update={"model": model, "sampling": plain})
    if parsers is None:
        with pytest.raises(UnknownFamily, match="Nobody said which tool parser"):
            arm_parsers(served)
        assert arm_parsers(served.model_copy(update={"protocol": "json"})) == Parsers("")
    else:
        assert arm_parsers(served) == parsers
    own = served.model_copy(update={"tool_parser": "pythonic", "reasoning_parser": ""})
    assert arm_parsers(own) == Parsers("pythonic")


def test_an_arm_without_an_address_is_served_at_a_commit(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Any, ...]] = []

    def tiny(*arguments: Any) -> tuple[str, ...]:
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
    changes = {"model": "owner/model", "tool_parser": "hermes", "reasoning_parser": "qwen3"}
    arm = load_arms("live").get("qwen3_5_4b").model_copy(update=changes)
    with served_model(arm, tmp_path, lambda text: None, tmp_path) as model:
        (job,) = away.jobs.values()
        assert str(model.endpoint.base_url).startswith(f"{away.url}/exposed/{job.id}/8000/v1")
        assert model.cost == {}
    assert asked == [("owner/model", "c" * 40, "owner/model", Parsers("hermes", "qwen3"))]
    assert job.labels[ASSET] == "sweep_qwen3_5_4b"
    away.models["owner/model"] = {"main": "d" * 40}
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    with served_model(arm, tmp_path, lambda text: None, tmp_path) as again:
        assert asked[-1][1] == "c" * 40, "a sweep that has episodes goes on with the weights it began with"
    assert again.cost["served_revision"] == "c" * 40
    assert model.cost["served_revision"] == "c" * 40 and model.cost["flavor"] == "a100-large"
