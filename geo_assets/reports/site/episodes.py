"""One episode as the page tells it: every step with its call, its words, its camera and what it cost."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from env_service.geodesy import compass_point, whole_heading
from env_service.scoring import board_reward, game_reward, verdict
from env_service.tasks import Task
from geo_assets.reports.site.credits import Credit, credit_of
from geo_assets.reports.site.frames import Frames, Shown
from geo_assets.reports.site.telling import Choice
from geo_assets.sweeps.records import EpisodeRecord, Pose, Turn

MAX_WORDS = 6000
OUTCOMES = {"guess": "guessed", "parse_failure": "answered without coordinates", "no_guess": "never guessed"}


@dataclass(frozen=True)
class StepView:
    """One step.

    Attributes:
        number: 0 for the opening.
        call: name of the tool, or what it was instead.
        arguments: name and value of each argument.
        raw: the arguments as the model wrote them, where they are no object.
        words, thoughts: of the reply.
        feedback: the environment's.
        heading, pitch, fov: the camera afterwards, degrees; `facing` in words.
        cost, turns_left: afterwards.
        demanded: the guess had been demanded.
        finish: why the reply ended, where that is no ordinary end.
        picture, kind, alt: what came back, and what it shows; None for nothing.
        missing: why there is no picture where one came back.
    """

    number: int
    call: str
    arguments: tuple[tuple[str, str], ...]
    raw: str
    words: str
    thoughts: str
    feedback: str
    heading: float
    pitch: float
    fov: float
    facing: str
    cost: float
    turns_left: int
    demanded: bool
    finish: str
    picture: Shown | None
    kind: str
    alt: str
    missing: str


@dataclass(frozen=True)
class EpisodeView:
    """One episode; `steps` begins with the opening. Distances in km, rewards as named."""

    key: str
    arm: str
    arm_label: str
    why: str
    task: int
    task_id: str
    sample: int
    country: str
    captured_at: str
    outcome: str
    verdict: str
    distance_km: float | None
    cost: float
    reward: float
    game: float
    guess: str
    truth: str
    turns: int
    credit: Credit
    steps: tuple[StepView, ...]
    reveal: Shown
    reveal_alt: str
    missing: str
    failures: tuple[str, ...]


def episode_view(
    choice: Choice, arm_label: str, record: EpisodeRecord, frames: Frames, task: Task
) -> EpisodeView:
    """Put an episode, its pictures and its task together."""
    result = record.result
    km = result.distance_km if result.outcome == "guess" else None
    guess = (
        ""
        if result.guess_lat is None or result.guess_lon is None
        else _place(result.guess_lat, result.guess_lon)
    )
    truth = _place(result.true_lat, result.true_lon)
    steps = [_opening(record, frames)]
    steps += [
        _step(turn, view, frames.missing) for turn, view in zip(record.turns, frames.views[1:], strict=True)
    ]
    apart = f", {km:,.0f} km apart" if km is not None else ""
    return EpisodeView(
        key=f"{choice.arm}-{choice.task}-{choice.sample}".replace("/", "-"),
        arm=choice.arm,
        arm_label=arm_label,
        why=choice.why,
        task=record.task_index,
        task_id=record.task_id,
        sample=record.sample,
        country=task.country,
        captured_at=task.start.captured_at,
        outcome=OUTCOMES.get(result.outcome, result.outcome),
        verdict=verdict(km) if km is not None else "",
        distance_km=km,
        cost=result.cost,
        reward=board_reward(km, result.cost),
        game=0.0 if km is None else game_reward(km, result.cost),
        guess=guess,
        truth=truth,
        turns=len(record.turns),
        credit=credit_of(task),
        steps=tuple(steps),
        reveal=frames.reveal,
        reveal_alt=f"Map with the guess at {guess} and the truth at {truth}{apart}"
        if guess
        else f"Map with the truth at {truth}; there was no guess",
        missing=frames.missing,
        failures=tuple(name.replace("_", " ") for name in result.failures),
    )


def _opening(record: EpisodeRecord, frames: Frames) -> StepView:
    first = record.turns[0] if record.turns else None
    pose = first.pose_before if first else Pose(frame_index=0, heading_deg=0.0, pitch_deg=0.0, fov_deg=90.0)
    facing = _facing(pose)
    return StepView(
        number=0,
        call="Opening",
        arguments=(),
        raw="",
        words="",
        thoughts="",
        feedback="The episode opens at an unknown place, facing north.",
        heading=pose.heading_deg,
        pitch=pose.pitch_deg,
        fov=pose.fov_deg,
        facing=facing,
        cost=0.0,
        turns_left=first.turns_left + 1 if first else 0,
        demanded=False,
        finish="",
        picture=frames.views[0],
        kind="view",
        alt=f"Street-level view at the start, {facing}",
        missing=frames.missing,
    )


def _step(turn: Turn, view: Shown | None, missing: str) -> StepView:
    given = _arguments(turn)
    facing = _facing(turn.pose_after)
    call = turn.tool or "Answer in words"
    looked = f"Street-level view after {call}, {facing}"
    mapped = f"Map drawn for {call}" + (f" ({', '.join(f'{k} {v}' for k, v in given)})" if given else "")
    return StepView(
        number=turn.turn,
        call=call,
        arguments=given,
        raw="" if given or turn.arguments.strip() in ("", "{}") else _cut(turn.arguments),
        words=_cut(turn.text),
        thoughts=_cut(turn.reasoning),
        feedback=turn.feedback,
        heading=turn.pose_after.heading_deg,
        pitch=turn.pose_after.pitch_deg,
        fov=turn.pose_after.fov_deg,
        facing=facing,
        cost=turn.cost,
        turns_left=turn.turns_left,
        demanded=turn.demanded,
        finish=turn.finish_reason or "" if turn.finish_reason not in ("stop", "tool_calls", None) else "",
        picture=view,
        kind=turn.image_kind,
        alt=mapped if turn.image_kind == "map" else looked,
        missing=missing if turn.image_sha256 else "",
    )


def _arguments(turn: Turn) -> tuple[tuple[str, str], ...]:
    """The call's arguments; nothing where they are no object, or one too deeply nested to be read."""
    try:
        said: Any = json.loads(turn.arguments or "{}")
        if not isinstance(said, Mapping):
            return ()
        return tuple((_whole(name), _cut(_whole(_value(value)), 600)) for name, value in said.items())
    except (ValueError, RecursionError):
        return ()


def _whole(text: str) -> str:
    r"""Text that can be written: half of a character, which JSON may name alone, as `\uXXXX`."""
    return text.encode(errors="backslashreplace").decode()


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else str(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _facing(pose: Pose) -> str:
    tilt = f", pitch {pose.pitch_deg:+.0f}°".replace("-", "−") if pose.pitch_deg else ""
    heading = f"{compass_point(pose.heading_deg)} ({whole_heading(pose.heading_deg):.0f}°)"
    return f"facing {heading}{tilt}, {pose.fov_deg:.0f}° wide"


def _place(lat: float, lon: float) -> str:
    return f"{abs(lat):.3f}° {'N' if lat >= 0 else 'S'}, {abs(lon):.3f}° {'E' if lon >= 0 else 'W'}"


def _cut(words: str, limit: int = MAX_WORDS) -> str:
    return words if len(words) <= limit else f"{words[:limit]} …"
