"""From a played episode to its outcome: who failed at what, and what the guess was worth in raw figures.

Only the model's own faults appear here. A provider's never get this far, and an environment's are replayed.
"""

import re
from collections.abc import Mapping, Sequence

from env_service.geography import geography
from geo_assets.sweeps.protocol_tools import Played, parsed_arguments
from geo_assets.sweeps.records import Failure, Result, Turn

_KM = r"(?:\d{1,3}\.\d|\d{3}|\d{1,3}(?:,\d{3})+) km"
PHRASES: Mapping[str, str] = {
    "facing": r"Facing [NESW]{1,3} \(\d{1,3}°\)(?:, pitch -?\d+°)?, field of view \d+°",
    "moved": r"You moved [\d.]+ m (?:forward|backward)\.",
    "not moved": r"No captured position lies (?:forward|backward); you have not moved",
    "nearest city": rf"nearest city [^;\n]{{2,60}}? \({_KM} [NESW]{{1,3}}\)",
    "map": r"Map around -?\d+\.\d{4}, -?\d+\.\d{4}, [\d.]+ degrees high",
    "distance": r"Your guess is [\d.,]+ km away",
    "unread": r"No position could be read from the guess: ",
    "invalid": r"Not a valid action: [^\n]+?\. The turn is spent",
    "over": r"That was the last turn: the episode is over",
}
"""The environment's own sentences, as far as no model would write one of its own accord: in full, since the
beginning of one ("Pin 1: …", "Facing N …") is how people make plans."""
_SAID = re.compile("|".join(PHRASES.values()))


def result_of(played: Played, opening: str) -> Result:
    """The outcome of an episode that has ended; `opening` is what the environment said at its start."""
    last, account = played.last, played.last.metadata
    guess = account.get("guess") or {}
    outcome = account["outcome"]
    fabricated = fabricates(played.turns, opening)
    code, guessed_code = account.get("country_code"), guess.get("country_code")
    return Result(
        outcome=outcome,
        distance_km=last.distance_km,
        cost=last.action_cost,
        env_reward=last.reward or 0.0,
        env_curve=str(account.get("curve") or ""),
        guess_lat=guess.get("lat"),
        guess_lon=guess.get("lon"),
        guess_how=str(guess.get("how") or ""),
        guess_country_code=guessed_code,
        raw_guess=raw_guess(played.turns, outcome),
        true_lat=_known(last.true_lat),
        true_lon=_known(last.true_lon),
        country_code=code,
        country_hit=code is not None and code == guessed_code,
        region_hit=_region(code) is not None and _region(code) == _region(guessed_code),
        forced=played.forced,
        fabricated=fabricated,
        failures=failures(played, outcome, fabricated),
        counts={str(name): int(count) for name, count in account["counts"].items()},
        moved_m=last.total_moved_meters,
        replies=len(played.replies),
        unfinished_replies=sum(reply.finish_reason is None for reply in played.replies),
        prompt_tokens=sum(reply.usage.prompt_tokens for reply in played.replies),
        completion_tokens=sum(reply.usage.completion_tokens for reply in played.replies),
    )


def failures(played: Played, outcome: str, fabricated: bool) -> tuple[Failure, ...]:
    """The model's own faults, sorted."""
    found: set[Failure] = set()
    if any(not turn.tool and not turn.arguments for turn in played.turns):
        found.add("prose")
    if any(reply.finish_reason == "length" for reply in played.replies):
        found.add("truncated")
    if any(turn.tool and parsed_arguments(turn.arguments) is None for turn in played.turns):
        found.add("unparseable_arguments")
    if played.last.metadata["counts"].get("invalid"):
        found.add("invalid_action")
    if outcome == "parse_failure":
        found.add("parse_failure")
    if outcome == "no_guess":
        found.add("no_guess")
    if fabricated:
        found.add("fabrication")
    return tuple(sorted(found))


def fabricates(turns: Sequence[Turn], opening: str) -> bool:
    """Whether a reply holds the environment's side of the exchange: its sentences, never said by it so far.

    A model may quote what it was told; it fabricates when it writes one of `PHRASES` that it was never told.

    Args:
        turns: of the episode, in order.
        opening: the environment's words before the first of them.
    """
    told = opening
    for turn in turns:
        if any(match.group() not in told for match in _SAID.finditer(turn.text)):
            return True
        told += f"\n{turn.feedback}"
    return False


def raw_guess(turns: Sequence[Turn], outcome: str) -> str:
    """The answer as the model wrote it: the arguments of its guess, or its words; empty if it gave none."""
    if outcome == "no_guess" or not turns:
        return ""
    return turns[-1].arguments or turns[-1].text


def _region(code: str | None) -> str | None:
    country = geography().country_by_code(code) if code else None
    return country.subregion if country else None


def _known(value: float | None) -> float:
    if value is None:
        raise ValueError("the environment did not tell the truth after the end of an episode")
    return value
