"""What one episode leaves behind: every turn, the outcome, and where it came from.

One record per (arm, task, sample), written as one line of canonical JSON. Nothing in it depends on the clock,
on the order in which episodes were played or on how often a provider had to be asked: those go into timings,
in a file of their own. Raw distance and raw cost are always there; the one stored reward, the environment's
own, carries the name of its curve and no table reads it.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from env_service.canonical import canonical_json
from env_service.models import ImageKind

Outcome = Literal["guess", "parse_failure", "no_guess"]
Failure = Literal[
    "prose",
    "truncated",
    "unparseable_arguments",
    "invalid_action",
    "parse_failure",
    "no_guess",
    "fabrication",
]
SCHEMA = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Pose(_Frozen):
    """The camera: frame of the task, degrees clockwise from true north, pitch, horizontal field of view."""

    frame_index: int
    heading_deg: float
    pitch_deg: float
    fov_deg: float


class Turn(_Frozen):
    """One call and what came back.

    A reply may hold several calls; its words, tokens and finish reason stand with the first of them.

    Attributes:
        turn: number of the call in the episode, from 1.
        reply: number of the reply that asked for it, from 1.
        messages_sha256: digest of the conversation that the reply answered; empty on a reply's further calls.
        text, reasoning: the reply's words and thoughts.
        finish_reason: why the reply ended; None where the endpoint did not say.
        prompt_tokens, completion_tokens: as the endpoint counted them.
        tool, arguments: the call as the model wrote it; both empty where it called nothing.
        action: the flat action sent to the environment.
        pose_before, pose_after: the camera.
        image_kind, image_sha256: the picture that came back; empty hash where there was none.
        feedback: the environment's words.
        cost: of all calls so far.
        turns_left: after this call.
        demanded: whether the guess had been demanded before this reply.
    """

    turn: int
    reply: int
    messages_sha256: str = ""
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tool: str = ""
    arguments: str = ""
    action: dict[str, Any]
    pose_before: Pose
    pose_after: Pose
    image_kind: ImageKind
    image_sha256: str
    feedback: str
    cost: float
    turns_left: int
    demanded: bool


class Result(_Frozen):
    """How an episode ended.

    Attributes:
        outcome: guess, parse_failure (an answer without coordinates) or no_guess (out of turns).
        distance_km: of the guess; None without one.
        cost: of all calls.
        env_reward, env_curve: the environment's own reward and the name of its curve.
        guess_lat, guess_lon, guess_how: the committed position and where its coordinates were read.
        guess_country_code: country whose polygon holds the guess.
        raw_guess: the answer as the model wrote it.
        true_lat, true_lon, country_code: the truth.
        country_hit, region_hit: the guess lies in the true country, in a country of the same UN subregion.
        forced: the guess had to be demanded on the last turn.
        fabricated: a reply contained the environment's side of the exchange.
        failures: the model's own faults met on the way, sorted.
        counts: calls by tool.
        moved_m: metres walked.
        replies: replies asked for.
        unfinished_replies: those without a finish reason.
        prompt_tokens, completion_tokens: sums over the replies.
    """

    outcome: Outcome
    distance_km: float | None
    cost: float
    env_reward: float
    env_curve: str
    guess_lat: float | None
    guess_lon: float | None
    guess_how: str
    guess_country_code: str | None
    raw_guess: str
    true_lat: float
    true_lon: float
    country_code: str | None
    country_hit: bool
    region_hit: bool
    forced: bool
    fabricated: bool
    failures: tuple[Failure, ...]
    counts: dict[str, int]
    moved_m: float
    replies: int
    unfinished_replies: int
    prompt_tokens: int
    completion_tokens: int


class Provenance(_Frozen):
    """What produced the record: versions of environment, harness, prompt and libraries; the model's ids."""

    environment_version: str
    harness_version: str
    prompt_version: str
    protocol: str
    model_asked: str
    models_reported: tuple[str, ...]
    libraries: dict[str, str]


class EpisodeRecord(_Frozen):
    """One play of one task by one arm; (task_index, sample) is unique within an arm."""

    schema_version: int = SCHEMA
    arm: str
    split: str
    task_index: int = Field(ge=0)
    task_id: str
    sample: int = Field(ge=0)
    seed: int
    opening_sha256: str
    turns: tuple[Turn, ...]
    result: Result
    provenance: Provenance

    @property
    def key(self) -> tuple[int, int]:
        """(sample, task_index): passes one after another, tasks in order within a pass."""
        return self.sample, self.task_index

    def line(self) -> bytes:
        """The record as one line of canonical JSON, newline included."""
        return canonical_json(self.model_dump(mode="json")) + b"\n"


class Timing(_Frozen):
    """What an episode cost in time: kept apart, because it is never the same twice.

    Attributes:
        latencies_s: seconds of each reply.
        attempts: requests each reply took.
        causes: what all its calls ended in, those of an attempt that the environment spoilt included.
        wall_s: the whole episode.
        finished_at: UTC, ISO 8601.
        episode_sha256: digest of the episode's line as it was written; empty where it was not kept.
    """

    task_index: int
    sample: int
    latencies_s: tuple[float, ...]
    attempts: tuple[int, ...]
    causes: dict[str, int] = Field(default_factory=dict)
    wall_s: float
    finished_at: str
    episode_sha256: str = ""
