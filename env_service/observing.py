"""From an episode to what is seen of it: the one place that decides what leaves the environment, and when.

Before the end only picture and capture month come from the task; after it, `_reveal` adds truth, credit and
account.
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from env_service.episode import Episode, Pose
from env_service.game import Game
from env_service.geodesy import compass_point, whole_heading
from env_service.imagery import PHOTO_FOV_DEG, ImageryBackend
from env_service.models import GeoObservation, ImageKind
from env_service.scoring import verdict
from env_service.tasks import Task
from env_service.toolbox import ToolSpec, listed


@dataclass(frozen=True)
class Shown:
    """What a tool gives back: words, perhaps a picture, perhaps metres travelled."""

    feedback: str
    image: bytes = b""
    kind: ImageKind = "none"
    moved_meters: float = 0.0


def observe(
    game: Game,
    split: str,
    task: Task,
    episode: Episode,
    tools: Sequence[ToolSpec],
    shown: Shown,
    prompt: str = "",
) -> GeoObservation:
    """The observation after a reset or a call; with the truth if and only if the episode is over."""
    backend, rules = game.splits[split].imagery, game.rules
    pose = seen(backend, task, episode.pose)
    walks = any("move" in spec.needs for spec in tools)
    observation = GeoObservation(
        done=episode.over,
        reward=episode.reward if episode.calls else None,
        metadata={
            "split": split,
            "mode": rules.mode,
            "frame_index": pose.frame_index,
            "environment_version": rules.environment_version,
        },
        prompt=prompt,
        image_base64=base64.b64encode(shown.image).decode("ascii"),
        image_kind=shown.kind if shown.image else "none",
        heading_deg=pose.heading_deg,
        pitch_deg=pose.pitch_deg,
        fov_deg=pose.fov_deg,
        moved_meters=shown.moved_meters,
        total_moved_meters=episode.moved_m,
        can_move_forward=walks and backend.can_move(task, pose.frame_index, "forward"),
        can_move_backward=walks and backend.can_move(task, pose.frame_index, "backward"),
        available_tools=[spec.name for spec in listed(tools)],
        steps_remaining=episode.turns_left,
        pins=list(episode.pins),
        feedback=shown.feedback,
        captured_at=task.frames[pose.frame_index].captured_at,
        action_cost=episode.cost,
    )
    return _reveal(observation, rules.reward_name, task, episode) if episode.over else observation


def seen(backend: ImageryBackend, task: Task, pose: Pose) -> Pose:
    """The pose as the picture shows it.

    A flat photograph looks where its camera looked, and its whole is the widest view of it. The heading is
    given in whole degrees: an exact one would find the photograph, and so the place, in the list it comes
    from.
    """
    if not backend.flat(task, pose.frame_index):
        return pose
    heading = whole_heading(task.frames[pose.frame_index].compass_angle)
    return Pose(pose.frame_index, heading, 0.0, min(pose.fov_deg, PHOTO_FOV_DEG))


def facing(pose: Pose) -> str:
    """Where the camera looks, in words."""
    heading = f"Facing {compass_point(pose.heading_deg)} ({whole_heading(pose.heading_deg):.0f}°)"
    pitch = f", pitch {pose.pitch_deg:.0f}°" if pose.pitch_deg else ""
    return f"{heading}{pitch}, field of view {pose.fov_deg:.0f}°."


def prompt(tools: Sequence[ToolSpec]) -> str:
    """The task in words. It names no number of turns: whoever runs the model states the budget, once."""
    names = {spec.name for spec in tools}
    lines = [
        "You are at an unknown place somewhere on Earth, in front of a street-level picture. Work out where "
        "it was taken and commit to one guess of latitude and longitude.",
    ]
    if "look" in names:
        lines.append("The first picture faces true north; you may turn and zoom the camera.")
    if "move" in names:
        lines.append("You may walk along the captured drive.")
    if "place_pin" in names:
        lines.append("Pins and maps tell you what is at a point, never how close it is to the answer.")
    lines.append("Every call spends a turn, and most cost a little of the reward.")
    lines.append(
        "Finish with submit_guess before the turns run out: without a guess the episode earns nothing."
    )
    return " ".join(lines)


def _reveal(observation: GeoObservation, reward_name: str, task: Task, episode: Episode) -> GeoObservation:
    result, guess = episode.result, episode.guess
    account: dict[str, Any] = {
        "task_id": task.task_id,
        "task_index": task.task_index,
        "sequence_id": task.sequence_id,
        "country": task.country,
        "country_code": task.country_code,
        "attribution": task.attribution,
        "outcome": episode.outcome,
        "guess": asdict(guess) if guess else None,
        "parse_failure": episode.parse_fault or None,
        "verdict": verdict(result.distance_km) if result else None,
        "counts": episode.counts,
        "curve": reward_name,
    }
    unguessed = episode.outcome == "no_guess"
    last = " That was the last turn: the episode is over without a guess." if unguessed else ""
    return observation.model_copy(
        update={
            "feedback": f"{observation.feedback}{last}",
            "parsed_ok": None if unguessed else guess is not None,
            "distance_km": result.distance_km if result else None,
            "score": result.score if result else 0.0,
            "true_lat": task.start.lat,
            "true_lon": task.start.lon,
            "metadata": observation.metadata | account,
        }
    )
