"""An episode played again from its record, every picture checked against the hash that was kept.

Episodes keep actions and hashes and no pictures. The environment is deterministic, so the pictures come back
by playing the actions; a picture with another hash means that the record and the environment do not belong
together.
"""

import base64
from dataclasses import dataclass

from env_service.client import GeoGuessrEnv
from env_service.errors import GeoError
from env_service.models import GeoObservation, ImageKind
from geo_assets.sweeps.protocol_tools import picture_sha256
from geo_assets.sweeps.records import EpisodeRecord

SHOWN = 80


class ReplayDiffers(GeoError):
    """The environment showed something else than the record says."""


@dataclass(frozen=True)
class Step:
    """One frame of a replay: the caption, and the picture's bytes (empty where the call showed none)."""

    caption: str
    picture: bytes
    kind: ImageKind


def replay(record: EpisodeRecord, env_url: str) -> tuple[Step, ...]:
    """Play the recorded actions; the opening comes first.

    Raises:
        ReplayDiffers: names the first turn whose picture or words differ.
    """
    with GeoGuessrEnv(env_url) as env:
        seen = env.reset(split=record.split, index=record.task_index).observation
        _check(record, 0, "picture", picture_sha256(seen), record.opening_sha256)
        steps = [_step("opening", seen)]
        for turn in record.turns:
            seen = env.step(turn.action).observation
            _check(record, turn.turn, "picture", picture_sha256(seen), turn.image_sha256)
            _check(record, turn.turn, "words", seen.feedback, turn.feedback)
            steps.append(_step(turn.tool or "answer in words", seen))
    return tuple(steps)


def _step(caption: str, seen: GeoObservation) -> Step:
    return Step(caption, base64.b64decode(seen.image_base64), seen.image_kind)


def _check(record: EpisodeRecord, turn: int, what: str, got: str, kept: str) -> None:
    if got != kept:
        raise ReplayDiffers(
            f"{record.arm}, task {record.task_index}, sample {record.sample}: turn {turn} does not replay: "
            f"its {what} is {got[:SHOWN]!r} and the record says {kept[:SHOWN]!r}",
            "The record belongs to another environment version; sweep the arm again",
        )
