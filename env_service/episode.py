"""One episode as a value: what a call changes, and nothing about how pictures or names are made.

`Episode` is frozen; every rule returns a new one. The environment keeps the old value until a call has
succeeded entirely, so a call that fails half way (a missing picture, a full disk) leaves no trace in count,
cost or pose.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from env_service.geodesy import wrap_degrees
from env_service.models import Pin

Outcome = Literal["guess", "parse_failure", "no_guess"]

INVALID = "invalid"
"""Under this name `counts` keeps the calls that no tool could answer."""


@dataclass(frozen=True)
class Pose:
    """Where the camera stands and looks: frame of the task, degrees from true north, pitch, field of view."""

    frame_index: int
    heading_deg: float = 0.0
    pitch_deg: float = 0.0
    fov_deg: float = 90.0


@dataclass(frozen=True)
class Guess:
    """A committed position.

    Attributes:
        country: what the agent named, unchecked.
        country_code: ISO code of the country whose polygon holds the position; None at sea.
        how: where the coordinates came from: "fields", or the form found in a reply.
    """

    lat: float
    lon: float
    country: str | None = None
    confidence: float | None = None
    how: str = "fields"
    country_code: str | None = None


@dataclass(frozen=True)
class Result:
    """What the guess was worth under the environment's curve."""

    distance_km: float
    score: float
    reward: float


@dataclass(frozen=True)
class Episode:
    """The play of one task so far.

    Attributes:
        max_turns: calls allowed; each spends one, whatever it does.
        pose: the camera.
        calls: names of the calls spent so far, `INVALID` among them.
        cost: sum of the costs of valid calls.
        moved_m: metres walked in all.
        pins: candidates placed and not cleared.
        outcome: None during play.
        guess: the committed position, if there was one.
        result: distance, score and reward of the guess, if there was one.
        parse_fault: why a reply held no position.
    """

    max_turns: int
    pose: Pose
    calls: tuple[str, ...] = ()
    cost: float = 0.0
    moved_m: float = 0.0
    pins: tuple[Pin, ...] = ()
    outcome: Outcome | None = None
    guess: Guess | None = None
    result: Result | None = None
    parse_fault: str = ""
    pins_placed: int = field(default=0, repr=False)

    @property
    def over(self) -> bool:
        """No further call is accepted."""
        return self.outcome is not None

    @property
    def turns_left(self) -> int:
        """Calls still allowed; 0 once the episode is over."""
        return 0 if self.over else self.max_turns - len(self.calls)

    @property
    def counts(self) -> dict[str, int]:
        """Calls by tool name, sorted by name."""
        return dict(sorted(Counter(self.calls).items()))

    @property
    def reward(self) -> float:
        """0 during play and for every end but a guess that could be read."""
        return self.result.reward if self.result is not None else 0.0

    def spend(self, name: str, cost: float = 0.0) -> "Episode":
        """One turn, and what the call costs (rounded so that sums of hundredths stay hundredths)."""
        return replace(self, calls=(*self.calls, name), cost=round(self.cost + cost, 6))

    def aim(
        self, heading_deg: float | None = None, pitch_deg: float | None = None, fov_deg: float | None = None
    ) -> "Episode":
        """Turn the camera; None keeps an angle. Headings are brought into [0, 360)."""
        pose = self.pose
        heading = pose.heading_deg if heading_deg is None else wrap_degrees(round(heading_deg, 6))
        pitch = pose.pitch_deg if pitch_deg is None else pitch_deg
        fov = pose.fov_deg if fov_deg is None else fov_deg
        return replace(self, pose=replace(pose, heading_deg=heading, pitch_deg=pitch, fov_deg=fov))

    def stand(self, frame_index: int, moved_m: float) -> "Episode":
        """Stand at another frame, having travelled `moved_m` metres."""
        pose = replace(self.pose, frame_index=frame_index)
        return replace(self, pose=pose, moved_m=round(self.moved_m + moved_m, 1))

    def pin(self, lat: float, lon: float, label: str, description: str) -> "Episode":
        """Add a candidate. Numbers go on after `unpin`: a number means one place for a whole episode."""
        number = self.pins_placed + 1
        placed = Pin(index=number, lat=lat, lon=lon, label=label, description=description)
        return replace(self, pins=(*self.pins, placed), pins_placed=number)

    def unpin(self) -> "Episode":
        """Remove all candidates."""
        return replace(self, pins=())

    def commit(self, guess: Guess, result: Result) -> "Episode":
        """End with a guess."""
        return replace(self, outcome="guess", guess=guess, result=result)

    def fail_to_parse(self, reason: str) -> "Episode":
        """End with a reply that held no position; it is worth 0."""
        return replace(self, outcome="parse_failure", parse_fault=reason)

    def settle(self) -> "Episode":
        """End without a guess if the last turn is spent."""
        spent = len(self.calls) >= self.max_turns
        return replace(self, outcome="no_guess") if spent and not self.over else self
