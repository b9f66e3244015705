"""One candidate asked for its frames, and what tasks come of it.

Two kinds of faults are told apart. What the source says of a sequence or a frame (gone, not a panorama, no
heading, a broken clock) decides the outcome and is counted. What happens on the way (no connection, too many
requests, a refused token) decides nothing: it ends the run, and the next one asks again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_service.geography import Country, geography
from geo_assets.config.settings import PoolSpec
from geo_assets.data._selection import Candidate, Outcome
from geo_assets.data._windows import Window, greedy, middle_of, planned
from geo_assets.lineage.versions import content_version
from resources.mapillary import MapillaryClient
from resources.mapillary_frames import Dropped, UsableFrame, usable_frame

KEPT = "kept"
OUTSIDE = "outside the window"
THIN = "too few usable frames in the window"
GONE = "image withheld or gone"
NOWHERE = "no country near"
NO_FRAMES = "the sequence lists no images"
LICENCE = "CC-BY-SA-4.0"


@dataclass(frozen=True)
class HarvestSpec:
    """The part of the pool's spec that decides what comes of one candidate; see `PoolSpec` for the meanings.

    Seed, target and caps decide which candidates are asked, and are not in here: changing them must not cost
    an answer that is already there.
    """

    window_frames: int
    windows_per_sequence: int | None
    min_frames: int
    nearest_country_km: float

    @classmethod
    def of(cls, spec: PoolSpec) -> "HarvestSpec":
        """What the pool's spec says of single candidates."""
        return cls(spec.window_frames, spec.windows_per_sequence, spec.min_frames, spec.nearest_country_km)


def asked_as(candidate: Candidate) -> str:
    """Everything of a candidate that its outcome depends on, as one short hash."""
    return content_version(
        [
            candidate.sequence_id,
            candidate.anchor_image_id,
            candidate.creator_id,
            candidate.quality_score,
        ]
    )[:16]


def harvest(client: MapillaryClient, candidate: Candidate, spec: HarvestSpec) -> Outcome:
    """Ask for a candidate's frames and make its tasks.

    Raises:
        TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `resources.mapillary_errors`.
    """
    ids = list(dict.fromkeys(client.image_ids(candidate.sequence_id)))
    if not ids:
        return Outcome(candidate.sequence_id, dropped=NO_FRAMES, asked_as=asked_as(candidate))
    places = {image_id: place for place, image_id in enumerate(ids)}
    if spec.windows_per_sequence is None:
        wanted: list[Window] = [range(len(ids))]
    else:
        anchor = places.get(candidate.anchor_image_id, len(ids) // 2)
        wanted = planned(anchor, len(ids), spec.window_frames, spec.windows_per_sequence)
    asked = [ids[place] for window in wanted for place in window]
    entities = client.images(asked)
    verdicts = {image_id: _verdict(entities.get(image_id)) for image_id in asked}
    return outcome_of(candidate, spec, ids, verdicts, wanted)


def outcome_of(
    candidate: Candidate,
    spec: HarvestSpec,
    ids: Sequence[str],
    verdicts: Mapping[str, UsableFrame | str],
    windows: Sequence[Window],
) -> Outcome:
    """Tasks from the frames that were asked for; every frame of the sequence is accounted for.

    Args:
        ids: the sequence's images in the order of the drive.
        verdicts: for each image that was asked for, the usable frame or why it is none.
        windows: places in `ids` to look at; ignored, but for having been asked, where all windows are wanted.
    """
    usable = [isinstance(verdicts.get(image_id), UsableFrame) for image_id in ids]
    if spec.windows_per_sequence is None:
        windows = greedy(usable, spec.window_frames, spec.min_frames)
    fate = dict.fromkeys(ids, OUTSIDE)
    fate |= {name: verdict if isinstance(verdict, str) else THIN for name, verdict in verdicts.items()}
    rows, why = [], THIN
    for window in windows:
        found = [verdicts.get(ids[place]) for place in window]
        frames = [frame for frame in found if isinstance(frame, UsableFrame)]
        if len(frames) < spec.min_frames:
            continue
        row = task_row_of(candidate, spec, frames)
        why = "" if row is not None else NOWHERE
        fate |= {frame.image_id: KEPT if row is not None else NOWHERE for frame in frames}
        rows += [row] if row is not None else []
    kept = [verdict for verdict in verdicts.values() if isinstance(verdict, UsableFrame)]
    return Outcome(
        sequence_id=candidate.sequence_id,
        tasks=tuple(rows),
        dropped="" if rows else why,
        frames=dict(sorted(Counter(fate.values()).items())),
        camera_types=dict(sorted(Counter(frame.camera_type or "not stated" for frame in kept).items())),
        asked_as=asked_as(candidate),
    )


def task_row_of(
    candidate: Candidate, spec: HarvestSpec, frames: Sequence[UsableFrame]
) -> dict[str, Any] | None:
    """The task of one window, without index and id; None where no country is near its start frame."""
    start = frames[middle_of(frames)]
    found = country_near(start.lat, start.lon, spec.nearest_country_km)
    if found is None:
        return None
    country, offshore_km = found
    city, city_km = geography().nearest_place(start.lat, start.lon)
    quality = start.quality_score if start.quality_score is not None else candidate.quality_score
    meta = {
        "camera_make": start.make or None,
        "camera_model": start.model or None,
        "quality_score": quality,
        "continent": country.continent,
        "subregion": country.subregion,
        "nearest_city": city.name,
        "nearest_city_km": round(city_km, 1),
        "offshore_km": round(offshore_km, 3) if offshore_km else None,
    }
    return {
        "country": country.name,
        "country_code": country.code,
        "sequence_id": candidate.sequence_id,
        "provider": "mapillary",
        "start_frame": middle_of(frames),
        "frames": [_frame_row(frame) for frame in frames],
        "attribution": {
            "creator_username": start.creator_username,
            "creator_id": start.creator_id or candidate.creator_id,
            "licence": LICENCE,
            "source": "Mapillary",
        },
        "meta": {key: value for key, value in meta.items() if value is not None},
    }


def country_near(lat: float, lon: float, nearest_km: float) -> tuple[Country, float] | None:
    """The country of a position and 0, or the nearest one within `nearest_km` and how far it is."""
    inside = geography().country_at(lat, lon)
    return (inside, 0.0) if inside is not None else geography().nearest_country(lat, lon, nearest_km)


def _verdict(entity: Mapping[str, Any] | None) -> UsableFrame | str:
    if entity is None:
        return GONE
    frame = usable_frame(entity)
    return str(frame.reason) if isinstance(frame, Dropped) else frame


def _frame_row(frame: UsableFrame) -> dict[str, Any]:
    return {
        "image_id": frame.image_id,
        "lat": frame.lat,
        "lon": frame.lon,
        "compass_angle": frame.compass_angle,
        "captured_at": frame.captured_at,
        "is_pano": True,
    }
