"""A small world served for training, and a tiny model that has seen a few scripted episodes of it."""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from env_service.client import schema
from env_service.tasks import Task, write_tasks
from env_service.views import encode_jpeg
from geo_assets.config.runs import RunSpec, load_runs
from geo_assets.training.episode_link import Line
from geo_assets.training.trl_environment import Rules, TrainingEnvironment
from resources.processes import ServerProcess

PLACES = [("Belgium", "BE", 51, 4), ("Kenya", "KE", -1, 37), ("Chile", "CL", -33, -71)]
COLOURS = [(200, 40, 40), (40, 190, 60), (50, 70, 210)]
TURNS, PX = 6, 64
PEAK = 5e-3


def panorama(seed: int, colour: Sequence[int]) -> bytes:
    """A small panorama in the colour of its place, different for every seed."""
    dice = np.random.default_rng(seed)
    rough = dice.normal(0, 25, (16, 32, 1)) + np.asarray(colour)
    return encode_jpeg(np.ascontiguousarray(rough.clip(0, 255).astype(np.uint8).repeat(16, 0).repeat(16, 1)))


def write_world(folder: Path, tasks: int = 3, max_turns: int = TURNS) -> Path:
    """Pictures, a task file and a configuration that serves them as split `train`; returns the latter."""
    panos = folder / "panos"
    panos.mkdir(parents=True)
    found = []
    for index in range(tasks):
        country, code, lat, lon = PLACES[index % 3]
        frames = []
        for number in range(1 + index % 2):  # every other task has one frame, where nobody can walk
            image_id = f"{1000 * (index + 1) + number}"
            (panos / f"{image_id}.jpg").write_bytes(panorama(int(image_id), COLOURS[index % 3]))
            frames.append({"image_id": image_id, "lat": lat + 1e-4 * number, "lon": lon, "is_pano": True})
            frames[-1] |= {"compass_angle": 10.0 * number, "captured_at": "2022-04"}
        row = {"task_index": index, "task_id": f"train-{index:05d}", "country": country, "frames": frames}
        row |= {"country_code": code, "sequence_id": f"s{index}", "provider": "mapillary", "start_frame": 0}
        row |= {"attribution": {"licence": "CC-BY-SA-4.0"}, "meta": {}}
        found.append(Task.model_validate(row))
    write_tasks(folder / "tasks.jsonl", found)
    split = {"tasks": str(folder / "tasks.jsonl"), "panos": str(panos)}
    body = {"splits": {"train": split}, "mode": "simulation", "play": "agentic", "max_turns": max_turns}
    config = folder / "config.json"
    config.write_text(json.dumps({**body, "view_px": 96, "max_concurrent": 16, "environment_version": "lab"}))
    return config


@contextmanager
def served(config: Path, port: int = 0) -> Iterator[ServerProcess]:
    """The environment of a configuration."""
    with ServerProcess(
        "env_service.server", ["--config", str(config), "--port", str(port)], name="environment"
    ) as server:
        yield server


def lab_run(**changes: Any) -> RunSpec:
    """Run 3 as the sandbox has it, cut down to two steps of one group of two."""
    small = {"steps": 2, "generations": 2, "tasks_per_step": 2, "per_device_batch": 4, "generation_batch": 4}
    own = {"max_turns": TURNS, "view_px": PX, **small, **changes}
    return RunSpec.model_validate({**load_runs("sandbox").get("run3").model_dump(), **own})


def rules(url: str, run: RunSpec | None = None, **changes: Any) -> Rules:
    """What rollouts at a service share."""
    run = run or lab_run()
    own = {"line": Line(url, attempts=4, wait_s=0.05), "tools": schema(url)["tools"], **changes}
    return Rules(
        **{"max_turns": run.max_turns, "view_px": run.view_px, "refusal_charge": run.refusal_charge, **own},
        curve=run.reward_curve(),
    )


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """An assistant's message with one call."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def scripted(player: TrainingEnvironment, index: int, dice: random.Random) -> list[dict[str, Any]]:
    """A whole conversation: often a look, mostly a guess, sometimes of another place."""
    talk = [{"role": "user", "content": player.reset(split="train", index=index)}]
    if dice.random() < 0.5:
        heading = dice.choice((0, 90, 180, 270))
        talk += [call("look", heading_deg=heading)]
        talk += [{"role": "tool", "name": "look", "content": player.look(heading)}]
    if dice.random() < 0.8:
        _, _, lat, lon = PLACES[index % 3 if dice.random() < 0.6 else dice.randrange(3)]
        talk += [call("submit_guess", lat=lat, lon=lon)]
        talk += [{"role": "tool", "name": "submit_guess", "content": player.submit_guess(lat, lon)}]
    return [*talk, {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]


def make_model(folder: Path, url: str, episodes: int = 48, steps: int = 100) -> Path:
    """A tiny model, taught on scripted episodes until it calls tools: seconds on one core."""
    import torch
    from transformers.utils.chat_template_utils import render_jinja_template
    from trl.chat_template_utils import qwen3_5_nothink_chat_template as template

    from resources.sandbox.vlm.architecture import Shape, build
    from resources.sandbox.vlm.processor import load_model, load_processor

    torch.set_num_threads(1)
    player, dice = TrainingEnvironment(rules(url)), random.Random(0)
    talks, texts, tools = [], [], []
    for number in range(episodes):
        talk = scripted(player, number % 3, dice)
        tools = player._definitions
        texts += render_jinja_template([talk], tools=tools, chat_template=template)[0]
        talks.append((talk, tools))
    player._close()
    phrases = {json.dumps(tool) for _, offered in talks for tool in offered}
    phrases |= {block["text"].split("\n")[0] for talk, _ in talks for block in talk[0]["content"][:1]}
    system = texts[0].split("</tools>")[1].split("<|im_end|>")[0].replace("</tool_call>", "<tool_call>")
    phrases |= {part for part in system.split("<tool_call>") if len(part) > 12}
    phrases |= {"assistant\n", "<think>\n\n</think>\n\n", "\n</parameter>\n</function>\n"}
    phrases |= {"\n<function=look>\n<parameter=heading_deg>\n", "\n</parameter>\n<parameter=lon>\n"}
    phrases |= {
        "\n<function=submit_guess>\n<parameter=lat>\n",
        *(f"{turns} turns left." for turns in range(7)),
    }
    build(folder, Shape(hidden=48, vision_hidden=32, vision_depth=1), texts, sorted(phrases))
    processor, model = load_processor(folder), load_model(folder)
    teach(model, [encoded(processor, talk, offered) for talk, offered in talks], steps)
    model.save_pretrained(folder)
    return folder


def encoded(processor: Any, talk: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
    """A conversation as a batch of one, with labels on what the assistant says."""
    batch = dict(
        processor.apply_chat_template(
            [talk], tools=tools, tokenize=True, return_dict=True, return_tensors="pt"
        )
    )
    ids, number = batch["input_ids"][0].tolist(), processor.tokenizer.convert_tokens_to_ids
    batch["labels"], on = batch["input_ids"].clone().fill_(-100), False
    for at, token in enumerate(ids):
        if on:
            batch["labels"][0, at] = token
        if token == number("<|im_end|>"):
            on = False
        on = on or (token == number("assistant\n") and ids[at - 1] == number("<|im_start|>"))
    return batch


def teach(model: Any, talks: Sequence[dict[str, Any]], steps: int, at_once: int = 8) -> None:
    """Plain supervised steps."""
    import torch

    dice, optimizer = random.Random(1), torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98))
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / 10) * max(0.05, 1 - step / steps)
        model(**batched(dice.sample(list(talks), at_once))).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def batched(talks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Conversations padded on the right to one length."""
    import torch

    longest = max(talk["input_ids"].shape[1] for talk in talks)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100, "mm_token_type_ids": 0}
    batch = {
        name: torch.cat(
            [torch.nn.functional.pad(t[name], (0, longest - t[name].shape[1]), value=value) for t in talks]
        )
        for name, value in fill.items()
    }
    return batch | {name: torch.cat([t[name] for t in talks]) for name in ("pixel_values", "image_grid_thw")}
