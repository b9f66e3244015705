"""Whether an endpoint sees: a colour swatch that the prompt cannot give away must be read correctly first.

A blind endpoint (pictures dropped on the way, a text-only model behind the name) plays on and gets a
plausible score, for the best guess without a picture is worth something. Each time three colours are drawn,
no two alike, and shown one by one under the same words: an endpoint that always says the same cannot pass,
and one that guesses passes once in 512 times.

A model too small to name colours is asked otherwise: its replies must change when another picture is put
under the same words (`pictures_change_replies`). That finds an endpoint that drops pictures, which is what
this guard is for, and says nothing about what the model makes of them.
"""

import base64
import random
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from env_service.errors import GeoError
from geo_assets.sweeps.prompts import prompt
from geo_assets.sweeps.served_models import NOISE_FACTOR, Opening, ServedModels
from resources.replies import Reply
from resources.swatches import COLOURS, swatch

SHOWN = 3
LEAST_DIFFERENCE = 1e-6
CALM = {"temperature": 0.0, "max_tokens": 8, "logprobs": True, "seed": 0}

AskPlainly = Callable[[Sequence[Mapping[str, Any]]], Reply]


class BlindEndpoint(GeoError):
    """The endpoint does not see the pictures that it is sent; the message says what it answered."""


@dataclass(frozen=True)
class Sight:
    """What was found out.

    Attributes:
        how: swatches (colours named) or exchange (pictures put under the same words).
        asked: pictures shown, or openings asked.
        seen: of them, those that were read, or whose picture made a difference.
        answers: what was said to swatches, shortened.
    """

    how: str
    asked: int
    seen: int
    answers: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"answers": list(self.answers)}


def read_swatches(
    ask: AskPlainly, name: str, fix: str, dice: random.Random | None = None
) -> tuple[Sight, tuple[Reply, ...]]:
    """Show swatches and have them named; also gives the replies, for whoever measures them.

    Args:
        ask: the endpoint, with the arm's sampling.
        name: what messages call the endpoint.
        fix: what to do about it.
        dice: draws the colours; by default so that nobody can know them.

    Raises:
        BlindEndpoint: one of them was not named.
        ProviderError: the endpoint gave no reply.
    """
    dice = dice or secrets.SystemRandom()
    drawn = dice.sample(sorted(COLOURS), SHOWN)
    replies = tuple(ask(_question(colour, dice)) for colour in drawn)
    right = sum(_named(reply.text) == colour for reply, colour in zip(replies, drawn, strict=True))
    sight = Sight("swatches", SHOWN, right, tuple(reply.text.strip()[:40] for reply in replies))
    if right < SHOWN:
        said = ", ".join(repr(answer) for answer in sight.answers)
        raise BlindEndpoint(
            f"{name} names {right} of {SHOWN} colour swatches ({', '.join(drawn)}; it says {said}), so it "
            "does not see its pictures",
            fix,
        )
    return sight, replies


def pictures_change_replies(
    endpoint: ServedModels,
    model: str,
    openings: Sequence[Opening],
    sampling: Mapping[str, Any],
    fix: str,
) -> Sight:
    """Ask some openings with their own picture and with another one under the same words.

    Raises:
        BlindEndpoint: it makes no difference anywhere.
        ProviderError: the endpoint gave no reply.
    """
    pictures = [_pictures(messages) for messages, _ in openings]
    changed = 0
    for number, (messages, tools) in enumerate(openings):
        other = pictures[(number + 1) % len(pictures)] if len(pictures) > 1 else [_part(swatch("red"))]
        body = {**sampling, **CALM, "tools": list(tools)}
        said, first = endpoint.reply(model, {**body, "messages": list(messages)})
        again, second = endpoint.reply(model, {**body, "messages": list(messages)})
        swapped, third = endpoint.reply(model, {**body, "messages": _with(messages, other)})
        noise = _apart(first, second) if said == again else 0.0
        moved = swapped not in (said, again) or _apart(first, third) > max(
            LEAST_DIFFERENCE, NOISE_FACTOR * noise
        )
        changed += moved
    if not changed:
        raise BlindEndpoint(
            f"{endpoint.base_url} answers {len(openings)} openings as {model} alike whatever picture they "
            "hold, so it does not see its pictures",
            fix,
        )
    return Sight("exchange", len(openings), changed)


def _question(colour: str, dice: random.Random) -> list[dict[str, Any]]:
    names = sorted(COLOURS)
    dice.shuffle(names)
    words = prompt("swatch")["question"].format(colours=", ".join(names))
    return [{"role": "user", "content": [{"type": "text", "text": words}, _part(swatch(colour))]}]


def _named(text: str) -> str | None:
    """The one colour that a text names; None where it names none or several."""
    found = set(re.findall(r"[a-z]+", text.lower())) & set(COLOURS)
    return found.pop() if len(found) == 1 else None


def _part(picture: bytes) -> dict[str, Any]:
    data = base64.b64encode(picture).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}}


def _pictures(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [part for message in messages for part in message["content"] if part["type"] == "image_url"]


def _with(
    messages: Sequence[Mapping[str, Any]], pictures: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Messages with other pictures in the places of theirs."""
    given = iter(pictures)
    return [
        {
            **message,
            "content": [
                next(given, part) if part["type"] == "image_url" else part for part in message["content"]
            ],
        }
        for message in messages
    ]


def _apart(a: Sequence[float] | None, b: Sequence[float] | None) -> float:
    """Largest difference of a log-probability; 0 where they cannot be compared."""
    if a is None or b is None or len(a) != len(b):
        return 0.0
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)
