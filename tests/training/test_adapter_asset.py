"""The adapter asset as Dagster runs it, and the job under it: what stands, what is said, what is left."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from PIL import Image
from training_lab import lab_run

from env_service.errors import GeoError
from geo_assets.config.compute import CARD
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.training import run_factory
from geo_assets.training.curves import curves_chart, smoothed
from geo_assets.training.run_factory import adapter_asset, recover, swap, train_adapter
from geo_assets.training.weights import weights_sha256
from resources.compute import JobFailed
from resources.programs import Program, ProgramFailed

RUN = lab_run(slug="run3", steps=3)


@dataclass
class Trained:
    """A home in which the adapter was materialized, and what Dagster recorded of it."""

    stage: Stage
    result: dg.ExecuteInProcessResult

    @property
    def folder(self) -> Path:
        """Where the adapter stands."""
        return self.stage.settings.home / "adapter_run3"


def make_home(home: Path, config: Path, model: Path) -> Stage:
    """A finished training environment and a finished base model."""
    environment, base = AssetFolder(home, "train_environment"), AssetFolder(home, "base_model_4b")
    environment.file("config.json").write_bytes(config.read_bytes())
    environment.publish("environment-version", {"tasks": 3, "max_turns": 6})
    base.path.mkdir(parents=True)
    (base.path / "model").symlink_to(model)
    base.publish("base-version", {"repo": "base_model_4b", "revision": "base-version"})
    return Stage(load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(home)}), stage_specs("sandbox"))


@pytest.fixture(scope="module")
def trained(lab_config: Path, lab_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The asset, materialized by a real Dagster instance."""
    stage = make_home(tmp_path_factory.mktemp("asset") / "home", lab_config, lab_model)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([adapter_asset(RUN).definition(stage)], instance=instance)
    assert result.success
    return Trained(stage, result)


def test_the_folder_holds_all_of_a_training(trained: Trained) -> None:
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {
        "adapter",
        "metrics.jsonl",
        "timings.jsonl",
        "rollouts.jsonl",
        "curves.png",
        "spec.json",
        "training.json",
        "training.log",
        "_asset.json",
        "_lineage.json",
    }
    assert {path.name for path in (trained.folder / "adapter").iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
    }
    body = json.loads((trained.folder / "adapter" / "adapter_config.json").read_text())
    assert (body["base_model_name_or_path"], body["revision"]) == ("base_model_4b", "base-version")
    assert json.loads((trained.folder / "spec.json").read_text()) == RUN.model_dump(mode="json")
    with Image.open(trained.folder / "curves.png") as picture:
        assert picture.width > 800 and len(picture.convert("RGB").getcolors(1 << 20) or ()) > 20
    assert not list((trained.stage.settings.home / "jobs" / "adapter_run3").glob("*/out/*.part"))
    hidden = {path.name for path in trained.stage.settings.home.iterdir() if path.name.startswith(".")}
    assert hidden == {".adapter_run3.lock", ".deployment_id"}, "nothing is left aside"


def test_facts_figures_and_versions(trained: Trained) -> None:
    published = AssetFolder(trained.stage.settings.home, "adapter_run3").built()
    assert published is not None
    facts = published.facts
    assert facts["weights_sha256"] == weights_sha256(trained.folder / "adapter")
    assert (facts["base"], facts["base_version"]) == ("base_model_4b", "base-version")
    assert (facts["environment_version"], facts["steps"], facts["tasks"]) == ("environment-version", 3, 3)
    assert 1 <= facts["tasks_touched"] <= 3
    (event,) = trained.result.asset_materializations_for_node("adapter_run3")
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert metadata["curves"].startswith("![Training of") and "data:image/png;base64," in metadata["curves"]
    assert metadata["trainer_peak_memory_mb"] > 100 and metadata["trainer_seconds"] > 0
    assert event.tags is not None and event.tags["dagster/data_version"] == published.data_version
    (check,) = trained.result.get_asset_check_evaluations()
    assert check.passed and check.metadata["rollouts"].value == 12


def quiet(stage: Stage, said: list[str] | None = None) -> StageRun:
    """A run of the asset outside Dagster."""
    return StageRun(stage, "adapter_run3", (said if said is not None else []).append)


def test_a_training_that_fails_leaves_the_finished_one_standing(trained: Trained, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in trained.folder.rglob("*") if path.is_file()}
    broken = RUN.model_copy(update={"max_turns": 12})
    with pytest.raises(JobFailed) as caught:
        train_adapter(quiet(trained.stage), broken)
    assert "trains for 12 turns, and the environment plays 6" in caught.value.problem
    assert "dagster asset materialize --select adapter_run3" in caught.value.fix
    assert {path: path.read_bytes() for path in trained.folder.rglob("*") if path.is_file()} == before


def test_an_adapter_that_is_not_what_its_job_reported_is_refused_once(
    trained: Trained, lab_config: Path, lab_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_home(tmp_path / "home", lab_config, lab_model)
    monkeypatch.setattr(run_factory, "content_version", lambda facts: "another")
    with pytest.raises(
        JobFailed, match=r"its result is refused: it reported version .* has another"
    ) as caught:
        train_adapter(quiet(stage), RUN)
    assert "dagster asset materialize --select adapter_run3" in caught.value.fix
    (out,) = (stage.settings.home / "jobs" / "adapter_run3").glob("*/out")
    assert not (out / "_manifest.json").exists() and (out / "result.json").exists()
    assert AssetFolder(stage.settings.home, "adapter_run3").built() is None


def test_an_environment_that_dies_on_the_way_changes_nothing(
    trained: Trained, lab_config: Path, lab_model: Path, tmp_path: Path
) -> None:
    stage, killed = make_home(tmp_path / "home", lab_config, lab_model), list[int]()

    def say(text: str) -> None:
        wanted = {"env_service.server", str(stage.settings.home / "train_environment" / "config.json")}
        servers = [p for p in psutil.process_iter(["cmdline"]) if wanted <= set(p.info["cmdline"] or ())]
        if servers and text.startswith("step ") and not killed:
            killed.append(servers[0].pid)
            servers[0].kill()

    made = train_adapter(StageRun(stage, "adapter_run3", say), RUN)
    rollouts = (stage.settings.home / "adapter_run3" / "rollouts.jsonl").read_text().splitlines()
    assert [why for line in rollouts if (why := json.loads(line).get("lost"))] == []
    assert len(killed) == 1 and made.facts["lost"] == 0
    assert made.facts["weights_sha256"] == weights_sha256(trained.folder / "adapter")
    metrics = (stage.settings.home / "adapter_run3" / "metrics.jsonl").read_text().splitlines()
    for one, two in zip(metrics, (trained.folder / "metrics.jsonl").read_text().splitlines(), strict=True):
        assert {**json.loads(one), "reconnects": 0} == json.loads(two)


def test_parents_that_are_missing_or_empty_are_named(
    tmp_path: Path, lab_config: Path, lab_model: Path
) -> None:
    settings = load_settings({"GEO_HOME": str(tmp_path / "nothing")})
    with pytest.raises(MissingUpstream, match="adapter_run3 needs train_environment"):
        train_adapter(quiet(Stage(settings, stage_specs("sandbox"))), RUN)
    stage = make_home(tmp_path / "home", lab_config, lab_model)
    if not CARD.exists():
        with pytest.raises(
            GeoError, match=r"needs a GPU job \(a100-large\).*HF_TOKEN and GEO_JOB_IMAGE and GEO_JOBS_URL"
        ):
            train_adapter(quiet(stage), RUN.model_copy(update={"hardware": "1xA100"}))
    AssetFolder(stage.settings.home, "train_environment").publish("v", {"empty_because": "all went to eval"})
    with pytest.raises(GeoError, match=r"the train split is empty \(all went to eval\)"):
        train_adapter(quiet(stage), RUN)


def test_a_swap_that_was_killed_half_way_is_made_good(tmp_path: Path) -> None:
    target, aside = tmp_path / "adapter_x", tmp_path / ".adapter_x.half"
    target.mkdir()
    (target / "old").touch()
    aside.mkdir()
    target.rename(aside / "adapter_x.old")  # here it was killed
    recover(target)
    assert (target / "old").exists() and not aside.exists()
    (aside / "adapter_x").mkdir(parents=True)
    (aside / "adapter_x" / "new").touch()
    swap(aside / "adapter_x", target, aside)
    recover(target)
    assert [path.name for path in target.iterdir()] == ["new"] and not aside.exists()


def program(tmp_path: Path, *arguments: str) -> Program:
    """The trainer as a program, with any command line."""
    return Program(
        "geo_assets.training.grpo", arguments, name="training", log=tmp_path / "log", fix="Do this"
    )


WAITING = ("--spec", "/dev/stdin", "--environment", "http://x", "--base", "b", "--out", "o")


def test_what_a_program_says_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match=r"no spec of a run \(.*\)\. Do this"):
        arguments = ("--spec", str(tmp_path / "no.json"), "--environment", "e", "--base", "b", "--out", "o")
        program(tmp_path, *arguments).run(lambda line: None)
    with pytest.raises(ProgramFailed, match="the following arguments are required: --spec"):
        program(tmp_path).run(lambda line: None)


def children(parent: int) -> list[int]:
    """Processes that a process has started."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def command(pid: int) -> bytes:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def until(condition: Any, limit_s: float = 20.0) -> None:
    """Wait for a condition; fails after the limit."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


def test_a_killed_program_is_told_from_one_that_failed(tmp_path: Path) -> None:
    def kill() -> None:
        for pid in children(os.getpid()):
            if b"geo_assets.training.grpo" in command(pid):
                os.kill(pid, signal.SIGKILL)

    os.mkfifo(tmp_path / "never")
    arguments = ("--spec", str(tmp_path / "never"), "--environment", "e", "--base", "b", "--out", "o")
    with pytest.raises(ProgramFailed, match="The training was killed, most likely for want of memory"):
        program(tmp_path, *arguments).run(lambda line: None, kill)


def test_a_program_leaves_with_its_parent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    arguments = ["--spec", str(tmp_path / "never"), "--environment", "e", "--base", "b", "--out", "o"]
    code = (
        "from pathlib import Path; from resources.programs import Program; "
        f"Program('geo_assets.training.grpo', {arguments!r}, name='t', log=Path({str(tmp_path / 'log')!r}))"
        ".run(print)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: children(parent.pid))
    (child,) = children(parent.pid)
    until(lambda: len(list(Path(f"/proc/{child}/task").iterdir())) > 1)  # its watching thread runs
    parent.kill()
    parent.wait()
    status = Path(f"/proc/{child}/status")
    until(lambda: not status.exists() or "\nState:\tZ" in status.read_text())
    assert not status.exists() or "\nState:\tZ" in status.read_text()


def test_weights_are_hashed_by_tensor_and_not_by_file(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    one, two = torch.arange(6.0).reshape(2, 3), torch.ones(4, dtype=torch.bfloat16)
    for name, tensors, metadata in (
        ("a", {"one": one, "two": two}, None),
        ("b", {"two": two, "one": one}, {"format": "pt"}),
        ("c", {"one": one.reshape(3, 2), "two": two}, None),
    ):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors", metadata)
    (tmp_path / "d").mkdir()
    save_file({"one": one}, tmp_path / "d" / "model-1.safetensors")
    save_file({"two": two}, tmp_path / "d" / "model-2.safetensors")
    a, b, c, d = (weights_sha256(tmp_path / name) for name in "abcd")
    assert a == b == d != c
    whole = (tmp_path / "a" / "model.safetensors").read_bytes()
    (tmp_path / "a" / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(GeoError, match="ends in the middle of a tensor"):
        weights_sha256(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").write_bytes(whole[:30])
    with pytest.raises(GeoError, match=r"no readable \.safetensors file"):
        weights_sha256(tmp_path / "a")
    with pytest.raises(GeoError, match=r"holds no \.safetensors file"):
        weights_sha256(tmp_path)


def test_curves_take_what_is_missing() -> None:
    lines = [
        {"step": 1, "reward": 0.1, "no_guess_share": 1.0, "looks": 2, "turns": 3, "median_km": None},
        {"step": 2, "reward": 0.2, "no_guess_share": 0.5, "looks": 1, "turns": 2, "median_km": 900.0},
    ]
    assert curves_chart(lines, "Two steps").startswith(b"\x89PNG")
    assert curves_chart(lines, "Two steps") == curves_chart(lines, "Two steps")
    assert smoothed([1, 2, 3, 4, 5, 6]) == [1, 1.5, 2, 2.5, 3, 4]
