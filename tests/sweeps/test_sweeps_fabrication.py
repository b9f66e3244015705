"""Fabrication: the environment's own sentences, written by a model that was never told them."""

import re
from itertools import pairwise
from typing import Any

import pytest
from sweeps_lab import Lab

from env_service.client import GeoGuessrEnv
from geo_assets.sweeps.protocol_tools import budget
from geo_assets.sweeps.records import Pose, Turn
from geo_assets.sweeps.results import PHRASES, fabricates

POSE = Pose(frame_index=0, heading_deg=0, pitch_deg=0, fov_deg=90)
PLAYS: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"op": "look", "heading_deg": 225.0, "pitch_deg": -12.0},
        {"op": "move", "direction": "forward", "meters": 10.0},
        {"op": "move", "direction": "forward", "meters": 100.0},
        {"op": "move", "direction": "forward"},
        {"op": "pin", "lat": 50.8, "lon": 4.3, "label": "here"},
        {"op": "pin", "lat": -45.0, "lon": -120.0, "label": "sea"},
        {"op": "view_map", "lat": 50.8, "lon": -4.3},
        {"op": "list_pins"},
        {"op": "fly"},
        {"op": "guess", "lat": 1.0, "lon": 2.0},
    ),
    ({"op": "guess", "response": "I cannot say."},),
    ({"op": "list_pins"},) * 12,
)


@pytest.fixture(scope="module")
def spoken(lab: Lab) -> list[list[str]]:
    """What the environment says in some episodes, its opening first."""
    said: list[list[str]] = []
    with GeoGuessrEnv(lab.env_url) as env:
        for actions in PLAYS:
            seen = env.reset(split="eval", index=0).observation
            said.append([f"{seen.prompt}\n{seen.feedback}"])
            said[-1] += [env.step(action).observation.feedback for action in actions]
    return said


def turn(text: str, feedback: str = "") -> Turn:
    return Turn(
        turn=1, reply=1, text=text, action={}, pose_before=POSE, pose_after=POSE, image_kind="none",
        image_sha256="", feedback=feedback, cost=0.0, turns_left=5, demanded=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", PHRASES)
def test_every_phrase_is_one_that_the_environment_says(name: str, spoken: list[list[str]]) -> None:
    """Of a phrase that it never says only models can be the source, however innocent."""
    said = [words for episode in spoken for words in episode]
    found = next((match for words in said if (match := re.search(PHRASES[name], words))), None)
    assert found is not None, said
    assert fabricates([turn(f"It says: {found.group()}.")], "")
    assert not fabricates([turn("", found.group()), turn(f"It said: {found.group()}.")], "")


def test_what_the_environment_has_said_may_be_quoted_its_opening_too(spoken: list[list[str]]) -> None:
    for opening, *answers in spoken:
        talk = [turn(opening, answers[0])]
        talk += [turn(said, after) for said, after in pairwise(answers)]
        assert not fabricates(talk, opening)
        assert fabricates(talk, "")


@pytest.mark.parametrize(
    "words",
    [
        budget(12),
        "I have 11 turns left, so I will look around first.",
        "Only 3 actions left for me.",
        "Plan. Pin 1: somewhere in Belgium, then compare.",
        "Pin 2 placed in the north; the nearest city is Lyon (about 20 km away).",
        "Next I turn: Facing E (90°), then Facing S (180°).",
        "My guess is 4 km away from the town.",
        "I moved 10 m forward. Removed the pins.",
    ],
)
def test_plans_and_the_stated_budget_are_the_models_own_words(words: str) -> None:
    assert not fabricates([turn(words)], "")
