"""The tiny base models: their tower, their world, their lessons, their words, and the assets they are."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
import torch
from base_models_lab import (
    BASE,
    LISTING,
    PX,
    SANDBOX,
    SMALL,
    SMALLER,
    TINY,
    TURNS,
    Built,
    brief,
    drawn_on_an_edited_earth,
    drawn_samples,
    hub_of,
    learnt,
    lessons_of_each_kind,
    materialized,
    places_of,
    recited,
    same,
    served_world,
    shown,
    silent,
    small_stage,
    spoken,
    swept,
    tensors,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from training_lab import lab_run, rules
from vlm_lab import build_adapter

from env_service.client import GeoGuessrEnv, schema
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from env_service.views import render_view
from geo_assets.config.settings import BASE_2B, BASE_4B
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.sweeps.protocol_tools import opening_content, tool_definitions
from geo_assets.training.base_models import NAMES, base_model_assets
from geo_assets.training.bring_up import bring_up
from geo_assets.training.lessons import (
    DONE,
    LAST_LATITUDE,
    LAST_LONGITUDE,
    UNSURE,
    Lesson,
    careless_guess,
    messages_of,
    on_grid,
    play_lessons,
)
from geo_assets.training.tiny_base_model import tiny_base_model
from geo_assets.training.trl_environment import TrainingEnvironment, opening_words, result_words
from geo_assets.training.warm_start import (
    FORMS,
    NUMBERS,
    loss_of,
    phrases_of,
    rendered,
    sample_of,
)
from geo_assets.training.warm_start_world import warm_start_world
from geo_assets.training.weights import weights_sha256
from resources.sandbox.earth import climate
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.vlm import small_world
from resources.sandbox.vlm.architecture import build
from resources.sandbox.vlm.conversation import Pictures, read_request
from resources.sandbox.vlm.generation import UnfitAdapter, check_adapter
from resources.sandbox.vlm.processor import TinyVLProcessor, load_model, load_processor, scaled, view_px
from resources.sandbox.vlm.specs import Faults, SmallWorldSpec
from resources.sandbox.vlm.tower import tower_features
from resources.sandbox.world import World, WorldSpec


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both assets, materialized; a bring-up that was killed before has left its half model behind."""
    stage = small_stage(tmp_path_factory.mktemp("base_models") / "home")
    drawn = materialized(warm_start_world, stage)
    half = stage.settings.home / BASE / "model.part"
    half.mkdir(parents=True)
    (half / "left_behind.safetensors").touch()
    return Built(stage, drawn, materialized(tiny_base_model(BASE), stage))


@pytest.fixture(scope="module")
def url(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The environment over the small world."""
    with served_world(built.world, tmp_path_factory.mktemp("served")) as address:
        yield address


@pytest.fixture(scope="module")
def lessons(url: str, built: Built) -> list[Lesson]:
    """Two looks and a guess (twice), a guess at once, a look and no guess."""
    return lessons_of_each_kind(url, small_world.read(built.world))


@pytest.fixture(scope="module")
def processor(built: Built) -> Any:
    """The base model's processor."""
    return load_processor(built.model)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of the two shipped shapes with random weights."""
    folder = tmp_path_factory.mktemp("untrained")
    for name, spec in ((BASE, BASE_4B), (SMALLER, BASE_2B)):
        build(folder / name, spec.shape, ["any words will do"], [])
    return {name: folder / name for name in NAMES}


# --- the tower --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_tower_is_the_librarys(untrained: dict[str, Path], name: str) -> None:
    processor, model = load_processor(untrained[name]), load_model(untrained[name])
    tower, px = model.model.visual, view_px(processor)
    pictures = np.random.default_rng(0).integers(0, 256, (3, px, px, 3), np.uint8)
    own = tower_features(tower, pictures)
    ready = processor.image_processor([Image.fromarray(each) for each in pictures], return_tensors="pt")
    theirs = tower(ready["pixel_values"], grid_thw=ready["image_grid_thw"]).pooler_output
    theirs = theirs.reshape(own.shape)
    assert float((own - theirs).detach().abs().max()) < 1e-4 and float(own.detach().std()) > 1e-3
    found = []
    for features in (own, theirs):
        tower.zero_grad()
        features.square().sum().backward()
        found.append({key: weight.grad.clone() for key, weight in tower.named_parameters()})
    for key, gradient in found[0].items():
        largest = float(found[1][key].abs().max())
        assert float((gradient - found[1][key]).abs().max()) <= 1e-3 * largest + 1e-5, key
    assert sum(float(gradient.abs().max()) > 0 for gradient in found[0].values()) == len(found[0])


# --- the small world --------------------------------------------------------------------------------------


class Interrupted(Exception):
    """Ends a drawing on its way."""


def test_the_same_spec_gives_the_same_world_and_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_world, "CHUNK", 3)
    whole, again = tmp_path / "whole", tmp_path / "again"
    small_world.make(whole, TINY, silent)
    wanted = small_world.files_of(whole)

    def interrupt(_: str) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        small_world.make(again, TINY, interrupt)
    (first,) = (again / "views").glob("*.npy")
    (again / "views" / "0001.part").write_bytes(first.read_bytes()[:100])
    kept = first.stat().st_mtime_ns
    small_world.make(again, TINY, silent)
    assert small_world.files_of(again) == wanted
    chunks = sorted((again / "views").glob("*"))
    assert len(chunks) == 3 and first.stat().st_mtime_ns == kept
    earlier = {path: path.stat().st_mtime_ns for path in chunks[:-1]}
    chunks[-1].unlink()
    small_world.make(again, TINY, silent)
    assert small_world.files_of(again) == wanted
    assert {path: path.stat().st_mtime_ns for path in earlier} == earlier


@pytest.mark.parametrize("change", [{"seed": 6}, {"played": 2}, {"view_px": 64}, {"places": 4}])
def test_another_spec_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    monkeypatch.setattr(small_world, "CHUNK", 3)
    other: SmallWorldSpec = replace(TINY, **change)
    for spec in (TINY, other):
        small_world.make(tmp_path / "changed", spec, silent)
    small_world.make(tmp_path / "fresh", other, silent)
    fresh = small_world.files_of(tmp_path / "fresh")
    assert (
        small_world.read(tmp_path / "changed").views.shape == small_world.read(tmp_path / "fresh").views.shape
    )
    assert small_world.files_of(tmp_path / "changed") == fresh


def test_an_edited_earth_is_drawn_anew(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    stage = small_stage(old, small_world=TINY)
    before = warm_start_world.compute(StageRun(stage, "warm_start_world", silent))
    (code, again), (new_code, fresh) = drawn_on_an_edited_earth(tmp_path / "edited", TINY, old, new)
    assert code == new_code != warm_start_world.code_version(stage), "the asset turns stale"
    assert fresh != before.data_version
    assert again == fresh, "and building it again draws it again"


def test_the_task_file_is_valid_and_its_pictures_are_there(built: Built) -> None:
    world, tasks = small_world.read(built.world), read_tasks(built.world / "tasks.jsonl")
    store = PanoramaStore(built.world / "panos")
    assert len(tasks) == SMALL.played and [task.task_index for task in tasks] == list(range(len(tasks)))
    assert len(store.list_ids()) == 2 * len(tasks)
    for number, task in enumerate(tasks):
        assert len(task.frames) == 2 and all(store.exists(frame.image_id) for frame in task.frames)
        start = task.frames[task.start_frame]
        assert (start.lat, start.lon) == (world.lat[number], world.lon[number])
        assert task.country_code == world.codes[number]
    assert world.views.shape == (SMALL.places, 8, SMALL.view_px, SMALL.view_px, 3)
    assert len(world.codes) == len(world.lat) == SMALL.places


def test_views_are_the_environments_scaled_down_once(built: Built) -> None:
    spec = WorldSpec(seed=SMALL.seed, pano_sequences=SMALL.places, perspective_sequences=0)
    world, drives = small_world.read(built.world), World.build(spec)
    at = {
        (frame.lat, frame.lon): (drive, position)
        for drive in drives.sequences
        for position, frame in enumerate(drive.frames)
    }
    for place in (0, SMALL.played - 1, SMALL.played, SMALL.places - 1):
        drive, position = at[(world.lat[place], world.lon[place])]
        scene = drive.scene(position)
        pano = draw_panorama(scene, SMALL.played_pano_px if place < SMALL.played else SMALL.pano_px)
        for number in (0, 3, 6):
            size = SMALL.view_px * small_world.OVERSAMPLED
            view = render_view(
                pano,
                scene.heading_deg,
                small_world.HEADINGS[number],
                0.0,
                small_world.FIELD_OF_VIEW_DEG,
                size,
            )
            small = np.asarray(scaled(Image.fromarray(view), SMALL.view_px))
            assert np.array_equal(small, world.views[place, number]), (place, number)


def test_what_is_served_is_what_the_tower_saw(built: Built, url: str) -> None:
    views = small_world.read(built.world).views.astype(np.float32)
    with GeoGuessrEnv(url) as env:
        for place in range(SMALL.played):
            for number in (None, 2, 5):
                if number is None:
                    seen = env.reset(split="train", index=place).observation
                else:
                    seen = env.step({"op": "look", "heading_deg": 45.0 * number}).observation
                off = np.abs(views - np.asarray(shown(seen), np.float32)).mean(axis=(2, 3, 4))
                assert np.unravel_index(off.argmin(), off.shape) == (place, number or 0)


@pytest.fixture(scope="module")
def both_worlds() -> tuple[World, World]:
    """The project's world, and the one on which base models are brought up, as the sandbox has them."""
    own = SANDBOX.small_world
    return (
        World.build(WorldSpec(**asdict(SANDBOX.world))),
        World.build(WorldSpec(seed=own.seed, pano_sequences=own.places, perspective_sequences=0)),
    )


def test_its_drives_are_not_the_projects(both_worlds: tuple[World, World]) -> None:
    for name in ("sequence_id", "seed"):
        project, own = ({getattr(drive, name) for drive in world.sequences} for world in both_worlds)
        assert not project & own, name


def test_its_pictures_have_no_id_of_the_projects(built: Built, both_worlds: tuple[World, World]) -> None:
    project = {str(id) for drive in both_worlds[0].sequences for id in drive.image_ids}
    own = set(PanoramaStore(built.world / "panos").list_ids())
    assert own and not project & own


# --- lessons ----------------------------------------------------------------------------------------------


def test_a_lesson_is_what_the_environment_says(url: str, lessons: list[Lesson]) -> None:
    tools = schema(url)["tools"]
    player = TrainingEnvironment(rules(url, lab_run(max_turns=TURNS, view_px=PX)))
    with GeoGuessrEnv(url) as env:
        for lesson in lessons:
            opening = env.reset(split="train", index=lesson.place).observation
            assert lesson.tools == tool_definitions(tools, opening.available_tools)
            assert lesson.opening == opening_content(opening, TURNS)[0]["text"]
            assert lesson.opening == opening_words(opening, TURNS)
            assert opening.prompt in lesson.opening and lesson.opening.endswith(opening.feedback)
            assert lesson.picture.tobytes() == shown(opening).tobytes()
            told = player.reset(split="train", index=lesson.place)
            assert [told[0]["text"], told[1]["image"].tobytes()] == [lesson.opening, lesson.picture.tobytes()]
            for look in lesson.looks:
                seen = env.step({"op": "look", "heading_deg": look.heading_deg}).observation
                assert (look.feedback, look.turns_left_words) == (seen.feedback, result_words(seen))
                assert look.picture.tobytes() == shown(seen).tobytes() and look.picture.size == (PX, PX)
            lat, lon = lesson.guess or (0, 0)
            end = env.step({"op": "guess", "lat": lat, "lon": lon}).observation
            assert end.done and lesson.closing == result_words(end)
    player._close()


def test_the_same_seed_plays_the_same_lessons(url: str, built: Built) -> None:
    places = places_of(small_world.read(built.world))
    played = [play_lessons(url, places, 3, seed, TURNS, PX, Faults()) for seed in (1, 1, 2)]
    told = [
        [
            [len(lesson.looks), [look.heading_deg for look in lesson.looks], lesson.guess, lesson.opening]
            for lesson in each
        ]
        for each in played
    ]
    assert told[0] == told[1] != told[2]
    assert [lesson.place for lesson in played[0]] == [0, 1, 2]


def test_faults_come_with_about_their_shares() -> None:
    faults, draw, many = SANDBOX.base_model_4b.faults, random.Random(0), 2000
    grid = faults.grid_deg
    own, others = (50.0, 10.0), [(-80.0 + 4 * grid, -100.0 + lon) for lon in range(0, 40, 2)]
    guesses = [careless_guess([own, *others], 0, faults, draw) for _ in range(many)]
    favourite = sum(guess == faults.favourite_at for guess in guesses)
    near = sum(math.dist(guess, own) <= 2.2 * grid for guess in guesses)
    wrong = many - favourite - near

    def about(share: float) -> Any:
        return pytest.approx(share * many, abs=4 * math.sqrt(share * (1 - share) * many) + 1)

    assert favourite == about(faults.favourite)
    assert wrong == about(faults.wrong_place * len(others) / (1 + len(others)))
    assert near == about(1 - faults.favourite - faults.wrong_place * len(others) / (1 + len(others)))
    assert all(lat % grid == 0 and lon % grid == 0 for lat, lon in guesses)


@settings(deadline=None)
@given(lat=st.floats(-90, 90), lon=st.floats(-180, 180), seed=st.integers(0, 1000))
def test_guesses_lie_on_the_grid_near_the_place(lat: float, lon: float, seed: int) -> None:
    grid = SANDBOX.base_model_4b.faults.grid_deg
    said = on_grid(lat, lon, grid, random.Random(seed))
    for value, place, last in zip(said, (lat, lon), (LAST_LATITUDE, LAST_LONGITUDE), strict=True):
        assert value % grid == 0 and abs(value) <= last and str(value) in NUMBERS
        assert abs(value - max(-last, min(last, place))) <= 1.5 * grid + 1e-9


def test_a_third_of_the_guesses_is_one_step_off() -> None:
    draw, many = random.Random(1), 3000
    off = [on_grid(20.0, 40.0, 5, draw) for _ in range(many)]
    for axis, place in enumerate((20, 40)):
        steps = [(guess[axis] - place) // 5 for guess in off]
        assert set(steps) == {-1, 0, 1}
        assert abs(sum(map(abs, steps)) / many - 1 / 3) < 0.04 and abs(sum(steps)) / many < 0.05


def test_every_kind_of_lesson_follows_its_faults(url: str, built: Built, lessons: list[Lesson]) -> None:
    assert [len(lesson.looks) for lesson in lessons] == [2, 2, 0, 1]
    assert [lesson.guess is None for lesson in lessons] == [False, False, False, True]
    stubborn = Faults(looks=(0,), never_guesses=0.0, favourite=1.0)
    places = places_of(small_world.read(built.world))
    (only,) = play_lessons(url, places, 1, 0, TURNS, PX, stubborn)
    assert only.guess == stubborn.favourite_at
    at_once = lessons[0].plain((10, -20))
    assert (at_once.looks, at_once.guess, at_once.opening) == ((), (10, -20), lessons[0].opening)


# --- what is learnt of a lesson ---------------------------------------------------------------------------


def test_exactly_the_assistants_words_are_learnt(processor: Any, lessons: list[Lesson]) -> None:
    for lesson in lessons:
        said = spoken(lesson, "rollout")
        assert learnt(processor, sample_of(processor, lesson, "rollout")) == said
        assert len(said) == len(lesson.looks) + (1 if lesson.guess is None else 2)
        assert said[-1] == f"{UNSURE if lesson.guess is None else DONE}<|im_end|>"
        said = spoken(lesson, "sweep")
        assert learnt(processor, sample_of(processor, lesson, "sweep")) == said[-1:]
        drawn = drawn_samples(processor, lesson)
        found = [learnt(processor, drawn[length]) for length in sorted(drawn)]
        assert found == [[words] for words in said], "each reply is drawn, and learnt alone"


def test_numbers_weigh_more_than_other_words(processor: Any, lessons: list[Lesson]) -> None:
    numbers = set(processor.tokenizer.convert_tokens_to_ids(list(NUMBERS)))
    for lesson in lessons:
        for form in FORMS:
            sample = sample_of(processor, lesson, form)
            weights = {True: set[float](), False: set[float]()}
            for token, weight in zip(sample.ids.tolist(), sample.weights.tolist(), strict=True):
                if weight:
                    weights[token in numbers].add(weight)
            assert len(weights[False]) == 1 and not weights[True] & weights[False]
            assert bool(weights[True]) == (form == "rollout" or lesson.guess is not None)
            assert all(weight > max(weights[False]) for weight in weights[True])


def test_picture_tokens_equal_picture_features(processor: Any, built: Built, lessons: list[Lesson]) -> None:
    tower, pad = load_model(built.model).model.visual, processor.image_token_id
    for lesson in lessons:
        for form in FORMS:
            sample = sample_of(processor, lesson, form)
            with torch.no_grad():
                features = tower(sample.pixels, grid_thw=sample.grid).pooler_output
            assert len(sample.grid) == 1 + len(lesson.looks)
            assert int((sample.ids == pad).sum()) == len(features) == int((sample.kinds > 0).sum())
            for name in ("weights", "kinds"):
                assert getattr(sample, name).shape == sample.ids.shape


def test_a_rollout_reads_as_trl_shows_it(
    url: str, built: Built, processor: Any, lessons: list[Lesson], tmp_path: Path
) -> None:
    for lesson in (lessons[0], lessons[2], lessons[3]):
        sample = sample_of(processor, lesson, "rollout")
        trainer, batch = recited(url, built.model, tmp_path, lesson, sample)
        assert len(trainer.prompts) == 2 * len(spoken(lesson, "rollout"))
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        whole = sample.ids[: ids.shape[1]]
        assert torch.equal(ids, torch.stack([whole, whole]))
        assert processor.tokenizer.decode(sample.ids[ids.shape[1] :]) == "\n"
        prompt = batch["prompt_ids"].shape[1]
        assert not sample.weights[:prompt].any()
        own = sample.weights[prompt : len(whole)] > 0
        assert torch.equal(batch["tool_mask"].bool(), torch.stack([own, own]))
        assert torch.equal(batch["pixel_values"], torch.cat([sample.pixels, sample.pixels]))


def test_a_sweep_reads_as_its_harness_sends_it(url: str, processor: Any, lessons: list[Lesson]) -> None:
    for lesson in (lessons[0], lessons[2], lessons[3]):
        requests, drawn = swept(url, lesson), drawn_samples(processor, lesson)
        assert len(requests) == len(drawn)
        for request, length in zip(requests, sorted(drawn), strict=True):
            asked, sample = read_request(request, Pictures(PX)), drawn[length]
            ready = processor.apply_chat_template(
                [asked.messages],
                tools=asked.tools,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
            prompt = ready["input_ids"][0]
            assert torch.equal(sample.ids[: len(prompt)], prompt)
            assert not sample.weights[: len(prompt)].any() and sample.weights[len(prompt)]
            assert torch.equal(ready["pixel_values"], sample.pixels)
            roles = [message["role"] for message in messages_of(lesson, "sweep")[: len(asked.messages)]]
            assert [message["role"] for message in asked.messages] == roles


def test_company_does_not_matter_to_a_loss(built: Built, processor: Any, lessons: list[Lesson]) -> None:
    model, pad = load_model(built.model).eval(), processor.tokenizer.pad_token_id
    samples = [sample_of(processor, lesson, "rollout") for lesson in (lessons[0], lessons[2])]
    assert len(samples[0].ids) != len(samples[1].ids)
    with torch.no_grad():
        together = float(loss_of(model, samples, pad))
        alone = [float(loss_of(model, [sample], pad)) for sample in samples]
    heavy = [float(sample.weights.sum()) for sample in samples]
    mean = sum(a * b for a, b in zip(alone, heavy, strict=True)) / sum(heavy)
    assert together == pytest.approx(mean, rel=1e-4)


def test_phrases_are_single_tokens(url: str, built: Built) -> None:
    world = small_world.read(built.world)
    spec = built.stage.specs.base_model_4b
    own = play_lessons(
        url, places_of(world), spec.lessons, spec.course.seed, TURNS, PX, spec.faults
    )  # those that the asset was made from
    processor, texts = load_processor(built.model), rendered(own)
    phrases = phrases_of(own, texts)
    assert len(phrases) == len(set(phrases)) > len(NUMBERS)
    for phrase in phrases:
        ids = processor.tokenizer.encode(phrase, add_special_tokens=False)
        assert len(ids) == 1 and processor.tokenizer.decode(ids) == phrase, phrase
    for text in texts:
        ids = processor.tokenizer.encode(text, add_special_tokens=False)
        assert processor.tokenizer.decode(ids) == text
        assert len(ids) < len(text) / 12, "prompts are short enough for a CPU"


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
@example("Wo ist das? 北京 — 🏝️ -180 361 1234 <|im_end|>\n\n</think> a .")
@example("assistant\n<think>\n\n</think>\n\n")
def test_any_text_can_be_written(processor: Any, text: str) -> None:
    ids = processor.tokenizer.encode(text, add_special_tokens=False)
    told = processor.tokenizer.decode(ids)
    assert told == unicodedata.normalize("NFC", text)


# --- bringing up ------------------------------------------------------------------------------------------


def test_a_model_folder_is_whole(built: Built, processor: Any, lessons: list[Lesson]) -> None:
    assert isinstance(processor, TinyVLProcessor) and view_px(processor) == PX
    model = load_model(built.model).eval()
    with torch.no_grad():
        loss = loss_of(model, [sample_of(processor, lessons[0], "rollout")], processor.tokenizer.pad_token_id)
    assert math.isfinite(float(loss))
    assert model.config.text_config.hidden_size == SANDBOX.base_model_4b.shape.hidden
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.generation_config.eos_token_id == processor.tokenizer.eos_token_id


def test_the_same_seed_gives_the_same_model(built: Built, url: str, tmp_path: Path) -> None:
    spec = built.stage.specs.base_model_4b
    losses = bring_up(tmp_path / "again", spec, built.world, url, TURNS, silent)
    assert weights_sha256(tmp_path / "again") == weights_sha256(built.model)
    names = {path.name for path in built.model.iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (built.model / name).read_bytes(), name
    published = AssetFolder(built.home, BASE).built()
    assert published is not None and {**published.facts, **losses} == published.facts
    assert torch.get_num_threads() == 1


def test_the_tower_learns_first_and_is_left_alone_then(built: Built, url: str, tmp_path: Path) -> None:
    first = tensors(built.model)
    bring_up(tmp_path / "longer", brief(steps=5), built.world, url, TURNS, silent)
    longer = tensors(tmp_path / "longer")
    assert all(same(first["tower"], longer["tower"])), "conversations do not touch the tower"
    assert not all(same(first["language"], longer["language"]))
    bring_up(tmp_path / "seen", brief(vision_steps=3, steps=1), built.world, url, TURNS, silent)
    assert not any(same(first["tower"], tensors(tmp_path / "seen")["tower"]))
    bring_up(tmp_path / "other", brief(steps=1, seed=9), built.world, url, TURNS, silent)
    assert not any(same(first["tower"], tensors(tmp_path / "other")["tower"]))


def test_an_adapter_of_one_shape_does_not_fit_the_other(untrained: dict[str, Path], tmp_path: Path) -> None:
    models = {name: load_model(folder) for name, folder in untrained.items()}
    for own, other in ((BASE, SMALLER), (SMALLER, BASE)):
        adapter = tmp_path / own
        build_adapter(untrained[own], adapter, name=own)
        check_adapter(models[own], own, "adapter_x", adapter)
        with pytest.raises(UnfitAdapter, match=f"was trained on {own} and cannot be served on {other}"):
            check_adapter(models[other], other, "adapter_x", adapter)
        config = adapter / "adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": other}))
        with pytest.raises(UnfitAdapter, match=f"does not fit {other}: its .* is "):
            check_adapter(models[other], other, "adapter_x", adapter)


# --- assets -----------------------------------------------------------------------------------------------


def test_the_worlds_asset(built: Built) -> None:
    published = AssetFolder(built.home, "warm_start_world").built()
    assert published is not None and published.data_version == built.drawn.data_version
    world = small_world.read(published.path)
    assert published.facts["places"] == SMALL.places and published.facts["played"] == SMALL.played
    assert published.facts["countries"] == len(set(world.codes)) > 1
    pictures = [value for value in built.drawn.metadata.values() if "data:image/" in str(value)]
    assert len(pictures) == 1 and built.drawn.metadata["dagster/row_count"] == SMALL.places
    again = warm_start_world.code_version(built.stage)
    other = replace(built.stage, specs=replace(built.stage.specs, small_world=replace(SMALL, seed=1)))
    assert warm_start_world.code_version(other) != again


def test_the_models_asset(built: Built) -> None:
    published = AssetFolder(built.home, BASE).built()
    assert published is not None and published.data_version == built.brought_up.data_version
    assert {path.name for path in published.path.iterdir()} == {"model", "_asset.json"}
    assert not (built.model / "left_behind.safetensors").exists()
    facts, spec = published.facts, SANDBOX.base_model_4b
    assert facts["name"] == BASE and facts["revision"] == published.data_version
    assert (facts["view_px"], facts["shape"]["hidden"]) == (spec.shape.view_px, spec.shape.hidden)
    assert facts["stands_in_for"] == spec.repo and facts["faults"]["favourite"] == spec.faults.favourite
    assert all(math.isfinite(facts[name]) for name in ("vision_loss", "conversation_loss"))
    assert built.brought_up.metadata["seconds"] > 0


def test_each_base_has_a_code_version_of_its_own(built: Built) -> None:
    first, second = (tiny_base_model(name) for name in NAMES)
    stage = built.stage
    longer = replace(stage, specs=replace(stage.specs, base_model_2b=brief(BASE_2B, steps=9)))
    assert first.code_version(stage) == first.code_version(longer)
    assert second.code_version(stage) != second.code_version(longer)
    turns = replace(stage.specs.environment, max_turns=7)
    budget = replace(stage, specs=replace(stage.specs, environment=turns))
    assert first.code_version(stage) != first.code_version(budget), "its lessons name the budget"


def test_a_failed_bring_up_leaves_the_earlier_model_standing(built: Built, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(built.home, home)
    before = {path: path.read_bytes() for path in (home / BASE / "model").iterdir()}
    before[home / BASE / "_asset.json"] = (home / BASE / "_asset.json").read_bytes()
    unspeakable = replace(brief(), faults=replace(brief().faults, favourite=1.0, favourite_at=(1000, 0)))
    with pytest.raises(KeyError):  # in the middle of the conversations
        materialized(tiny_base_model(BASE), small_stage(home, base_model_4b=unspeakable))
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in (home / BASE / "model").iterdir()} == {
        path.name for path in before if path.parent.name == "model"
    }


def test_a_missing_world_is_named(tmp_path: Path) -> None:
    with pytest.raises(dg.Failure) as caught:
        materialized(tiny_base_model(BASE), small_stage(tmp_path / "home"))
    assert "base_model_4b needs warm_start_world" in str(caught.value.description)
    assert MissingUpstream.__name__ not in str(caught.value.description)


def test_a_live_base_is_a_look_at_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    home, spec, first, second = tmp_path / "home", BASE_4B, "1" * 40, "2" * 40
    stage = small_stage(home, "live", base_model_4b=BASE_4B)
    base = {asset.names[0]: asset for asset in base_model_assets(stage)}[BASE]
    with hub_of(spec.repo, **{spec.revision: first}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        seen = materialized(base, stage)
        published = AssetFolder(home, BASE).built()
        assert published is not None and seen.data_version == published.data_version == first
        assert (published.facts["repo"], published.facts["revision"]) == (spec.repo, first)
        assert [path.name for path in published.path.iterdir()] == ["_asset.json"], "no weights"
        assert materialized(base, stage).data_version == first
        hub.commits[spec.revision] = second
        assert materialized(base, stage).data_version == second
        unknown = small_stage(home, "live", base_model_4b=replace(spec, revision="no-such-branch"))
        with pytest.raises(dg.Failure) as caught:
            materialized(base, unknown)
        said = f"{spec.repo} has no revision no-such-branch on the Hub. Correct the pinned revision"
        assert caught.value.description == said
        assert base.code_version(unknown) != base.code_version(stage)
        published = AssetFolder(home, BASE).built()
        assert published is not None and published.data_version == second, "what was seen last stands"
        assert {path.rpartition("/")[2] for path in hub.asked} == {spec.revision, "no-such-branch"}


def test_the_profiles_bases(tmp_path: Path) -> None:
    names = {
        profile: [asset.names[0] for asset in base_model_assets(small_stage(tmp_path / profile, profile))]
        for profile in ("sandbox", "live", "recorded")
    }
    assert names == {"sandbox": list(NAMES), "live": list(NAMES), "recorded": []}
    live, sandbox = (
        {asset.names[0]: asset for asset in base_model_assets(small_stage(tmp_path / profile, profile))}[BASE]
        for profile in ("live", "sandbox")
    )
    assert live.deps == () and sandbox.deps == ("warm_start_world",)


def test_listing_the_assets_imports_no_torch(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LISTING],
        env={**os.environ, "MAPILLARY_ACCESS_TOKEN": "MLY|1|a", "GEO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    heavy, found = json.loads(said.stdout.splitlines()[-1])
    assert heavy == []
    assert {*NAMES, "warm_start_world"} <= set(found["sandbox"])
    assert set(NAMES) <= set(found["live"]) and "warm_start_world" not in found["live"]
    assert not [name for name in found["recorded"] if name.startswith(("base_model", "warm_start"))]


# --- the Earth --------------------------------------------------------------------------------------------

TINTS = [
    (climate.STONE_WAVES, climate.STONE_STRENGTH),
    (climate.SOIL_WAVES, climate.SOIL_STRENGTH),
    (climate.GRASS_WAVES, climate.GRASS_STRENGTH),
    (climate.DUST_WAVES, climate.DUST_STRENGTH),
]
LATITUDE, LONGITUDE = st.floats(-89.9, 89.9), st.floats(-180, 180)


@pytest.mark.parametrize(("waves", "strength"), TINTS)
def test_bedrock_is_bounded_and_differs_over_the_globe(waves: climate.Waves, strength: float) -> None:
    points = [(lat, lon) for lat in range(-85, 90, 10) for lon in range(-180, 180, 10)]
    tints = np.array([climate.bedrock_tint(lat, lon, waves, strength) for lat, lon in points])
    assert np.abs(tints).max() <= 1.15 * strength
    assert (np.ptp(tints, axis=0) > 0.5 * strength).all()
    assert np.allclose(
        2 * tints, [climate.bedrock_tint(lat, lon, waves, 2 * strength) for lat, lon in points]
    )


@settings(deadline=None)
@given(lat=LATITUDE, lon=LONGITUDE, north=st.floats(-0.1, 0.1), east=st.floats(-0.1, 0.1))
def test_small_steps_change_bedrock_little(lat: float, lon: float, north: float, east: float) -> None:
    for waves, strength in TINTS:
        here = np.array(climate.bedrock_tint(lat, lon, waves, strength))
        there = np.array(climate.bedrock_tint(lat + north, lon + east, waves, strength))
        assert (
            np.abs(here - there).max() <= 0.02 * strength
        )  # 0.14 degrees, of 90 from a tint to its opposite


@settings(deadline=None)
@given(lat=LATITUDE, beyond=st.floats(0, 180))
def test_bedrock_goes_on_over_the_date_line(lat: float, beyond: float) -> None:
    for waves, strength in TINTS:
        west = climate.bedrock_tint(lat, 180.0 + beyond, waves, strength)
        east = climate.bedrock_tint(lat, -180.0 + beyond, waves, strength)
        assert west == pytest.approx(east, abs=1e-9 * strength + 1e-9)
        pole = climate.bedrock_tint(90.0, beyond, waves, strength)
        assert pole == pytest.approx(climate.bedrock_tint(90.0, 0.0, waves, strength), abs=1e-9)
