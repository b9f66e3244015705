"""The trainer over a really served environment: the same bytes twice, whole pictures, no silent rewards."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from training_lab import TURNS, lab_run, rules, served, write_world

import geo_assets.training.trainer as trainer_module
from env_service.client import schema
from geo_assets.config.runs import RunSpec
from geo_assets.sweeps import protocol_tools
from geo_assets.training import episode_link, grpo
from geo_assets.training.configuration import lora_config, trainer_config
from geo_assets.training.step_log import Rollout, StepLog
from geo_assets.training.trainer import AnyTool, PlaceholderMismatch, check_placeholders
from geo_assets.training.trl_environment import TrainingEnvironment
from geo_assets.training.weights import weights_sha256
from resources.endpoints import Reply
from resources.sandbox.vlm.conversation import Pictures, read_request
from resources.sandbox.vlm.processor import load_processor

FILES = ("metrics.jsonl", "rollouts.jsonl", "result.json", "adapter/adapter_config.json")


def lines(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass
class Trained:
    """A run that was trained within the test, with every count of picture tokens that it made."""

    run: RunSpec
    out: Path
    result: dict[str, Any]
    counted: list[tuple[list[Any], list[int]]] = field(default_factory=list)


@pytest.fixture(scope="module")
def trained(lab_url: str, lab_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Two steps of two groups of two, in this process."""
    run, out = lab_run(), tmp_path_factory.mktemp("grpo") / "out"
    counted: list[tuple[list[Any], list[int]]] = []

    def spying(rows: Any, pad: int, grids: Any, pictures: Any, merge: int) -> None:
        counted.append(([torch.as_tensor(row).tolist() for row in rows], list(pictures)))
        check_placeholders(rows, pad, grids, pictures, merge)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "check_placeholders", spying)
        result = grpo.train(run, lab_url, str(lab_model), "lab-revision", out)
    yield Trained(run, out, result, counted)


def test_the_same_seed_gives_the_same_bytes_in_another_process(
    trained: Trained, lab_url: str, lab_model: Path, tmp_path: Path
) -> None:
    spec, out = tmp_path / "spec.json", tmp_path / "out"
    spec.write_text(trained.run.model_dump_json())
    command = ["--spec", spec, "--environment", lab_url, "--base", lab_model, "--out", out]
    said = subprocess.run(
        [sys.executable, "-m", "geo_assets.training.grpo", *command, "--revision", "lab-revision"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    for name in FILES:
        assert (out / name).read_bytes() == (trained.out / name).read_bytes(), name
    assert weights_sha256(out / "adapter") == trained.result["weights_sha256"]
    printed = [json.loads(line) for line in said.stdout.splitlines()]
    assert printed[:-1] == lines(out / "metrics.jsonl") and printed[-1]["done"]


def test_every_figure_is_written_and_none_depends_on_the_clock(trained: Trained) -> None:
    found = lines(trained.out / "metrics.jsonl")
    assert [line["step"] for line in found] == [1, 2]
    wanted = {
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "entropy",
        "grad_norm",
        "clipped_ratio",
        "looks",
    }
    wanted |= {
        "tools/call_frequency",
        "tools/failure_frequency",
        "turns",
        "no_guess_share",
        "median_km",
        "lost",
    }
    wanted |= {"reconnects", "refused", "invalid", "group_spreads", "group_tasks", "cut"}
    for line in found:
        assert wanted <= set(line) and "step_time" not in line
        assert line["rollouts"] == 4 and len(line["group_spreads"]) == 2
    assert any(line["grad_norm"] > 0 for line in found), "something was learnt"
    assert [line["step"] for line in lines(trained.out / "timings.jsonl")] == [1, 2]


def test_rollouts_are_kept_without_pixels(trained: Trained) -> None:
    rollouts, found = lines(trained.out / "rollouts.jsonl"), lines(trained.out / "metrics.jsonl")
    assert len(rollouts) == 8 and {r["curve"] for r in rollouts} == {"training-w0.6-L3000-c0.2"}
    for rollout in rollouts:
        assert len(rollout["poses"]) == len(rollout["pictures"]) == len(rollout["actions"]) + 1
        assert all(len(digest) in (0, 64) for digest in rollout["pictures"])
    for line in found:
        own = [r for r in rollouts if r["step"] == line["step"]]
        assert math.isclose(sum(r["reward"] for r in own) / 4, line["reward"], abs_tol=1e-6)
        assert [r["index"] for r in own[::2]] == line["group_tasks"]
        for pair in (own[:2], own[2:]):
            assert math.isclose(pair[0]["advantage"], -pair[1]["advantage"], abs_tol=1e-4)
    assert max(map(len, (line for line in (trained.out / "rollouts.jsonl").read_text().splitlines()))) < 8000


def test_the_adapter_names_its_base_and_revision(trained: Trained, lab_model: Path) -> None:
    body = json.loads((trained.out / "adapter" / "adapter_config.json").read_text())
    assert (body["base_model_name_or_path"], body["revision"]) == ("base_model_4b", "lab-revision")
    assert str(lab_model) not in "".join(path.read_text() for path in (trained.out / "adapter").glob("*.*n"))
    assert trained.result == json.loads((trained.out / "result.json").read_text())
    assert trained.result["steps"] == 2 and trained.result["tasks"] == 3
    assert trained.result["tasks_touched"] == len(
        {task for line in lines(trained.out / "metrics.jsonl") for task in line["group_tasks"]}
    )


def test_picture_tokens_equal_picture_features_in_every_conversation(
    trained: Trained, lab_model: Path
) -> None:
    pad = load_processor(lab_model).image_token_id
    conversations = [
        (row, count) for rows, counts in trained.counted for row, count in zip(rows, counts, strict=True)
    ]
    assert len(trained.counted) > 4, "counted before every reply, and once more before learning"
    assert {count for _, count in conversations} > {1}, "some rollouts looked around"
    for row, count in conversations:
        assert row.count(pad) == 4 * count  # 64 px: 4 x 4 patches, merged two by two


def test_a_wrong_count_is_an_error_and_no_warning() -> None:
    grids, row = torch.tensor([[1, 4, 4], [1, 4, 4]]), [7, 7, 7, 7, 1, 7, 7, 7, 7]
    check_placeholders([row], 7, grids, [2], 2)
    check_placeholders([row[:5], row[4:]], 7, grids, [1, 1], 2)
    with pytest.raises(
        PlaceholderMismatch, match="Conversation 0 holds 7 picture tokens, and its 2 pictures"
    ):
        check_placeholders([row[:-1]], 7, grids, [2], 2)
    with pytest.raises(PlaceholderMismatch, match="Conversation 1 holds 5"):
        check_placeholders([row[:4], [*row[4:], 7]], 7, grids, [1, 1], 2)
    with pytest.raises(PlaceholderMismatch, match="3 pictures were shown and 2 were encoded"):
        check_placeholders([row], 7, grids, [3], 2)


class Overheard(Exception):
    """Ends an episode once the first request has been seen."""


def test_the_opening_reads_in_training_as_in_a_sweep(lab_url: str, lab_model: Path) -> None:
    processor, asked = load_processor(lab_model), list[dict[str, Any]]()

    def ask(messages: Any, tools: Any) -> Reply:
        asked.append({"model": "m", "messages": list(messages), "tools": list(tools)})
        raise Overheard

    for index in range(3):
        with episode_link.GeoGuessrEnv(lab_url) as env:
            session = type("Session", (), {"reset": lambda self, s, i: env.reset(s, i).observation})()
            with pytest.raises(Overheard):
                protocol_tools.play(session, ask, schema(lab_url)["tools"], "train", index, TURNS)
        swept = read_request(asked[-1], Pictures(64))
        player = TrainingEnvironment(rules(lab_url))
        opening = [
            {
                "role": "user",
                "content": [{"type": "text", "text": ""}, *player.reset(split="train", index=index)],
            }
        ]
        player._close()
        render = partial(processor.apply_chat_template, add_generation_prompt=True, tokenize=False)
        assert render(opening, tools=player._definitions) == render(swept.messages, tools=swept.tools)
        assert opening[0]["content"][2]["image"].tobytes() == swept.pictures[0].tobytes()


def test_any_name_with_any_argument_is_played_and_charged(lab_url: str) -> None:
    player = TrainingEnvironment(rules(lab_url))
    player.reset(split="train", index=0)
    tools = AnyTool(player)
    assert "look" in tools and "teleport" in tools and len(tools) == 11
    for name, arguments in (("look", {"heading": 1}), ("teleport", {}), ("look", {"self": 1, "tool": 2})):
        assert tools[name](**arguments)[0]["text"].startswith("Not a valid action")
    assert player._trace.invalid == 3 and len(player._trace.actions) == 3
    player._close()


def test_a_lost_rollout_stands_aside_and_the_others_learn(
    lab_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_link, "Line", partial(episode_link.Line, attempts=1))
    config = write_world(tmp_path / "world")
    config.write_text(config.read_text().replace('"max_concurrent": 16', '"max_concurrent": 3'))
    said: list[Any] = []
    with served(config) as server:

        def tell(line: Any) -> None:
            said.append(line)
            if line["step"] == 2:
                server.stop()

        monkeypatch.setattr(grpo, "_tell", tell)
        with pytest.raises(
            trainer_module.NothingToLearnFrom, match=r"Every rollout of step 3 was lost\. The episode"
        ):
            grpo.train(lab_run(steps=4), server.url, str(lab_model), None, tmp_path / "out")
    rollouts = lines(tmp_path / "out" / "rollouts.jsonl")
    assert [line["lost"] for line in said] == [1, 1]
    lost = [rollout for rollout in rollouts if rollout["lost"]]
    assert len(lost) == 2 and all(r["reward"] is None and r["advantage"] == 0.0 for r in lost)
    for line in said:
        scored = [r["reward"] for r in rollouts if r["step"] == line["step"] and not r["lost"]]
        assert math.isclose(sum(scored) / 3, line["reward"], abs_tol=1e-6), "no silent zero in the mean"


def test_an_environment_with_another_budget_is_refused(lab_url: str, lab_model: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(lab_run(max_turns=12).model_dump_json())
    command = ["--spec", spec, "--environment", lab_url, "--base", lab_model, "--out", tmp_path / "out"]
    said = subprocess.run(
        [sys.executable, "-m", "geo_assets.training.grpo", *command], capture_output=True, text=True
    )
    assert said.returncode == 2 and len(said.stderr.splitlines()) == 1
    assert "trains for 12 turns, and the environment plays 6" in said.stderr


def test_groups_spread_as_trl_divides_them(tmp_path: Path) -> None:
    def rollout(reward: float | None, index: int) -> Rollout:
        empty: dict[str, Any] = {"actions": (), "poses": (), "pictures": (), "outcome": "guess"}
        more: dict[str, Any] = {"cost": 0.0, "looks": 0, "refused": 0, "invalid": 0, "reconnects": 0}
        lost = "gone" if reward is None else ""
        return Rollout(
            "train",
            index,
            distance_km=1.0,
            lost=lost,
            cut=False,
            reward=reward,
            advantage=0.0,
            **empty,
            **more,
        )

    log = StepLog(tmp_path, "group", "c")
    log.add(1, [rollout(0.2, 0), rollout(0.6, 0), rollout(0.5, 1), rollout(None, 1)], 2)
    log.write(1, {"reward": 0.4, "step_time": 1.5})
    (line,) = log.lines
    assert line["group_spreads"] == [pytest.approx(torch.tensor([0.2, 0.6]).std().item()), None]
    assert line["advantage_multiplier"] == pytest.approx(1 / (line["group_spreads"][0] + 1e-4), rel=1e-6)
    assert line["lost"] == 1 and line["group_rewards"] == [pytest.approx(0.4), 0.5]
    assert log.touched == {0, 1} and StepLog(tmp_path, "none", "c").multiplier(0.3) == 1.0


def test_fewer_tasks_than_a_batch_are_repeated() -> None:
    assert [row["index"] for row in grpo.rows(2, 5)] == [0, 1] * 3
    assert [row["index"] for row in grpo.rows(7, 4)] == list(range(7))


def test_what_trl_is_told(lab_model: Path, tmp_path: Path) -> None:
    run, processor = lab_run(), load_processor(lab_model)
    told = trainer_config(run, tmp_path, processor, 1)
    assert (told.per_device_train_batch_size, told.gradient_accumulation_steps) == (4, 1)
    assert (told.top_p, told.top_k, told.temperature) == (1.0, 0, run.temperature)
    assert told.max_tool_calling_iterations == TURNS and told.steps_per_generation == 1
    assert told.generation_kwargs["max_new_tokens"] == run.max_turn_length
    assert len(set(told.generation_kwargs["suppress_tokens"])) == 4
    assert lora_config(run).target_modules == run.lora.targets
