"""From an image as the graph states it to a frame one can play, or to the reason why not.

The graph leaves out what it does not have, keeps faulty values (a bearing of -1, a date of 1970) and names
360° cameras otherwise than its documentation. Each rule is a function below; `usable_frame` applies them all.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

PANORAMIC_TYPES = frozenset({"spherical", "equirectangular"})
"""`spherical` is what comes in practice, `equirectangular` what the documentation promises."""

EARLIEST_MS = int(datetime(2010, 1, 1, tzinfo=UTC).timestamp() * 1000)
CLOCK_SLACK_MS = 24 * 3600 * 1000
"""A camera may run a time zone ahead of us; more than that is a broken clock."""


class DropReason(StrEnum):
    """Why a frame cannot be played."""

    NO_ID = "no image id"
    NOT_A_PANORAMA = "not a panorama"
    NO_POSITION = "no valid position"
    NO_HEADING = "no valid compass angle"
    BROKEN_CLOCK = "broken clock"
    NO_DATE = "no capture date"
    NO_PICTURE = "no 2048 px picture"


@dataclass(frozen=True)
class Dropped:
    """An image that cannot be played; `reason` is what it is counted under."""

    image_id: str
    reason: DropReason


@dataclass(frozen=True)
class UsableFrame:
    """A frame that can be played.

    `lat`, `lon` in WGS84 degrees; `compass_angle` in [0, 360), the direction of the picture's centre column;
    `captured_at` is "YYYY-MM" in UTC. `position_source` and `compass_source` say "computed" or "original".
    `camera_type` is as stated, "" where the graph left it out. Texts are "" where unknown.
    """

    image_id: str
    sequence_id: str
    lat: float
    lon: float
    compass_angle: float
    captured_at: str
    captured_at_ms: int
    camera_type: str
    position_source: str
    compass_source: str
    quality_score: float | None
    creator_id: str
    creator_username: str
    make: str
    model: str
    width: int | None
    height: int | None
    has_picture: bool
    has_original: bool


def usable_frame(
    entity: Mapping[str, Any], *, needs_picture: bool = True, now_ms: int | None = None
) -> UsableFrame | Dropped:
    """Apply every field rule to one graph entity.

    Args:
        entity: fields of an image as `MapillaryClient.image` returns them.
        needs_picture: drop the frame when it has no 2048 px picture.
        now_ms: what counts as now, in milliseconds since 1970 UTC; the clock's time by default.
    """
    image_id = _identifier(entity.get("id"))
    if not image_id:
        return Dropped("", DropReason.NO_ID)
    if not is_panoramic(entity):
        return Dropped(image_id, DropReason.NOT_A_PANORAMA)
    position = best_position(entity)
    if position is None:
        return Dropped(image_id, DropReason.NO_POSITION)
    heading = best_compass_angle(entity)
    if heading is None:
        return Dropped(image_id, DropReason.NO_HEADING)
    captured_ms = _whole(entity.get("captured_at"))
    if captured_ms is None:
        return Dropped(image_id, DropReason.NO_DATE)
    month = capture_month(captured_ms, now_ms)
    if month is None:
        return Dropped(image_id, DropReason.BROKEN_CLOCK)
    if needs_picture and not _text(entity.get("thumb_2048_url")):
        return Dropped(image_id, DropReason.NO_PICTURE)
    creator = entity.get("creator")
    creator = creator if isinstance(creator, Mapping) else {}
    return UsableFrame(
        image_id=image_id,
        sequence_id=_text(entity.get("sequence")),
        lat=position[0],
        lon=position[1],
        compass_angle=heading[0],
        captured_at=month,
        captured_at_ms=captured_ms,
        camera_type=_text(entity.get("camera_type")),
        position_source=position[2],
        compass_source=heading[1],
        quality_score=_number(entity.get("quality_score")),
        creator_id=_identifier(creator.get("id")),
        creator_username=_text(creator.get("username")),
        make=_text(entity.get("make")),
        model=_text(entity.get("model")),
        width=_whole(entity.get("width")),
        height=_whole(entity.get("height")),
        has_picture=bool(_text(entity.get("thumb_2048_url"))),
        has_original=bool(_text(entity.get("thumb_original_url"))),
    )


def is_panoramic(entity: Mapping[str, Any]) -> bool:
    """Whether a picture covers the whole sphere: by `camera_type`, and by `is_pano` where that is absent.

    `is_pano` counts as true for true, 1 and "true".
    """
    camera_type = entity.get("camera_type")
    if isinstance(camera_type, str) and camera_type:
        return camera_type.lower() in PANORAMIC_TYPES
    stated = entity.get("is_pano")
    return stated is True or stated == 1 or (isinstance(stated, str) and stated.lower() == "true")


def best_position(entity: Mapping[str, Any]) -> tuple[float, float, str] | None:
    """Latitude, longitude and source: `computed_geometry` where valid, else `geometry`, else None.

    Points out of range, not finite, or at exactly 0° 0° (a receiver without a fix) are not valid.
    """
    for field, source in (("computed_geometry", "computed"), ("geometry", "original")):
        geometry = entity.get(field)
        coordinates = geometry.get("coordinates") if isinstance(geometry, Mapping) else None
        if not isinstance(coordinates, list | tuple) or len(coordinates) < 2:
            continue
        lon, lat = _number(coordinates[0]), _number(coordinates[1])
        if lon is None or lat is None or abs(lat) > 90.0 or abs(lon) > 180.0 or (lat == 0.0 and lon == 0.0):
            continue
        return lat, lon, source
    return None


def best_compass_angle(entity: Mapping[str, Any]) -> tuple[float, str] | None:
    """Heading in [0, 360) and source: `computed_compass_angle` where valid, else `compass_angle`, else None.

    0.0 is a heading, 365.2 is 5.2; NaN and negatives (the service writes -1 for "unknown") are not valid.
    """
    for field, source in (("computed_compass_angle", "computed"), ("compass_angle", "original")):
        angle = _number(entity.get(field))
        if angle is not None and angle >= 0.0:
            return math.fmod(angle, 360.0) + 0.0, source
    return None


def capture_month(captured_at_ms: int, now_ms: int | None = None) -> str | None:
    """ "YYYY-MM" in UTC, or None for a broken clock: before 2010, or in the future."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    if not EARLIEST_MS <= captured_at_ms <= now + CLOCK_SLACK_MS:
        return None
    return datetime.fromtimestamp(captured_at_ms / 1000, tz=UTC).strftime("%Y-%m")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _identifier(value: Any) -> str:
    """Ids as text. A float may have lost its last digits, so it is no id."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(value)
