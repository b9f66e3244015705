"""The environment as TRL plays it: one object per rollout, its public methods the model's tools.

TRL makes a tool of every public method, so whatever is no tool starts with an underscore. Only words and
pictures of an observation reach the model. What a call means is judged by the service, as in a sweep: an
unknown tool or a wrong argument spends a turn there and comes back as words. Distance, score and verdict are
never told: after the end the model reads that the episode is over, and every further call is refused and
charged, because the trainer cannot be told to stop asking.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from PIL import Image

from env_service.client import GeoObservation
from env_service.errors import GeoError
from env_service.scoring import NO_GUESS_REWARD, Curve, training_reward
from geo_assets.sweeps.protocol_tools import (
    GUESS_TOOL,
    flat_action,
    opening_content,
    picture_sha256,
    spoken_action,
    tool_definitions,
)
from geo_assets.training.episode_link import EpisodeLost, Line, Link
from resources.endpoints import ToolCall
from resources.sandbox.vlm.processor import scaled

OVER = "The episode is over."
GREY = (128, 128, 128)
INVALID = "Not a valid action"
"""How the service's words begin when no tool could answer a call."""

Blocks = list[dict[str, Any]]


@dataclass(frozen=True)
class Rules:
    """What all rollouts of a run share.

    Attributes:
        line: the service.
        tools: its tool definitions, from `/schema`.
        max_turns: the one turn budget; the service was checked to have the same.
        view_px: edge of the pictures shown.
        curve: reward of a guess.
        refusal_charge: taken off for every call after the end.
    """

    line: Line
    tools: Sequence[Mapping[str, Any]]
    max_turns: int
    view_px: int
    curve: Curve
    refusal_charge: float


@dataclass
class Trace:
    """One rollout's account: what was played and what it was worth; pictures by hash only."""

    split: str = ""
    index: int = -1
    actions: list[dict[str, Any]] = field(default_factory=list)
    poses: list[list[float]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    outcome: str = ""
    distance_km: float | None = None
    cost: float = 0.0
    refused: int = 0
    invalid: int = 0
    reconnects: int = 0
    lost: str = ""
    cut: bool = False
    reward: float | None = None

    @property
    def looks(self) -> int:
        """Views asked for beyond the opening one."""
        return sum(action.get("op") in ("look", "pan", "zoom", "move") for action in self.actions)


def opening_words(seen: GeoObservation, max_turns: int) -> str:
    """The opening message's words, those of a sweep to the letter."""
    return str(opening_content(seen, max_turns)[0]["text"])


def result_words(seen: GeoObservation) -> str:
    """A call's words: what it did, and how many turns are left; the last two say so."""
    if seen.done:
        return OVER
    left = seen.steps_remaining
    if left == 1:
        return f"{seen.feedback} This is your last turn: call {GUESS_TOOL} now."
    if left == 2:
        return f"{seen.feedback} Only 2 turns left: call {GUESS_TOOL} with one of them."
    return f"{seen.feedback} {left} turns left."


class TrainingEnvironment:
    """One rollout's environment.

    Args:
        rules: what all rollouts share.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._link = Link(rules.line)
        self._ops = {str(tool["name"]): str(tool["op"]) for tool in rules.tools}
        self._definitions: list[dict[str, Any]] = []
        self._trace = Trace()
        self._over = True

    def reset(self, **row: Any) -> Blocks:
        """Start the episode of a dataset row.

        Args:
            row: the whole row; `split` and `index` address the task. `datasets` fills absent columns with
                None, which counts as not given.

        Returns:
            Content blocks of the opening message. Where the service cannot be reached the rollout is marked
            lost and shown a grey picture, because an exception here would end the training.
        """
        given = {name: value for name, value in row.items() if value is not None}
        self._over = False
        try:
            self._trace = Trace(str(given["split"]), int(given["index"]))
            seen = self._link.reset(self._trace.split, self._trace.index)
            self._definitions = tool_definitions(self._rules.tools, seen.available_tools)
            self._note(seen)
            return [_text(opening_words(seen, self._rules.max_turns)), self._picture(seen)]
        except Exception as fault:
            self._lose(fault)
            names = [str(tool["name"]) for tool in self._rules.tools]
            self._definitions = tool_definitions(self._rules.tools, names)
            return [_text(OVER), {"type": "image", "image": self._grey()}]

    def get_reward(self) -> float | None:
        """Reward of the rollout by the run's curve, from raw distance and raw cost.

        Returns:
            0 (less charges) only for an episode that really ended without a guess; None for one that was lost
            or cut off, which the trainer leaves out of its group.
        """
        try:
            self._trace.reward = self._worth()
        except Exception as fault:
            self._lose(fault)
            self._trace.reward = None
        return self._trace.reward

    # ---- the tools: names and arguments are the service's own, see tests/training/test_trl_environment.py

    def look(self, heading_deg: float, pitch_deg: float = 0.0, fov_deg: float = 90.0) -> Blocks:
        """Turn the camera to an absolute compass heading and see the view from there.

        Args:
            heading_deg: Compass heading in degrees, clockwise: 0 is true north, 90 east.
            pitch_deg: Degrees above (positive) or below the horizon.
            fov_deg: Field of view in degrees; smaller shows less, larger.
        """
        return self._call("look", heading_deg=heading_deg, pitch_deg=pitch_deg, fov_deg=fov_deg)

    def pan(self, delta_deg: float) -> Blocks:
        """Turn the camera relative to where it looks now and see the view.

        Args:
            delta_deg: Degrees to turn, positive to the right, negative to the left.
        """
        return self._call("pan", delta_deg=delta_deg)

    def zoom(self, fov_deg: float) -> Blocks:
        """Change the field of view without turning.

        Args:
            fov_deg: Field of view in degrees, 10 (closest) to 120 (widest).
        """
        return self._call("zoom", fov_deg=fov_deg)

    def move(self, direction: Literal["forward", "backward"], meters: float = 10.0) -> Blocks:
        """Walk along the captured drive and see the view from there.

        Args:
            direction: "forward" in the order of the drive, or "backward".
            meters: How far to walk.
        """
        return self._call("move", direction=direction, meters=meters)

    def place_pin(self, lat: float, lon: float, label: str, span_deg: float = 7.0) -> Blocks:
        """Pin a candidate and see it on a map.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            label: Your own words for the candidate.
            span_deg: Height of the map in degrees.
        """
        return self._call("place_pin", lat=lat, lon=lon, label=label, span_deg=span_deg)

    def view_map(self, lat: float, lon: float, span_deg: float = 7.0) -> Blocks:
        """See a map around a point, without pinning it.

        Args:
            lat: Latitude of the middle in degrees, north positive.
            lon: Longitude of the middle in degrees, east positive.
            span_deg: Height of the map in degrees.
        """
        return self._call("view_map", lat=lat, lon=lon, span_deg=span_deg)

    def reverse_geocode(self, lat: float, lon: float) -> Blocks:
        """Learn the names at a point.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
        """
        return self._call("reverse_geocode", lat=lat, lon=lon)

    def list_pins(self) -> Blocks:
        """List the pins placed so far."""
        return self._call("list_pins")

    def clear_pins(self) -> Blocks:
        """Remove all pins."""
        return self._call("clear_pins")

    def measure(self, lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> Blocks:
        """Measure the great-circle distance between two points.

        Args:
            lat_a: Latitude of the first point in degrees.
            lon_a: Longitude of the first point in degrees.
            lat_b: Latitude of the second point in degrees.
            lon_b: Longitude of the second point in degrees.
        """
        return self._call("measure", lat_a=lat_a, lon_a=lon_a, lat_b=lat_b, lon_b=lon_b)

    def submit_guess(
        self,
        lat: float,
        lon: float,
        country: str | None = None,
        confidence: float | None = None,
        reasoning: str | None = None,
    ) -> Blocks:
        """Commit the one guess of the episode.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            country: Country you believe it is in.
            confidence: How sure you are, 0 to 1.
            reasoning: Why, in a few words.
        """
        opinion = {"country": country, "confidence": confidence, "reasoning": reasoning}
        given = {name: value for name, value in opinion.items() if value is not None}
        return self._call("submit_guess", lat=lat, lon=lon, **given)

    # ---- what the trainer uses beside the tools

    def _call(self, tool: str, /, **arguments: Any) -> Blocks:
        """Play any call, known or not, with any arguments; never raises."""
        if self._over:
            self._trace.refused += not self._trace.lost
            return [_text(OVER)]
        return self._play(flat_action(ToolCall("", tool, json.dumps(arguments, default=str)), self._ops))

    def _answer(self, text: str) -> None:
        """Take a reply without a call as the answer, as a sweep does."""
        if not self._over:
            self._play(spoken_action(text))

    def _cut_off(self) -> None:
        """The rollout outgrew the trainer's length: it ended by no decision of the policy's."""
        if not self._over:
            self._over = self._trace.cut = True
            self._trace.outcome = "cut"

    def _close(self) -> None:
        self._link.close()

    def _play(self, action: dict[str, Any]) -> Blocks:
        try:
            seen = self._link.step(action)
            self._trace.actions.append(action)
            self._trace.invalid += seen.feedback.startswith(INVALID)
            self._note(seen)
            words = _text(result_words(seen))
            return [words] if seen.done or not seen.image_base64 else [words, self._picture(seen)]
        except Exception as fault:
            self._lose(fault)
            return [_text(OVER)]

    def _note(self, seen: GeoObservation) -> None:
        trace = self._trace
        frame = float(seen.metadata.get("frame_index") or 0)
        trace.poses.append([frame, seen.heading_deg, seen.pitch_deg, seen.fov_deg])
        trace.pictures.append(picture_sha256(seen))
        trace.cost, trace.reconnects = seen.action_cost, self._link.reconnects
        if seen.done:
            self._over = True
            trace.distance_km = seen.distance_km
            trace.outcome = str(seen.metadata.get("outcome") or "no_guess")

    def _worth(self) -> float | None:
        trace, rules = self._trace, self._rules
        if trace.lost or trace.cut:
            return None
        charge = rules.refusal_charge * trace.refused
        if trace.distance_km is None:
            trace.outcome = trace.outcome or "no_guess"
            return NO_GUESS_REWARD - charge
        return training_reward(trace.distance_km, trace.cost, rules.curve) - charge

    def _lose(self, fault: Exception) -> None:
        self._over = True
        said = fault.problem if isinstance(fault, GeoError) else f"{type(fault).__name__}: {fault}"
        self._trace.lost = said if isinstance(fault, EpisodeLost) else f"The environment failed: {said}"
        self._trace.outcome = "lost"

    def _picture(self, seen: GeoObservation) -> dict[str, Any]:
        picture = Image.open(io.BytesIO(base64.b64decode(seen.image_base64)))
        return {"type": "image", "image": scaled(picture, self._rules.view_px)}

    def _grey(self) -> Image.Image:
        return Image.new("RGB", (self._rules.view_px, self._rules.view_px), GREY)


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
