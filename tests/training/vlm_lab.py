"""A tiny base model that has learnt to look or guess, and adapters on it: real weights, made in seconds."""

import base64
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers.utils.chat_template_utils import render_jinja_template
from trl.chat_template_utils import qwen3_5_nothink_chat_template

from env_service.client import GeoGuessrEnv, schema
from geo_assets.lineage.folders import AssetFolder, Published
from geo_assets.sweeps.protocol_tools import opening_content, tool_definitions
from resources.sandbox.vlm.architecture import Shape, build
from resources.sandbox.vlm.processor import load_model, load_processor

BASE, ADAPTER = "base_model_4b", "adapter_run3"
TARGETS = r".*language_model.*(_proj|in_proj_\w+)$"
torch.set_num_threads(1)  # two on busy cores were seven times slower
STEPS, BATCH, PEAK = 120, 8, 6e-3

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]]


def data_url(seed: int, px: int = 128, form: str = "JPEG") -> str:
    """A picture of noise as a data: address."""
    noise = np.random.default_rng(seed).integers(0, 256, (px, px, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def asked(words: str, *seeds: int) -> Messages:
    """An opening message with pictures of noise."""
    pictures = [{"type": "image_url", "image_url": {"url": data_url(seed)}} for seed in seeds]
    return [{"role": "user", "content": [{"type": "text", "text": words}, *pictures]}]


def called(name: str, **arguments: Any) -> dict[str, Any]:
    """An assistant's message with one call, for the template."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def opening_of(env_url: str) -> tuple[Messages, Tools]:
    """The opening of the first eval task as the harness sends it."""
    tools = schema(env_url)["tools"]
    with GeoGuessrEnv(env_url) as env:
        seen = env.reset(split="eval", index=0).observation
    return [{"role": "user", "content": opening_content(seen, 12)}], tool_definitions(
        tools, seen.available_tools
    )


def build_base(folder: Path, opening: Messages, tools: Tools, seed: int = 0, hidden: int = 64) -> None:
    """A model that answers most openings with a look or a guess, not always the same, and ends its turn."""
    text = next(part for part in opening[0]["content"] if part["type"] == "text")["text"]
    prompt = [{"role": "user", "content": [{"type": "text", "text": text}, {"type": "image"}]}]
    dice = random.Random(seed)
    replies = [called("look", heading_deg=dice.choice((0, 90, 180))) for _ in range(24)]
    replies += [
        called("submit_guess", lat=dice.randrange(-60, 60), lon=dice.randrange(-99, 99)) for _ in range(40)
    ]
    rendered = render_jinja_template(
        [[*prompt, reply] for reply in replies], tools=tools, chat_template=qwen3_5_nothink_chat_template
    )[0]
    system, _, rest = rendered[0].partition("<|im_start|>user\n")
    phrases = [system.removeprefix("<|im_start|>").removesuffix("<|im_end|>\n"), text[: text.index("\n")]]
    build(folder, Shape(hidden=hidden), [*rendered, rest], phrases, seed)
    _teach(folder, rendered, seed)


def _teach(folder: Path, rendered: Sequence[str], seed: int) -> None:
    processor, model = load_processor(folder), load_model(folder)
    dice, noise = random.Random(seed), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK)
    model.train()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / 10) * (1.0 - step / STEPS)
        texts = dice.sample(list(rendered), BATCH)
        pictures = [Image.fromarray(noise.integers(0, 256, (64, 64, 3), np.uint8)) for _ in range(BATCH)]
        batch = processor(text=texts, images=pictures, padding=True, return_tensors="pt")
        labels = batch["input_ids"].clone()
        for row, ids in enumerate(labels):
            labels[row, : _reply_start(processor, ids.tolist())] = -100
        labels[batch["attention_mask"] == 0] = -100
        loss = model(**batch, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def _reply_start(processor: Any, ids: list[int]) -> int:
    """Where the last turn's words begin: behind the closed thoughts."""
    closed = processor.tokenizer.convert_tokens_to_ids("</think>")
    return len(ids) - ids[::-1].index(closed) + 1


def build_adapter(base: Path, folder: Path, name: str = BASE, strength: float = 0.3, seed: int = 1) -> None:
    """A LoRA adapter with random weights; at strength 0 it changes nothing."""
    torch.manual_seed(seed)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, base_model_name_or_path=name)
    model = get_peft_model(load_model(base), config)
    for key, weight in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(weight, std=strength * 0.1)
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder)


def publish_base(home: Path, opening: Messages, tools: Tools, name: str = BASE) -> Published:
    """A base model as its asset publishes it."""
    folder = AssetFolder(home, name)
    build_base(folder.path / "model", opening, tools)
    return folder.publish("base-1", {"name": name, "repo": f"geo-sandbox/{name}", "revision": "base-1"})


def publish_adapter(home: Path, version: str = "adapter-1", name: str = ADAPTER, **changes: Any) -> Published:
    """An adapter as its asset publishes it."""
    folder = AssetFolder(home, name)
    build_adapter(home / BASE / "model", folder.path / "adapter", **changes)
    config = folder.path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"revision": "base-1"}))
    return folder.publish(version, {"base": BASE, "base_version": "base-1"})
