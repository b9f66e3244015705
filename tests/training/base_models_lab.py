"""A very small world, a base model brought up on it in seconds, conversations, and a Hub on loopback."""

import base64
import io
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import torch
from datasets import Dataset
from PIL import Image
from safetensors.torch import load_file
from training_lab import lab_run, rules, served

from env_service.client import GeoGuessrEnv, schema
from env_service.models import GeoObservation
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import GeoAsset, Stage
from geo_assets.sweeps import protocol_tools
from geo_assets.training.base_models import NAMES
from geo_assets.training.configuration import load_base, lora_config, trainer_config
from geo_assets.training.lessons import UNSURE, Form, Lesson, messages_of, play_lessons
from geo_assets.training.step_log import StepLog
from geo_assets.training.trainer import RolloutTrainer
from geo_assets.training.trl_environment import TrainingEnvironment
from geo_assets.training.warm_start import Sample, sample_of
from resources.endpoints import Reply, ToolCall, Usage
from resources.sandbox.vlm.processor import scaled
from resources.sandbox.vlm.small_world import SmallWorld
from resources.sandbox.vlm.specs import BaseModelSpec, Faults, SmallWorldSpec

torch.set_num_threads(1)
SANDBOX = stage_specs("sandbox")
SMALL = replace(SANDBOX.small_world, places=12, played=6, pano_px=256, played_pano_px=256)
REPOSITORY = Path(__file__).resolve().parents[2]
BASE, SMALLER = NAMES
TINY = SmallWorldSpec(seed=5, places=7, played=3, view_px=32, pano_px=64, played_pano_px=128)
TURNS = SANDBOX.environment.max_turns
PX = SANDBOX.base_model_4b.shape.view_px


def brief(spec: BaseModelSpec = SANDBOX.base_model_4b, **course: Any) -> BaseModelSpec:
    """A shipped base model with as many lessons as the small world plays, and a course of a few steps."""
    few = {"vision_steps": 2, "steps": 4, "batch": 2, **course}
    return replace(spec, lessons=SMALL.played, course=replace(spec.course, **few))


def small_stage(home: Path, profile: str = "sandbox", **changes: Any) -> Stage:
    """A profile with a home of its own and the small world."""
    settings = load_settings({"GEO_PROFILE": profile, "GEO_HOME": str(home)})
    small = {"small_world": SMALL, "base_model_4b": brief(), "base_model_2b": brief(SANDBOX.base_model_2b)}
    return Stage(settings, replace(stage_specs(settings.profile), **{**small, **changes}))


@dataclass(frozen=True)
class Event:
    """What Dagster recorded of one materialization."""

    metadata: dict[str, Any]
    data_version: str


def materialized(asset: GeoAsset, stage: Stage) -> Event:
    """Materialize one asset over the parents that stand, by a real Dagster instance."""
    parents = [dg.AssetSpec(name) for name in asset.deps]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([*parents, asset.definition(stage)], instance=instance)
    (event,) = result.asset_materializations_for_node(asset.names[0])
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert event.tags is not None
    return Event(metadata, event.tags["dagster/data_version"])


def silent(_: str) -> None:
    """Told of progress, says nothing."""


@dataclass(frozen=True)
class Built:
    """A home with the small world and one base model, and what Dagster recorded of both."""

    stage: Stage
    drawn: Event
    brought_up: Event

    @property
    def home(self) -> Path:
        """The home."""
        return self.stage.settings.home

    @property
    def world(self) -> Path:
        """The small world's folder."""
        return self.home / "warm_start_world"

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.home / BASE / "model"


@contextmanager
def served_world(world: Path, folder: Path) -> Iterator[str]:
    """Address of the environment over a small world, as episodes of the sandbox are."""
    environment = SANDBOX.environment
    split = {"tasks": str(world / "tasks.jsonl"), "panos": str(world / "panos")}
    body = {"splits": {"train": split}, "mode": "simulation", "play": environment.mode}
    body |= {"max_turns": TURNS, "view_px": environment.view_px, "max_concurrent": 4}
    config = folder / "config.json"
    config.write_text(json.dumps({**body, "environment_version": "small-world-lab"}))
    with served(config) as server:
        yield server.url


def places_of(world: SmallWorld) -> list[tuple[float, float]]:
    """Latitude and longitude of all places."""
    return list(zip(world.lat.tolist(), world.lon.tolist(), strict=True))


def lessons_of_each_kind(url: str, world: SmallWorld) -> list[Lesson]:
    """Two looks and a guess; no look and a guess; one look and no guess."""
    kinds = [((2,), 0.0, 2), ((0,), 0.0, 1), ((1,), 1.0, 1)]
    lessons: list[Lesson] = []
    for looks, never, wanted in kinds:
        faults = Faults(looks=looks, never_guesses=never)
        lessons += play_lessons(url, places_of(world), wanted, len(lessons), TURNS, PX, faults)
    return lessons


def shown(seen: GeoObservation) -> Image.Image:
    """The picture of an observation as a tiny model sees it."""
    return scaled(Image.open(io.BytesIO(base64.b64decode(seen.image_base64))), PX)


def swept(url: str, lesson: Lesson) -> list[dict[str, Any]]:
    """The requests that a sweep's harness sends where a policy says what the lesson's teacher says."""
    asked: list[dict[str, Any]] = []
    calls = [ToolCall("c", "look", json.dumps({"heading_deg": look.heading_deg})) for look in lesson.looks]
    if lesson.guess is not None:
        lat, lon = lesson.guess
        calls.append(ToolCall("c", "submit_guess", json.dumps({"lat": lat, "lon": lon})))

    def ask(messages: Sequence[Any], tools: Sequence[Any]) -> Reply:
        asked.append({"model": "m", "messages": list(messages), "tools": list(tools)})
        call = calls[len(asked) - 1 : len(asked)]
        return reply("" if call else UNSURE, tuple(call))

    with GeoGuessrEnv(url) as env:
        protocol_tools.play(Session(env), ask, schema(url)["tools"], "train", lesson.place, TURNS)
    return asked


def reply(words: str, calls: tuple[ToolCall, ...]) -> Reply:
    """A policy's reply."""
    return Reply(words, calls, reasoning="", finish_reason="stop", usage=Usage(), model_reported="m")


@dataclass(frozen=True)
class Session:
    """A client as the harness plays it."""

    env: GeoGuessrEnv

    def reset(self, split: str, index: int) -> GeoObservation:
        """Start an episode."""
        return self.env.reset(split=split, index=index).observation

    def step(self, action: dict[str, Any]) -> GeoObservation:
        """Play an action."""
        return self.env.step(action).observation


class Recited(RolloutTrainer):
    """The project's trainer where the policy recites a sample: TRL's own loop gives it every prompt."""

    sample: Sample
    prompts: list[list[int]]

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        """What the sample says behind a prompt, up to the end of the turn."""
        whole, end = self.sample.ids.tolist(), self._tokenizer.eos_token_id
        said = []
        for prompt in prompt_ids:
            self.prompts.append(list(prompt))
            assert list(prompt) == whole[: len(prompt)], "TRL shows another history than the sample has"
            said.append(whole[len(prompt) : whole.index(end, len(prompt)) + 1])
        return said, None


def recited(url: str, model: Path, folder: Path, lesson: Lesson, sample: Sample) -> tuple[Recited, Any]:
    """A group of two rollouts of a lesson's task, played by TRL; the trainer and the batch it learns from."""
    run = lab_run(max_turns=TURNS, max_completion_length=2000)
    processor, policy = load_base(str(model), None)
    shared = rules(url, run)
    row = {"prompt": [{"role": "user", "content": ""}], "split": "train", "index": lesson.place}
    trainer = Recited(
        step_log=StepLog(folder, run.scale_rewards, shared.curve.name),
        model=policy,
        args=trainer_config(run, folder / "checkpoints", processor, 1),
        train_dataset=Dataset.from_list([row] * 2),
        processing_class=processor,
        environment_factory=lambda: TrainingEnvironment(shared),
        peft_config=lora_config(run),
    )
    trainer.sample, trainer.prompts = sample, []
    try:
        return trainer, trainer._generate_and_score_completions([dict(row), dict(row)])
    finally:
        trainer.close_environments()


def spoken(lesson: Lesson, form: Form) -> list[str]:
    """What the assistant says in a lesson, reply by reply, in the template's form."""
    said = []
    for message in messages_of(lesson, form):
        if message["role"] != "assistant":
            continue
        words = "".join(part["text"] for part in message["content"] or ())
        for entry in message.get("tool_calls", ()):
            function = entry["function"]
            arguments = "".join(
                f"<parameter={name}>\n{value}\n</parameter>\n"
                for name, value in function["arguments"].items()
            )
            words += f"<tool_call>\n<function={function['name']}>\n{arguments}</function>\n</tool_call>"
        said.append(f"{words}<|im_end|>")
    return said


def learnt(processor: Any, sample: Sample) -> list[str]:
    """The stretches of a sample that carry weight, decoded."""
    on = (sample.weights > 0).tolist()
    starts = [at for at in range(len(on)) if on[at] and not (at and on[at - 1])]
    ends = [at for at in range(len(on)) if on[at] and not (at + 1 < len(on) and on[at + 1])]
    ids = sample.ids.tolist()
    return [processor.tokenizer.decode(ids[a : b + 1]) for a, b in zip(starts, ends, strict=True)]


def drawn_samples(processor: Any, lesson: Lesson) -> dict[int, Sample]:
    """All samples of a lesson in the sweep's form, by length."""
    samples = [sample_of(processor, lesson, "sweep", random.Random(seed)) for seed in range(16)]
    return {len(sample.ids): sample for sample in samples}


def tensors(folder: Path) -> dict[str, dict[str, Any]]:
    """Weights by part: the tower's, and the language model's."""
    found = load_file(folder / "model.safetensors")
    parts: dict[str, dict[str, Any]] = {"tower": {}, "language": {}}
    for name, tensor in found.items():
        parts["tower" if ".visual." in name else "language"][name] = tensor
    assert all(parts.values())
    return parts


def same(one: dict[str, Any], two: dict[str, Any]) -> list[bool]:
    """Tensor by tensor."""
    assert set(one) == set(two)
    return [torch.equal(one[name], two[name]) for name in sorted(one)]


EDIT = """

_plain = climate_at


def climate_at(lat, lon, month):
    from dataclasses import replace

    return replace(_plain(lat, lon, month), soil=(220.0, 0.0, 220.0), grass=(220.0, 0.0, 220.0))
"""
DRAW = """
import sys
from dataclasses import replace
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun
from geo_assets.training.warm_start_world import warm_start_world as asset
from resources.sandbox.vlm.specs import SmallWorldSpec
specs = replace(stage_specs("sandbox"), small_world={spec!r})
for home in sys.argv[1:]:
    stage = Stage(load_settings({{"GEO_HOME": home}}), specs)
    made = asset.compute(StageRun(stage, "warm_start_world", lambda said: None))
    print(asset.code_version(stage), made.data_version)
"""
LISTING = """
import json, os, sys
from geo_assets.definitions import build_definitions, load_stage
found = {}
for profile in ("sandbox", "live", "recorded"):
    os.environ["GEO_PROFILE"] = profile
    keys = build_definitions(load_stage()).resolve_asset_graph().get_all_asset_keys()
    found[profile] = sorted(key.to_user_string() for key in keys)
heavy = [name for name in ("torch", "transformers", "trl", "peft", "tokenizers") if name in sys.modules]
print(json.dumps([heavy, found]))
"""
"""Lists the assets of all profiles, and which heavy packages that has imported."""


def drawn_on_an_edited_earth(tree: Path, spec: SmallWorldSpec, *homes: Path) -> list[list[str]]:
    """Code and data version of the small world per home, drawn by a copy of the code with other soil."""
    for package in ("env_service", "geo_assets", "resources"):
        shutil.copytree(REPOSITORY / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tree / "resources" / "sandbox" / "earth" / "climate.py").open("a") as source:
        source.write(EDIT)
    path = os.pathsep.join((str(tree), str(REPOSITORY / "tests" / "guard")))
    said = subprocess.run(
        [sys.executable, "-c", DRAW.format(spec=spec), *map(str, homes)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    return [line.split() for line in said.stdout.splitlines()]


@dataclass
class Hub:
    """A Hub with one model whose branches and commits can be moved; everything else it does not have."""

    repo: str
    commits: dict[str, str]
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body for a path."""
        self.asked.append(path)
        name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
        if name != self.repo or revision not in self.commits:
            code = "RevisionNotFound" if name == self.repo else "RepoNotFound"
            return 404, {"x-error-code": code}, {"error": "not found"}
        body = {"id": name, "sha": self.commits[revision], "lastModified": "2026-02-01T00:00:00.000Z"}
        body |= {"gated": False, "siblings": [{"rfilename": "model.safetensors"}]}
        return 200, {}, {**body, "config": {"architectures": ["Qwen3_5ForConditionalGeneration"]}}


@contextmanager
def hub_of(repo: str, **commits: str) -> Iterator[Hub]:
    """A Hub over real HTTP."""
    hub = Hub(repo, commits)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path)
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
