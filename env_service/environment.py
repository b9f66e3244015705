"""The game: an agent at an unknown street corner looks, walks, pins candidates on a map and guesses once.

`GeoGuessrEnvironment` is an OpenEnv environment. Its tools are the methods marked with `@tool`; `step` runs
one of them by one path for every transport. Before the end an observation depends on the place through its
picture and the capture month alone. Everything large is shared between sessions in one frozen `Game`; an
instance holds the episode.
"""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

# OpenEnv's optional web page imports gradio, which costs seconds at start; OpenEnv does without it by itself
# when the module cannot be imported.
sys.modules.setdefault("openenv.core.env_server.web_interface", None)  # type: ignore[arg-type]

# ruff: noqa: E402
from openenv.core.env_server.interfaces import Environment  # type: ignore[import-untyped]
from openenv.core.env_server.types import EnvironmentMetadata  # type: ignore[import-untyped]

from env_service.episode import INVALID, Episode, Guess, Pose, Result
from env_service.game import MODE_OFFERS, BadSelection, EpisodeOver, Game, NotReset, check_reset_fields
from env_service.geodesy import haversine_km
from env_service.maps import render_map
from env_service.models import (
    MAX_EPISODE_ID,
    Confidence,
    CountryName,
    Direction,
    FieldOfView,
    GeoAction,
    GeoObservation,
    GeoState,
    Heading,
    Label,
    Latitude,
    Longitude,
    Meters,
    Pitch,
    Reasoning,
    Response,
    Span,
    Turn,
)
from env_service.observing import Shown, facing, observe, prompt
from env_service.parsing import ParseFailure, parse_guess
from env_service.scoring import country_only, partial_credit, training_reward, training_score, verdict
from env_service.tasks import Task
from env_service.toolbox import InvalidAction, ToolSpec, listed, resolve, tool, tool_specs

NAME = "geoguesser_env"
DESCRIPTION = (
    "Guess where on Earth a street-level panorama was taken: look, walk, pin candidates, commit once."
)


class GeoGuessrEnvironment(Environment):  # type: ignore[misc]
    """One session's play.

    A subclass that adds a method marked with `@tool` adds a tool to every surface; the method gets its
    checked arguments and returns `Shown` or plain feedback.

    Args:
        game: what all sessions share. Constructing an instance is trivial, because OpenEnv builds one for
            every request to its discovery routes.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game: Game) -> None:
        super().__init__()
        self.game = game
        self._task: Task | None = None
        self._split = ""
        self._episode_id: str | None = None
        self._episode: Episode | None = None
        self._tools: tuple[ToolSpec, ...] = ()

    # ---- OpenEnv

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        task_index: int | None = None,
        **unknown: Any,
    ) -> GeoObservation:
        """Start an episode and show the opening view, which faces true north.

        Args:
            seed: picks task `seed` modulo the number of tasks; used when no index is given.
            episode_id: echoed in the state; random if not given.
            split: which split; the first of the service if not given.
            index: address of the task, from 0. Never wrapped.
            task_index: the same under its other name.
            unknown: refused.

        Raises:
            BadSelection: no such split, index out of range, or an argument nobody knows.
            MissingFrame: the opening picture is not in the store.
        """
        check_reset_fields(unknown)
        name = self.game.default_split if split is None else split
        if index is not None and task_index is not None and index != task_index:
            raise BadSelection("index and task_index are two names for one thing and differ", "Give one.")
        chosen = self.game.address(name, index if index is not None else task_index, seed)
        if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= MAX_EPISODE_ID):
            raise BadSelection(f"episode_id is a string of at most {MAX_EPISODE_ID} characters")
        task = self.game.tasks(name)[chosen]
        episode = Episode(self.game.rules.max_turns, Pose(task.start_frame))
        image = self._look(task, name, episode.pose)
        self._task, self._split, self._episode = task, name, episode
        self._episode_id = episode_id or uuid.uuid4().hex
        self._tools = self.offered(name, task)
        month = task.start.captured_at
        taken = f" Captured in {month}." if month else ""
        return self._observe(
            Shown(f"{facing(episode.pose)}{taken}", image, "view"), prompt=prompt(self.tools)
        )

    def step(
        self, action: GeoAction | Mapping[str, Any], timeout_s: float | None = None, **_: Any
    ) -> GeoObservation:
        """Spend one turn on one call.

        Args:
            action: a flat action; `metadata`, which OpenEnv's own action class carries, is ignored.
            timeout_s: OpenEnv's argument; the server keeps the time.

        Raises:
            NotReset, EpisodeOver: nothing has changed.
            MissingFrame: a picture is not in the store; nothing has changed.
        """
        episode = self._episode
        if episode is None or self._task is None:
            raise NotReset("there is no episode yet", "Reset first.")
        if episode.over:
            raise EpisodeOver("the episode is over", "Reset to start another.")
        fields = action.wire() if isinstance(action, GeoAction) else dict(action)
        fields.pop("metadata", None)
        try:
            shown = self._call(fields)
        except InvalidAction as fault:
            self._episode = episode.spend(INVALID)
            shown = Shown(f"Not a valid action: {fault}. The turn is spent.")
        except BaseException:
            self._episode = episode
            raise
        self._episode = self._episode.settle() if self._episode else None
        return self._observe(shown)

    @property
    def state(self) -> GeoState:
        """Where the session stands; nothing in it depends on the place."""
        rules, episode = self.game.rules, self._episode
        if episode is None or self._task is None:
            return GeoState(mode=rules.mode, environment_version=rules.environment_version)
        return GeoState(
            episode_id=self._episode_id,
            step_count=len(episode.calls),
            split=self._split,
            task_index=self._task.task_index,
            mode=rules.mode,
            max_turns=episode.max_turns,
            steps_remaining=episode.turns_left,
            action_cost=episode.cost,
            done=episode.over,
            outcome=episode.outcome,
            environment_version=rules.environment_version,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, description and version for OpenEnv's discovery route."""
        return EnvironmentMetadata(
            name=NAME, description=DESCRIPTION, version=self.game.rules.environment_version
        )

    # ---- Task API: addresses only, because a task's own id and length are bound to the place

    def list_splits(self) -> list[str]:
        """Names of the splits, as configured."""
        return list(self.game.splits)

    def num_tasks(self, split: str) -> int:
        """Number of tasks. Raises NoSuchSplit."""
        return len(self.game.tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """What `reset` needs to play a task. Raises NoSuchSplit, IndexError."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(index)
        return {"id": f"{split}-{index:05d}", "split": split, "index": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks of a split. Raises NoSuchSplit."""
        return self.get_task_range(split)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Tasks in [start, stop), with the bounds of a Python slice. Raises NoSuchSplit."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]

    # ---- tools

    @tool(op="look", cost=0.01, needs=("look",))
    def look(self, heading_deg: Heading, pitch_deg: Pitch = 0.0, fov_deg: FieldOfView = 90.0) -> Shown:
        """Turn the camera to an absolute compass heading and see the view from there.

        Args:
            heading_deg: Compass heading in degrees, clockwise: 0 is true north, 90 east.
            pitch_deg: Degrees above (positive) or below the horizon.
            fov_deg: Field of view in degrees; smaller shows less, larger.
        """
        return self._aimed(heading_deg, pitch_deg, fov_deg)

    @tool(op="pan", cost=0.01, needs=("look",))
    def pan(self, delta_deg: Turn) -> Shown:
        """Turn the camera relative to where it looks now and see the view.

        Args:
            delta_deg: Degrees to turn, positive to the right, negative to the left.
        """
        return self._aimed(self._now.pose.heading_deg + delta_deg)

    @tool(op="zoom", cost=0.01, needs=("zoom",))
    def zoom(self, fov_deg: FieldOfView) -> Shown:
        """Change the field of view without turning, to read signs and plates or to see more.

        Args:
            fov_deg: Field of view in degrees, 10 (closest) to 120 (widest).
        """
        return self._aimed(fov_deg=fov_deg)

    @tool(op="move", cost=0.05, needs=("move",))
    def move(self, direction: Direction, meters: Meters = 10.0) -> Shown:
        """Walk along the captured drive and see the view from there; there are only so many captured
        positions.

        Args:
            direction: "forward" in the order of the drive, or "backward".
            meters: How far to walk; the nearest captured position is taken, at least one further on.
        """
        episode, task = self._now, self._playing
        backend = self.game.splits[self._split].imagery
        walked = backend.move(task, episode.pose.frame_index, direction, meters)
        # A tenth of a metre: finer figures would carry the exact positions of the frames.
        metres = round(walked.moved_meters, 1)
        self._episode = episode.stand(walked.frame_index, metres)
        if walked.frame_index == episode.pose.frame_index:
            words = f"No captured position lies {direction}; you have not moved."
        else:
            words = f"You moved {metres:g} m {direction}. {facing(self._episode.pose)}"
        return Shown(words, self._look(task, self._split, self._episode.pose), "view", metres)

    @tool(op="pin", cost=0.02, needs=("map",))
    def place_pin(self, lat: Latitude, lon: Longitude, label: Label, span_deg: Span = 7.0) -> Shown:
        """Pin a candidate: learn what is there and how far it lies from earlier pins, and see it on a map.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            label: Your own words for the candidate.
            span_deg: Height of the map in degrees.
        """
        there = self.game.geography.describe(lat, lon).text
        earlier = [
            f"{haversine_km(pin.lat, pin.lon, lat, lon):.1f} km from pin {pin.index}"
            for pin in self._now.pins
        ]
        self._episode = self._now.pin(lat, lon, label, there)
        placed = f"Pin {self._episode.pins[-1].index}: {there}"
        return self._mapped(lat, lon, span_deg, "; ".join([placed.rstrip("."), *earlier]) + ".")

    @tool(op="view_map", cost=0.01, needs=("map",))
    def view_map(self, lat: Latitude, lon: Longitude, span_deg: Span = 7.0) -> Shown:
        """See a map around a point, with your pins, without pinning it.

        Args:
            lat: Latitude of the middle in degrees, north positive.
            lon: Longitude of the middle in degrees, east positive.
            span_deg: Height of the map in degrees.
        """
        return self._mapped(
            lat, lon, span_deg, f"Map around {lat:.4f}, {lon:.4f}, {span_deg:g} degrees high."
        )

    @tool(op="reverse_geocode", cost=0.01, needs=("map",))
    def reverse_geocode(self, lat: Latitude, lon: Longitude) -> Shown:
        """Learn the names at a point: country, subregion, nearest city.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
        """
        there = self.game.geography.describe(lat, lon)
        names = [there.country.name, there.country.subregion] if there.country else ["Open sea"]
        return Shown(f"{', '.join(dict.fromkeys(names))}; nearest city {there.nearest_city.name}.")

    @tool(op="list_pins", needs=("map",))
    def list_pins(self) -> Shown:
        """List the pins placed so far. Costs no reward, but a turn."""
        lines = [
            f"{pin.index}. {pin.label} ({pin.lat:.4f}, {pin.lon:.4f}): {pin.description}"
            for pin in self._now.pins
        ]
        return Shown("\n".join(lines) or "There are no pins.")

    @tool(op="clear_pins", needs=("map",))
    def clear_pins(self) -> Shown:
        """Remove all pins. Costs no reward, but a turn."""
        count = len(self._now.pins)
        self._episode = self._now.unpin()
        return Shown(f"Removed {count} pin{'' if count == 1 else 's'}.")

    @tool(op="measure", needs=("map",))
    def measure(self, lat_a: Latitude, lon_a: Longitude, lat_b: Latitude, lon_b: Longitude) -> Shown:
        """Measure the great-circle distance between two points. Costs no reward, but a turn.

        Args:
            lat_a: Latitude of the first point in degrees.
            lon_a: Longitude of the first point in degrees.
            lat_b: Latitude of the second point in degrees.
            lon_b: Longitude of the second point in degrees.
        """
        return Shown(f"{haversine_km(lat_a, lon_a, lat_b, lon_b):.1f} km.")

    @tool(op="guess")
    def submit_guess(
        self,
        lat: Latitude,
        lon: Longitude,
        country: CountryName | None = None,
        confidence: Confidence | None = None,
        reasoning: Reasoning | None = None,
    ) -> Shown:
        """Commit the one guess of the episode; it ends here and is scored by distance.

        Args:
            lat: Latitude in degrees, north positive.
            lon: Longitude in degrees, east positive.
            country: Country you believe it is in.
            confidence: How sure you are, 0 to 1.
            reasoning: Why, in a few words.
        """
        return self._commit(Guess(lat, lon, country, confidence))

    @tool(op="guess", when="response")
    def submit_reply(
        self,
        response: Response,
        lat: Latitude | None = None,
        lon: Longitude | None = None,
        country: CountryName | None = None,
        confidence: Confidence | None = None,
        reasoning: Reasoning | None = None,
    ) -> Shown:
        """Commit a guess as the raw reply of a model, from which the coordinates are read.

        Args:
            response: The whole reply.
            lat: Latitude, if it is known beside the reply; then the reply is not read.
            lon: Longitude, likewise.
            country: Country you believe it is in.
            confidence: How sure you are, 0 to 1.
            reasoning: Why, in a few words.
        """
        if lat is not None and lon is not None:
            return self._commit(Guess(lat, lon, country, confidence))
        found = parse_guess(response)
        if isinstance(found, ParseFailure):
            self._episode = self._now.fail_to_parse(found.reason)
            return Shown(f"No position could be read from the guess: {found.reason}. The episode is over.")
        return self._commit(Guess(found.lat, found.lon, country, confidence, found.how))

    # ---- how a call is carried out

    def offered(self, split: str, task: Task) -> tuple[ToolSpec, ...]:
        """Tools that mode, imagery and task can all serve, other forms included, in order of definition."""
        can = self.game.splits[split].imagery.abilities(task)
        able = {"map"} | {name for name in ("look", "zoom", "move") if getattr(can, name)}
        offers = able & MODE_OFFERS[self.game.rules.mode]
        return tuple(spec for spec in self.specs() if spec.needs <= offers)

    @classmethod
    def specs(cls) -> tuple[ToolSpec, ...]:
        """All tools of the class, other forms included."""
        return tool_specs(cls)

    @property
    def last_call_valid(self) -> bool:
        """Whether a tool answered the last call."""
        return self._episode is None or self._episode.calls[-1:] != (INVALID,)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this episode as a model is shown them; of an empty session, none."""
        return listed(self._tools)

    def _call(self, fields: dict[str, Any]) -> Shown:
        spec = resolve(self._tools, fields.pop("op", None), fields)
        arguments = spec.bind(fields)
        self._episode = self._now.spend(self._counted_as(spec), spec.cost)
        shown = getattr(self, spec.name)(**arguments)
        return shown if isinstance(shown, Shown) else Shown(str(shown))

    def _counted_as(self, spec: ToolSpec) -> str:
        """Another form of a tool counts as the tool."""
        return next((other.name for other in self.tools if other.op == spec.op), spec.name)

    @property
    def _now(self) -> Episode:
        if self._episode is None:
            raise NotReset("there is no episode yet", "Reset first.")
        return self._episode

    @property
    def _playing(self) -> Task:
        if self._task is None:
            raise NotReset("there is no episode yet", "Reset first.")
        return self._task

    def _observe(self, shown: Shown, prompt: str = "") -> GeoObservation:
        return observe(self.game, self._split, self._playing, self._now, self._tools, shown, prompt)

    def _look(self, task: Task, split: str, pose: Pose) -> bytes:
        backend, px = self.game.splits[split].imagery, self.game.rules.view_px
        return backend.view(task, pose.frame_index, pose.heading_deg, pose.pitch_deg, pose.fov_deg, px)

    def _aimed(
        self, heading_deg: float | None = None, pitch_deg: float | None = None, fov_deg: float | None = None
    ) -> Shown:
        self._episode = self._now.aim(heading_deg, pitch_deg, fov_deg)
        pose = self._episode.pose
        return Shown(facing(pose), self._look(self._playing, self._split, pose), "view")

    def _mapped(self, lat: float, lon: float, span_deg: float, words: str) -> Shown:
        picture = render_map(lat, lon, span_deg, self._now.pins, self.game.rules.view_px)
        return Shown(words, picture, "map")

    def _commit(self, guess: Guess) -> Shown:
        episode, task = self._now, self._playing
        distance = haversine_km(guess.lat, guess.lon, task.start.lat, task.start.lon)
        there = self.game.geography.country_at(guess.lat, guess.lon)
        guess = replace(guess, country_code=there.code if there else None)
        score, reward = self._worth(guess, task, distance, episode.cost)
        self._episode = episode.commit(guess, Result(distance, score, reward))
        return Shown(f"Your guess is {distance:.1f} km away: {verdict(distance)}. The episode is over.")

    def _worth(self, guess: Guess, task: Task, distance: float, cost: float) -> tuple[float, float]:
        """Score and reward under the operator's rules."""
        rules, geography = self.game.rules, self.game.geography
        truth = geography.country_by_code(task.country_code) if task.country_code else None
        truth = truth or geography.country_by_name(task.country)
        true_code, true_region = (truth.code, truth.subregion) if truth else (None, None)
        if rules.credit == "country_only":
            score = country_only(guess.country_code, true_code)
            return score, max(0.0, score - cost)
        there = geography.country_by_code(guess.country_code) if guess.country_code else None
        extra = 0.0
        if rules.credit == "partial":
            extra = partial_credit(
                guess.country_code, true_code, there.subregion if there else None, true_region
            )
        score = min(1.0, training_score(distance, rules.curve) + extra)
        return score, training_reward(distance, cost, rules.curve, extra)
