"""What is wrong with the metadata of a world: the faults that Mapillary's has, on a fixed share of frames.

Some faults cost the frame (a clock of 1970, no picture, an image that does not exist), most cost nothing to a
careful reader (a bearing of -1 beside a good computed one, a missing `camera_type`). About nine frames in ten
stay playable. Which frame has which fault is a function of the world's seed and the id alone.
"""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from resources.sandbox.catalogue import Entity

Clock = Literal["good", "zero", "1970", "2002", "future"]
ABSENT = object()

BROKEN_CLOCK_SHARE = 0.025
NO_DERIVATIVES_SHARE = 0.01
NO_QUALITY_SHARE, ZERO_QUALITY_SHARE = 0.09, 0.06
NO_CAMERA_SHARE, NULL_CAMERA_SHARE = 0.14, 0.04
ODD_PANO_FLAG_SHARE = 0.08

MISSING_SHARE = 0.012
NO_PICTURE_SHARE = 0.012
NO_ORIGINAL_SHARE = 0.02
NO_HEADING_SHARE = 0.01
NO_CAMERA_TYPE_SHARE = 0.05


@dataclass(frozen=True)
class SequenceQuirks:
    """Faults that a whole drive shares.

    Attributes:
        clock: what the camera took the date for.
        derivatives: False where no reduced pictures were ever made.
        quality: stated quality: as it is, absent or 0.
        camera: make and model: as they are, the text "none", or absent.
        pano_flag: how tiles spell a true `is_pano`.
    """

    clock: Clock = "good"
    derivatives: bool = True
    quality: Literal["stated", "absent", "zero"] = "stated"
    camera: Literal["stated", "none", "absent"] = "stated"
    pano_flag: bool | int | str = True

    def captured_at(self, moment_ms: int) -> int:
        """The date that the metadata states for a moment, milliseconds since 1970 UTC."""
        if self.clock == "good":
            return moment_ms
        if self.clock == "zero":
            return 0
        base = {"1970": 1970, "2002": 2002, "future": 2087}[self.clock]
        first = int(datetime(base, 1, 1, tzinfo=UTC).timestamp() * 1000)
        return first + moment_ms % 86_400_000


@dataclass(frozen=True)
class FrameQuirks:
    """Faults of one frame; `changes` replaces fields of its entity, `ABSENT` removes them."""

    exists: bool
    picture: bool
    original: bool
    changes: dict[str, Any]


NO_SEQUENCE_QUIRKS = SequenceQuirks()
NO_FRAME_QUIRKS = FrameQuirks(True, True, True, {})


def sequence_quirks(seed: int, sequence_id: str) -> SequenceQuirks:
    """The faults of a drive."""
    rng = random.Random(f"{seed}/sequence/{sequence_id}")
    clock: Clock = "good"
    if rng.random() < BROKEN_CLOCK_SHARE:
        clock = rng.choice(("zero", "1970", "2002", "future"))
    derivatives = rng.random() >= NO_DERIVATIVES_SHARE
    quality = _one_of(rng, ("absent", NO_QUALITY_SHARE), ("zero", ZERO_QUALITY_SHARE))
    camera = _one_of(rng, ("none", NO_CAMERA_SHARE), ("absent", NULL_CAMERA_SHARE))
    flag: bool | int | str = True
    if rng.random() < ODD_PANO_FLAG_SHARE:
        flag = rng.choice((1, "true"))
    return SequenceQuirks(clock, derivatives, quality, camera, flag)  # type: ignore[arg-type]


def frame_quirks(seed: int, image_id: str, heading_deg: float) -> FrameQuirks:
    """The faults of a frame whose true heading is `heading_deg`."""
    rng = random.Random(f"{seed}/frame/{image_id}")
    exists = rng.random() >= MISSING_SHARE
    picture = rng.random() >= NO_PICTURE_SHARE
    original = rng.random() >= NO_ORIGINAL_SHARE
    changes: dict[str, Any] = {}
    if rng.random() < NO_CAMERA_TYPE_SHARE:
        changes["camera_type"] = ABSENT
    if rng.random() < 0.04:
        changes["computed_geometry"] = ABSENT
    if rng.random() < NO_HEADING_SHARE:
        changes["compass_angle"] = -1
        changes["computed_compass_angle"] = rng.choice((ABSENT, -1))
    else:
        heading = _one_of(
            rng, ("raw -1", 0.06), ("above 360", 0.02), ("computed absent", 0.03), ("computed -1", 0.01)
        )
        if heading == "raw -1":
            changes["compass_angle"] = -1
        elif heading == "above 360":
            changes["computed_compass_angle"] = round(360.0 + heading_deg, 6)
        elif heading != "stated":
            changes["computed_compass_angle"] = ABSENT if heading == "computed absent" else -1
    return FrameQuirks(exists, picture, original, changes)


def changed(entity: Entity, changes: dict[str, Any]) -> Entity:
    """A copy of an entity with fields replaced, or removed where the change is `ABSENT`."""
    mixed = {**entity, **changes}
    return {name: value for name, value in mixed.items() if value is not ABSENT}


def _one_of(rng: random.Random, *shares: tuple[str, float]) -> str:
    """One of the named cases with its share, "stated" for the rest."""
    draw = rng.random()
    for name, share in shares:
        if draw < share:
            return name
        draw -= share
    return "stated"
