"""Conversations on which a tiny base model is brought up: a careless teacher plays the real environment.

The teacher knows where it is and has the faults that were published of untrained models, on purpose: it looks
around too often, sometimes never guesses, and sometimes guesses on the wrong continent. Every word and every
picture of a lesson comes from the environment service over its socket, so the base model speaks the language
of the environment it will be swept and trained in.
"""

import base64
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from PIL import Image

from env_service.client import GeoGuessrEnv, schema
from env_service.models import GeoObservation
from geo_assets.sweeps.protocol_tools import GUESS_OP, GUESS_TOOL, picture_after, tool_definitions
from geo_assets.training.trl_environment import opening_words, result_words
from resources.sandbox.vlm.processor import scaled
from resources.sandbox.vlm.specs import Faults

Form = Literal["rollout", "sweep"]
Message = dict[str, Any]
LOOK_TOOL = "look"
DONE = "Done."
UNSURE = "I cannot tell where this is."
HEADING_STEP_DEG = 45
LAST_LATITUDE, LAST_LONGITUDE = 80, 175
SPLIT = "train"


@dataclass(frozen=True)
class Look:
    """One look: where to, what the environment said, and what it showed."""

    heading_deg: int
    feedback: str
    turns_left_words: str
    picture: Image.Image


@dataclass(frozen=True)
class Lesson:
    """One conversation, in no form yet.

    Attributes:
        place: index of the task.
        tools: tool definitions shown.
        opening: words of the opening message; `picture` follows them.
        looks: in order.
        guess: whole degrees, or None where the teacher never guesses.
        closing: what the environment says after the guess.
    """

    place: int
    tools: Sequence[Message]
    opening: str
    picture: Image.Image
    looks: tuple[Look, ...]
    guess: tuple[int, int] | None
    closing: str

    def plain(self, guess: tuple[int, int]) -> "Lesson":
        """The same opening, answered at once."""
        return replace(self, looks=(), guess=guess)


def play_lessons(
    url: str,
    places: Sequence[tuple[float, float]],
    wanted: int,
    seed: int,
    max_turns: int,
    px: int,
    faults: Faults,
    say: Callable[[str], None] = lambda _: None,
) -> list[Lesson]:
    """Play one lesson at each of the first `wanted` places.

    Args:
        url: the environment service over the small world.
        places: latitude and longitude of all its tasks, in order.
        seed: fixes the teacher's draws.
        max_turns: the turn budget told.
        px: edge to which pictures are scaled.
        say: told how far it is.
    """
    draw = random.Random(seed)
    lessons: list[Lesson] = []
    tools = schema(url)["tools"]
    with GeoGuessrEnv(url) as env:
        for place in range(wanted):
            opening = env.reset(split=SPLIT, index=place).observation
            looks = []
            for _ in range(draw.choice(faults.looks)):
                heading = draw.randrange(0, 360, HEADING_STEP_DEG)
                seen = env.step({"op": LOOK_TOOL, "heading_deg": float(heading)}).observation
                looks.append(Look(heading, seen.feedback, result_words(seen), _picture(seen, px)))
            guess = None
            if draw.random() >= faults.never_guesses:
                guess = careless_guess(places, place, faults, draw)
            end = env.step({"op": GUESS_OP, "lat": 0.0, "lon": 0.0}).observation
            lessons.append(
                Lesson(
                    place=place,
                    tools=tool_definitions(tools, opening.available_tools),
                    opening=opening_words(opening, max_turns),
                    picture=_picture(opening, px),
                    looks=tuple(looks),
                    guess=guess,
                    closing=result_words(end),
                )
            )
            if place % 100 == 99:
                say(f"lessons: {place + 1:,} of {wanted:,} played")
    return lessons


def careless_guess(
    places: Sequence[tuple[float, float]], place: int, faults: Faults, draw: random.Random
) -> tuple[int, int]:
    """What the teacher guesses: mostly where it is, sometimes its favourite spot or another place."""
    chance = draw.random()
    if chance < faults.favourite:
        return faults.favourite_at
    wrong = chance < faults.favourite + faults.wrong_place
    return on_grid(*places[draw.randrange(len(places)) if wrong else place], faults.grid_deg, draw)


def on_grid(lat: float, lon: float, grid_deg: int, draw: random.Random) -> tuple[int, int]:
    """A position as the teacher says it: on the grid, one step off in a third of the cases."""

    def near(value: float, last: int) -> int:
        step = draw.choice((-1, 0, 0, 0, 0, 1))
        return max(-last, min(last, grid_deg * (round(value / grid_deg) + step)))

    return near(lat, LAST_LATITUDE), near(lon, LAST_LONGITUDE)


def messages_of(lesson: Lesson, form: Form) -> list[Message]:
    """A lesson as template messages.

    Args:
        form: "rollout" has pictures in the tools' results, as TRL's loop; "sweep" has them in a user message
            behind, as the sweep's harness.
    """
    talk: list[Message] = [{"role": "user", "content": [text(lesson.opening), image(lesson.picture)]}]
    for look in lesson.looks:
        talk.append(call(LOOK_TOOL, heading_deg=look.heading_deg))
        if form == "rollout":
            content = [text(look.turns_left_words), image(look.picture)]
            talk.append({"role": "tool", "name": LOOK_TOOL, "content": content})
        else:
            talk.append({"role": "tool", "name": LOOK_TOOL, "content": [text(look.feedback)]})
            shown = [text(picture_after(LOOK_TOOL)), image(look.picture)]
            talk.append({"role": "user", "content": shown})
    if lesson.guess is None:
        talk.append({"role": "assistant", "content": [text(UNSURE)]})
        return talk
    talk.append(call(GUESS_TOOL, lat=lesson.guess[0], lon=lesson.guess[1]))
    if form == "rollout":
        talk.append({"role": "tool", "name": GUESS_TOOL, "content": [text(lesson.closing)]})
        talk.append({"role": "assistant", "content": [text(DONE)]})
    return talk


def call(tool: str, **arguments: int) -> Message:
    """An assistant message that makes one call."""
    function = {"name": tool, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def text(words: str) -> Message:
    """A content block of words."""
    return {"type": "text", "text": words}


def image(picture: Image.Image) -> Message:
    """A content block of a picture."""
    return {"type": "image", "image": picture}


def _picture(seen: GeoObservation, px: int) -> Image.Image:
    return scaled(Image.open(io.BytesIO(base64.b64decode(seen.image_base64))), px)
