"""The teacher's lessons: what the environment says, and what a base model learns of it."""

import math
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from base_models_lab import (
    PX,
    SANDBOX,
    TURNS,
    Built,
    drawn_samples,
    learnt,
    places_of,
    recited,
    shown,
    spoken,
    swept,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from training_lab import lab_run, rules

from env_service.client import GeoGuessrEnv, schema
from geo_assets.sweeps.protocol_tools import opening_content, tool_definitions
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
from geo_assets.training.trl_environment import TrainingEnvironment, opening_words, result_words
from geo_assets.training.warm_start import (
    FORMS,
    NUMBERS,
    loss_of,
    phrases_of,
    rendered,
    sample_of,
)
from resources.sandbox.vlm import small_world
from resources.sandbox.vlm.conversation import Pictures, read_request
from resources.sandbox.vlm.processor import load_model, load_processor
from resources.sandbox.vlm.specs import Faults

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
